"""Programs of a hospital (`eigenveil-site`) and of an analyst (`eigenveil`)."""

from __future__ import annotations

import os

# Set before gRPC is loaded. Otherwise any unauthenticated client can fill the log: gRPC writes a line of its
# own for every failed handshake. GRPC_VERBOSITY=debug shows them.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
