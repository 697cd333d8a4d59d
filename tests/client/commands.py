"""Runs `eigenveil` in this process, as its entry point does."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from eigenveil_client.cli import main


def eigenveil(arguments: Sequence[str]) -> int:
    """The exit code of `eigenveil` with these arguments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["eigenveil", *arguments])
        return main()
