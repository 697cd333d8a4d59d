"""One conformance suite, run on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.common.storage import cluster
from tests.common.storage.places import Place


@pytest.fixture
def url(server: cluster.Cluster) -> str:
    return server.database()


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    on_file = request.param == "sqlite"
    where = tmp_path / "state.db" if on_file else request.getfixturevalue("url")
    place = Place(where)
    yield place
    place.close()
