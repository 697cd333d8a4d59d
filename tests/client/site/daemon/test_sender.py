"""Ways of an answer to the coordinator: with the next question, alone, or in chunks."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import grpc
import numpy as np
import pytest

from eigenveil.errors import Code
from eigenveil.numerics.encoding import from_bytes
from eigenveil.protocol.plan import Plan
from eigenveil.site.site import Site
from eigenveil.study.study import Column
from eigenveil_client.site.daemon import connection
from eigenveil_client.site.daemon.connection import SiteConnection
from eigenveil_client.site.daemon.metrics import Contact
from eigenveil_client.site.daemon.worker import SiteWorker
from eigenveil_client.site.policy import Approval
from eigenveil_client.site.state.declined_plans import MOST_OPEN
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.rpc import CODE_KEY
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.records import support as records
from tests.client.site.daemon.test_daemon import queries, script
from tests.client.site.scripted import Coordinator
from tests.client.site.stated import work
from tests.client.site.support import Patch, Stage, a_plan, a_stage, a_study, until, write_records


def wide(stage: Stage, columns: int) -> Plan:
    names = tuple(f"c{number}" for number in range(columns))
    stage.rule(max_columns_per_record=math.inf)
    write_records(stage.records, columns=names)
    return a_plan(a_study(columns=tuple(Column(name=name, unit="u", lower=0, upper=10) for name in names)))


async def test_answer_and_next_request_are_one_call_of_constant_bytes(stage: Stage) -> None:
    plan = a_plan()
    coordinator = Coordinator(work=script(stage, plan, [queries(plan)[0]]), lose=["Contribute"] * 3)
    async with stage.serving(coordinator), stage.daemon():
        await until(lambda: len(coordinator.requests) == 2)
    sent = coordinator.contributions
    assert (len(sent), len({one.SerializeToString() for one in sent})) == (4, 1)
    assert coordinator.requests[1] == sent[0].next
    assert [message.round for message in sent[0].next.answered] == [0]


async def test_slow_answer_is_delivered_before_its_connection_ends(stage: Stage, monkeypatch: Patch) -> None:
    """Each new connection would have it computed again, and end as this one did."""
    coordinator = Coordinator(work=script(stage, a_plan(), queries(a_plan())[:1]))
    work = SiteWorker.work

    def slow(*round_query: Any) -> Any:
        time.sleep(0.6)
        return work(*round_query)

    monkeypatch.setattr(connection, "CONNECTION_SECONDS", 0.5)
    monkeypatch.setattr(SiteWorker, "work", slow)

    async with stage.serving(coordinator), stage.daemon():
        await until(lambda: coordinator.contributions and coordinator.hellos >= 2)
    (sent,) = coordinator.contributions
    assert not sent.HasField("next")


class Refusing(Coordinator):
    async def Contribute(self, request: pb.ContributeRequest, context: Any) -> pb.ContributeResponse:
        self.contributions.append(request)
        code = ((CODE_KEY, Code.CONFLICT.value),)
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "closed", trailing_metadata=code)
        raise AssertionError("abort does not return")


async def test_a_refused_answer_is_followed_by_a_request_alone(stage: Stage) -> None:
    plan = a_plan()
    coordinator = Refusing(work=script(stage, plan, queries(plan)))
    async with stage.serving(coordinator), stage.daemon():
        await until(lambda: len(coordinator.requests) == len(queries(plan)) + 1)
    assert [sent.next for sent in coordinator.contributions] == coordinator.requests[1:]
    assert coordinator.hellos == 1


@pytest.mark.parametrize("columns", [5, 140])
async def test_only_an_answer_of_up_to_64_kib_brings_a_question(stage: Stage, columns: int) -> None:
    plan = wide(stage, columns)
    coordinator = Coordinator(work=script(stage, plan, queries(plan)))
    async with stage.serving(coordinator), stage.daemon():
        await until(lambda: len(coordinator.contributions) == len(queries(plan)))
    *others, gram = coordinator.contributions
    assert all(sent.HasField("next") for sent in others)
    assert gram.HasField("next") == (len(gram.values) <= 64 * 1024) == (columns == 5)


async def test_an_answer_over_one_mebibyte_goes_in_chunks_that_may_get_lost(stage: Stage) -> None:
    plan = wide(stage, 520)
    round_query = queries(plan)
    gram = round_query[-1]
    coordinator = Coordinator(
        work=script(stage, plan, round_query), lose=["PutChunk", "Commit"], forget=["PutChunk"]
    )
    async with stage.serving(coordinator), stage.daemon():
        await until(lambda: len(coordinator.contributions) == len(round_query) + 1)
    sent = coordinator.contributions[-1]
    assert len(sent.values) == 8 * gram.query.length > 2**20
    assert len(coordinator.opened) == 2
    site = Site(records.load(stage.records, plan.study))
    assert np.array_equal(from_bytes(sent.values, (gram.query.length,)), site.answer(gram.query))


WAITING = 5


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[SiteStore, SiteWorker]]:
    """A site that declined as many plans as a question names, and where some wait for a person."""
    stage = a_stage(tmp_path, approval=Approval.MANUAL)
    with closing(stage.store()) as store:
        with store.database.transaction() as change:
            for number in range(MOST_OPEN):
                store.declined.add(f"{number:064x}", Code.POLICY, change, analyst="ada", rule="analysts")
        worker = stage.worker(store)
        for number in range(WAITING):
            worker.work(work(None, stage.signed(a_plan(submission=str(number)))))
        yield store, worker


async def test_request_for_work_takes_constant_database_queries(site: tuple[SiteStore, SiteWorker]) -> None:
    store, worker = site
    round_query: list[pb.NextWorkRequest] = []
    queries: list[str] = []
    rows = store.database.rows

    def seen(statement: str, *words: Any) -> Any:
        queries.append(statement)
        return rows(statement, *words)

    connection = SiteConnection(worker, mock.Mock(), pb.Limits(long_poll_ms=1000), Contact())

    async def sent(request: pb.NextWorkRequest) -> pb.NextWorkResponse:
        round_query.append(request)
        return pb.NextWorkResponse()

    with mock.patch.object(connection, "_next_work", sent), mock.patch.object(store.database, "rows", seen):
        await connection._start_call()
    (request,) = round_query
    assert len(request.known_plans) == len(request.stored_releases) == MOST_OPEN + WAITING
    assert len(request.awaiting_approval) == WAITING
    assert len(queries) <= 5
