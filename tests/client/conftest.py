"""Fixtures of the site's tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from eigenveil_client.site.daemon.worker import SiteWorker
from eigenveil_client.site.policy import Approval
from eigenveil_client.site.state.store import SiteStore
from tests.client.site.masking import Peers
from tests.client.site.support import Stage, a_stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return a_stage(tmp_path)


@pytest.fixture
def asking(tmp_path: Path) -> Stage:
    return a_stage(tmp_path, approval=Approval.MANUAL)


@pytest.fixture
def store(stage: Stage) -> Iterator[SiteStore]:
    """The state of `stage`, as it is before a test changes anything."""
    with closing(stage.store()) as opened:
        yield opened


@pytest.fixture
def worker(stage: Stage, store: SiteStore) -> SiteWorker:
    """The worker of `stage` under the rules that it begins with."""
    return stage.worker(store)


@pytest.fixture
def peers(tmp_path: Path) -> Peers:
    return Peers(a_stage(tmp_path))
