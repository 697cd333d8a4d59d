"""A hospital's database server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.common.storage import cluster


@pytest.fixture(scope="session")
def server() -> Iterator[cluster.Cluster]:
    """A PostgreSQL server of our own."""
    if cluster.missing():
        pytest.skip(cluster.missing())
    with cluster.running() as running:
        yield running
