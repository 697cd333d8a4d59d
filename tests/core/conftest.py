"""Noise drawn in tests of the core is the same on each run."""

from __future__ import annotations

import pytest

from tests.support import the_same_bits


@pytest.fixture(autouse=True)
def _the_same_bits(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    the_same_bits(monkeypatch, request.node.name)
