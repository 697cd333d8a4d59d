"""`python -m tests.torture.front.unlimited`: eigenveil-coordinator without the limits of its front door.

Of 20,000 connections of one certificate the front door would let few come near gRPC.
"""

from __future__ import annotations

import sys

from eigenveil_server.front import pending_connections, quota

quota.MOST_OF_ONE = pending_connections.MAX_PENDING_CONNECTIONS = 10_000
quota.BURST = quota.RATE = quota.RESETS = quota.CONNECTIONS = 10**9

from eigenveil_server import cli  # noqa: E402 - it reads the limits when it is imported

if __name__ == "__main__":
    sys.exit(cli.main())
