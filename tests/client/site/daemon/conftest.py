"""Fixtures of the daemon's tests."""

from __future__ import annotations

import pytest

from eigenveil_client.site.daemon import connection
from tests.client.site.support import Patch


@pytest.fixture
def pauses(monkeypatch: Patch) -> list[int]:
    made: list[int] = []

    def pause(odd: int) -> float:
        made.append(odd)
        return 0.0

    monkeypatch.setattr(connection, "backoff_seconds", pause)
    return made
