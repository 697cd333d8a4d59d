"""Entry point of `eigenveil-coordinator`."""

from __future__ import annotations

from eigenveil_common.start import start


def coordinator() -> int:
    """Run `eigenveil-coordinator` and return its exit code."""
    return start("eigenveil_server.cli")
