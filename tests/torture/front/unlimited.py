"""`python -m tests.torture.front.unlimited LIMIT ...`: eigenveil-coordinator without one of its limits.

For the checks' own sake: a check that passes such a coordinator would pass anything. And of 20,000
connections of one certificate the front door would let few come near gRPC."""

from __future__ import annotations

import sys

from eigenveil_common import rpc


def _forget(limit: str) -> None:
    match limit:
        case "handshakes":
            rpc.HANDSHAKE_MS = 600_000
        case "connections":
            from eigenveil_server.front import pending_connections, quota

            quota.MOST_OF_ONE = pending_connections.MAX_PENDING_CONNECTIONS = 10_000
            quota.BURST = quota.RATE = quota.RESETS = quota.CONNECTIONS = 10**9
        case option:
            remaining = tuple(one for one in rpc.SERVER_OPTIONS if one[0] != option)
            assert len(remaining) < len(rpc.SERVER_OPTIONS), f"{option} is no limit"
            rpc.SERVER_OPTIONS = remaining


def main() -> int:
    """Forget the limit, then run the command."""
    _forget(sys.argv.pop(1))
    from eigenveil_server import cli  # like whatever it imports, it reads the limits as it is imported

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
