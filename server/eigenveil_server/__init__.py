"""Coordinator: opens rounds, sums the sites' answers, adds noise, charges the budget, signs, publishes."""

from __future__ import annotations

import os

# gRPC would log a line in another format for every failed handshake, as often as an attacker likes.
# GRPC_VERBOSITY=debug shows them.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
