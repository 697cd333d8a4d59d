"""The coordinator: opens rounds, adds up what sites answer, noises, charges, seals and publishes."""

from __future__ import annotations

import os

# gRPC's own lines, one for every failed handshake of a stranger, would stand between
# ours in the log, in another form, as often as the stranger likes. GRPC_VERBOSITY=debug shows them.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
