"""What a question for work names is read in a few queries, beside the event loop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from eigenveil.errors import Code
from eigenveil_client.site.daemon.connection import SiteConnection
from eigenveil_client.site.daemon.metrics import Contact
from eigenveil_client.site.daemon.worker import SiteWorker
from eigenveil_client.site.policy import Approval
from eigenveil_client.site.state.declined_plans import MOST_OPEN
from eigenveil_client.site.state.store import SiteStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.stated import work
from tests.client.site.support import a_plan, a_stage

WAITING = 5


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[SiteStore, SiteWorker]]:
    """A site that declined as many plans as a question names, and where some wait for a person."""
    stage = a_stage(tmp_path, approval=Approval.ASK)
    with closing(stage.store()) as store:
        with store.database.transaction() as change:
            for number in range(MOST_OPEN):
                store.declined.add(f"{number:064x}", Code.POLICY, change, analyst="ada", rule="analysts")
        worker = stage.worker(store)
        for number in range(WAITING):
            worker.work(work(None, stage.signed(a_plan(submission=str(number)))))
        yield store, worker


async def test_a_question_for_work_takes_as_many_queries_for_one_plan_as_for_a_thousand(
    site: tuple[SiteStore, SiteWorker],
) -> None:
    store, worker = site
    asked: list[pb.NextWorkRequest] = []
    threads: list[bool] = []
    rows = store.database.rows

    def seen(*words: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return rows(*words)

    connection = SiteConnection(worker, mock.Mock(), pb.Limits(long_poll_ms=1000), Contact())

    async def sent(request: pb.NextWorkRequest) -> pb.NextWorkResponse:
        asked.append(request)
        return pb.NextWorkResponse()

    with (
        mock.patch.object(connection, "_next_work", sent),
        mock.patch.object(store.database, "rows", seen),
    ):
        await (await connection._start_call())
    (request,) = asked
    assert len(request.known_plans) == len(request.held) == MOST_OPEN + WAITING
    assert len(request.awaiting) == WAITING
    assert len(threads) <= 4
    assert not any(threads), "a query on the event loop"
