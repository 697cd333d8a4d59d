"""`python -m tests.torture.front.unlimited OPTION ...`: eigenveil-coordinator without one of its limits.

For the checks' own sake: a check that passes such a coordinator would pass anything.
"""

from __future__ import annotations

import sys

from eigenveil_common import rpc


def main() -> int:
    """Forget the limit, then run the command."""
    name = sys.argv.pop(1)
    if name == "handshakes":
        rpc.HANDSHAKE_MS = 600_000
    elif name == "places":
        from eigenveil_server.front import pending_connections, quota

        quota.MOST_OF_ONE = pending_connections.MAX_PENDING_CONNECTIONS = 10_000
        quota.BURST = quota.RATE = quota.RESETS = quota.CONNECTIONS = 10**9
    else:
        _forget(name)
    from eigenveil_server import cli  # reads the limits when it is imported

    return cli.main()


def _forget(name: str) -> None:
    remaining = tuple(option for option in rpc.SERVER_OPTIONS if option[0] != name)
    assert len(remaining) < len(rpc.SERVER_OPTIONS), f"{name} is no limit"
    rpc.SERVER_OPTIONS = remaining


if __name__ == "__main__":
    sys.exit(main())
