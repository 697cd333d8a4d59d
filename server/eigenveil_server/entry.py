"""Where `eigenveil-coordinator` begins."""

from __future__ import annotations

from eigenveil_common.start import start


def coordinator() -> int:
    """Run `eigenveil-coordinator`; the process exit code."""
    return start("eigenveil_server.cli")
