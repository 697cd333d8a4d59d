"""A query about few records is answered in one step of the event loop; its consent is decided once while
nothing changes [TM23]."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from eigenveil.aggregation import Contribution
from eigenveil.errors import Code
from eigenveil.planning.choose import rehearse
from eigenveil.queries import ClippedSum, Gradient, Gram
from eigenveil.study.algorithm import Algorithm
from eigenveil_client.site.daemon.connection import SiteConnection
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.daemon.metrics import Contact
from eigenveil_client.site.daemon.worker import QUICK_BYTES, SiteWorker
from eigenveil_client.site.engine import engine
from eigenveil_client.site.engine.engine import LocalRecords
from eigenveil_client.site.roster import analysts
from eigenveil_client.site.roster.analysts import ANALYSTS
from eigenveil_client.site.roster.roster import Roster
from eigenveil_client.site.state.received_plans import PersonDecision
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.storage import sqlite
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.scripted import Coordinator
from tests.client.site.stated import work
from tests.client.site.support import Stage, a_plan, a_stage, a_study, ended, until
from tests.support import signed_by_analyst

PLAN = a_plan(a_study(algorithm=Algorithm.DP_PCA, expected_records=1000))
QUERIES = rehearse(PLAN)
NOW = 1_800_000_000


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = a_stage(tmp_path)
    stage.know_analyst()
    return stage


def first(stage: Stage) -> pb.NextWorkResponse:
    return work(QUERIES[0], stage.authorized(PLAN, signed_by_analyst(PLAN, expires=NOW + 3600)))


async def threads_of_work(stage: Stage, count: int) -> list[bool]:
    """Return for each of the first queries whether it was answered on the event loop."""
    loop, on_loop, answer = threading.get_ident(), list[bool](), SiteWorker.work

    def seen(worker: SiteWorker, *words: Any) -> Any:
        on_loop.append(threading.get_ident() == loop)
        return answer(worker, *words)

    coordinator = Coordinator(work=[first(stage), *map(work, QUERIES[1:count])])
    with mock.patch.object(SiteWorker, "work", seen):
        async with stage.serving(coordinator), stage.daemon():
            await until(lambda: len(coordinator.contributions) == count)
    return on_loop


async def test_queries_after_the_first_are_answered_on_the_event_loop(stage: Stage) -> None:
    assert await threads_of_work(stage, 4) == [False, True, True, True]


async def test_queries_about_many_records_are_answered_in_threads(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "QUICK_PRODUCTS", 0)
    assert await threads_of_work(stage, 3) == [False, False, False]


NOT_QUICK: dict[str, Callable[[pb.NextWorkResponse], object]] = {
    "a plan beside it": lambda sent: sent.plan.SetInParent(),
    "consent": lambda sent: setattr(sent, "consent", b"x" * 32),
    "a study that ended": lambda sent: sent.ended.append(ended(PLAN).ended[0]),
    "an attempt": lambda sent: sent.attempt.SetInParent(),
    "a release to fetch": lambda sent: sent.ClearField("release"),
    "a large release": lambda sent: setattr(sent.signed_round, "signed_json", bytes(QUICK_BYTES)),
    "another study": lambda sent: setattr(sent.query, "plan_digest", b"x" * 32),
}


@pytest.mark.parametrize("more", NOT_QUICK)
def test_work_that_needs_more_than_one_answer_is_not_quick(stage: Stage, more: str) -> None:
    with closing(stage.store(lambda: NOW)) as store:
        worker = stage.worker(store)
        assert not worker.is_quick(first(stage))
        worker.work(first(stage))
        sent = work(QUERIES[1])
        assert worker.is_quick(sent)
        NOT_QUICK[more](sent)
        assert not worker.is_quick(sent)


def test_kinds_of_a_product_for_each_pair_of_columns_are_quick_for_fewer_records() -> None:
    records = LocalRecords.__new__(LocalRecords)
    records._rows = np.zeros((500, 200), dtype=np.int16)
    assert records.is_quick(ClippedSum, 10)
    assert records.is_quick(Gradient, 400)
    assert not records.is_quick(Gradient, 400_000)
    assert not records.is_quick(Gram, 10)


def decided(stage: Stage, store: SiteStore, change: Callable[[], object]) -> list[int]:
    """Answer three queries, with `change` before the third. Return how often consent was decided for each."""
    worker, counts = stage.worker(store), list[int]()
    with mock.patch.object(analysts, "require", wraps=analysts.require) as seen:
        for number, sent in enumerate([first(stage), *map(work, QUERIES[1:3])]):
            if number == 2:
                change()
            seen.reset_mock()
            reply = worker.work(sent)
            assert isinstance(reply, Contribution)
            assert worker.may_send(reply)
            counts.append(seen.call_count)
    return counts


def test_consent_is_not_decided_again_while_nothing_changes(stage: Stage) -> None:
    with closing(stage.store(lambda: NOW)) as store:
        assert decided(stage, store, lambda: None)[1:] == [0, 0]


def a_commit(stage: Stage) -> None:
    """Another process stores something."""
    with closing(stage.store(lambda: NOW)) as other, other.database.transaction() as change:
        change.execute("INSERT INTO calls VALUES ('2026-01-01', 'x', 1, 1, 1)")


def roster(stage: Stage) -> None:
    path = Roster(ANALYSTS, stage.config.identity)._path
    path.write_bytes(path.read_bytes())


@pytest.mark.parametrize("change", [a_commit, roster])
def test_consent_is_decided_again_after(stage: Stage, change: Callable[[Stage], None]) -> None:
    with closing(stage.store(lambda: NOW)) as store:
        assert decided(stage, store, lambda: change(stage))[2] > 0


@pytest.mark.parametrize("clock", [[NOW, NOW + 1], [NOW, NOW - 1]])
def test_consent_is_decided_again_in_another_second(stage: Stage, clock: list[int]) -> None:
    with closing(stage.store(lambda: clock[0])) as store:
        assert decided(stage, store, lambda: clock.pop(0))[2] > 0


@pytest.mark.parametrize("own", [True, False])
def test_withdrawal_here_or_by_another_process_ends_the_next_answer(stage: Stage, own: bool) -> None:
    with closing(stage.store(lambda: NOW)) as store, closing(stage.store(lambda: NOW)) as other:
        worker = stage.worker(store)
        assert isinstance(worker.work(first(stage)), Contribution)
        (store if own else other).withdraw(PLAN.digest, PersonDecision(by="Kim"))
        assert isinstance(worker.work(work(QUERIES[1])), Refusal)


def test_a_refusal_is_not_decided_again_while_nothing_changes(stage: Stage) -> None:
    known = Roster(ANALYSTS, stage.config.identity)
    with closing(stage.store(lambda: NOW)) as store:
        worker = stage.worker(store)
        assert isinstance(worker.work(first(stage)), Contribution)
        with mock.patch.object(analysts, "require", wraps=analysts.require) as seen:
            known.remove("ada")
            assert worker._decisions.refusal_code(PLAN.digest) == Code.UNCONFIRMED.value
            assert worker._decisions.refusal_code(PLAN.digest) == Code.UNCONFIRMED.value
            assert seen.call_count == 1
            stage.know_analyst()
            assert worker._decisions.refusal_code(PLAN.digest) is None
            store.withdraw(PLAN.digest, PersonDecision(by="Kim"))
            assert worker._decisions.refusal_code(PLAN.digest) == "site-policy"


WRITER = """
import sys, apsw
database = apsw.Connection(sys.argv[1])
database.execute("BEGIN IMMEDIATE")
print("begun", flush=True)
sys.stdin.read()
"""


@contextmanager
def writing(path: Path) -> Iterator[Callable[[], object]]:
    """Another process writes to a database until the yielded function is called."""
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"begun\n"
        yield process.stdin.close


async def test_the_event_loop_does_not_wait_while_another_process_writes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "WAIT_MS", 20_000)
    with closing(stage.store(lambda: NOW)) as store:
        worker = stage.worker(store)
        assert isinstance(worker.work(first(stage)), Contribution)
        connection = SiteConnection(worker, mock.Mock(), pb.Limits(), Contact())
        with writing(stage.config.state) as end:
            answer = asyncio.create_task(connection._work_on(work(QUERIES[1])))
            for _ in range(200):
                await asyncio.sleep(0.01)
                assert worker.consent().accepted, "reads go on"
                assert not answer.done()
            assert store.ledger.ledger.spent == QUERIES[0].cost
            end()
            assert isinstance(await answer, Contribution)
        assert store.ledger.ledger.spent == QUERIES[0].cost + QUERIES[1].cost
        assert len(store.egress.rows()) == 2
        assert isinstance(worker.work_at_once(work(QUERIES[2])), Contribution)
