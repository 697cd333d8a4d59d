"""Fixtures of the site's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.site.support import Stage, a_stage
from tests.common.storage import cluster


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A site that is set up and enrolled."""
    return a_stage(tmp_path)


@pytest.fixture(scope="session")
def server() -> Iterator[cluster.Cluster]:
    """A hospital's PostgreSQL server."""
    if cluster.missing():
        pytest.skip(cluster.missing())
    with cluster.running() as running:
        yield running
