"""What runs at a hospital (`eigenveil-site`), and what an analyst runs (`eigenveil`)."""

from __future__ import annotations

import os

# Before gRPC is loaded: its own lines, one for every failed handshake of a stranger, would stand between
# ours in the log, in another form, as often as the stranger likes. GRPC_VERBOSITY=debug shows them.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
