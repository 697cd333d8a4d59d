"""Records are loaded from acceptance on, for accepted studies alone, and used once they are queried."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from eigenveil.aggregation import Contribution
from eigenveil.dictionary.site_rules import DeclineReason
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil_client.records.tables.source import BadRecords
from eigenveil_client.site.daemon import connection, loading, service
from eigenveil_client.site.daemon.answers import MAX_LOADED_STUDIES
from eigenveil_client.site.daemon.loading import LoadsAhead
from eigenveil_client.site.daemon.worker import SiteWorker
from eigenveil_client.site.engine.engine import LocalEngine
from eigenveil_client.site.policy import Approval
from eigenveil_client.site.state.received_plans import PersonDecision
from eigenveil_client.site.state.store import SiteStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.daemon.test_worker import FIRST, PLAN, SECOND, reply_to
from tests.client.site.support import Coordinator, Patch, Stage, a_plan, a_study, reason_of, until, work

PERSON = PersonDecision(by="dr. who")


class ByHand(Executor):
    """Work that is done when a test says so."""

    def __init__(self) -> None:
        self.due: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.due.append((future, lambda: fn(*args, **kwargs)))
        return future

    def do(self) -> None:
        for future, call in self.due:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except Exception as problem:  # noqa: BLE001 - it belongs to whoever asks for the result
                    future.set_exception(problem)
        self.due.clear()


class Engine:
    """Counts loads, and hands out records that note their end."""

    def __init__(self) -> None:
        self.loaded: list[mock.Mock] = []
        self.fails = False

    def load(self, plan: Plan) -> mock.Mock:
        self.loaded.append(mock.Mock(name=plan.digest))
        if self.fails:
            raise BadRecords("they are broken")
        return self.loaded[-1]


@pytest.fixture
def hand() -> ByHand:
    return ByHand()


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def ahead(engine: Engine, hand: ByHand) -> LoadsAhead:
    return LoadsAhead(engine.load, hand)


def test_a_load_is_under_way_until_it_ends_and_its_records_are_taken_once(
    ahead: LoadsAhead, hand: ByHand, engine: Engine
) -> None:
    ended: list[None] = []
    ahead.ended = lambda: ended.append(None)
    ahead.begin(PLAN)
    assert ahead.under_way == {PLAN.digest}
    assert not ended
    hand.do()
    assert (len(ahead.under_way), len(ended)) == (0, 1)
    assert ahead.take(PLAN.digest) is engine.loaded[0]
    assert ahead.take(PLAN.digest) is None
    engine.loaded[0].close.assert_not_called()


def test_each_study_is_loaded_ahead_once_and_none_without_room(ahead: LoadsAhead) -> None:
    assert ahead.may_begin(PLAN.digest, 1)
    assert not ahead.may_begin(PLAN.digest, 0)
    ahead.begin(PLAN)
    assert not ahead.may_begin(PLAN.digest, 9)
    assert not ahead.may_begin("other", 1)
    ahead.take("queried first")
    assert not ahead.may_begin("queried first", 9)


def test_records_of_a_study_that_went_are_released_also_after_their_load(
    ahead: LoadsAhead, hand: ByHand, engine: Engine
) -> None:
    ahead.begin(PLAN)
    (future, _), *_ = hand.due
    assert future.set_running_or_notify_cancel()
    ahead.retain(())
    assert ahead.under_way == frozenset()
    records = engine.load(PLAN)
    future.set_result(records)
    records.close.assert_called_once()
    ahead.begin(PLAN)
    hand.due = hand.due[1:]
    hand.do()
    ahead.forget(PLAN.digest)
    engine.loaded[-1].close.assert_called_once()


def test_a_load_that_never_began_reads_nothing(ahead: LoadsAhead, hand: ByHand, engine: Engine) -> None:
    ahead.begin(PLAN)
    ahead.retain(())
    hand.do()
    assert engine.loaded == []


def test_a_failed_load_and_old_records_are_loaded_again(
    ahead: LoadsAhead, hand: ByHand, engine: Engine, monkeypatch: Patch
) -> None:
    engine.fails = True
    ahead.begin(PLAN)
    hand.do()
    assert ahead.take(PLAN.digest) is None
    engine.fails = False
    ahead.retain(())
    ahead.begin(PLAN)
    hand.do()
    monkeypatch.setattr(loading, "FRESH_SECONDS", 0.0)
    assert ahead.take(PLAN.digest) is None
    engine.loaded[-1].close.assert_called_once()


def test_records_that_are_not_queried_for_an_hour_are_released(
    ahead: LoadsAhead, hand: ByHand, engine: Engine, monkeypatch: Patch
) -> None:
    ahead.begin(PLAN)
    hand.do()
    ahead.retain({PLAN.digest})
    engine.loaded[0].close.assert_not_called()
    monkeypatch.setattr(loading, "FRESH_SECONDS", 0.0)
    ahead.retain({PLAN.digest})
    engine.loaded[0].close.assert_called_once()
    assert not ahead.may_begin(PLAN.digest, 9), "the query loads them again"


# ---------------------------------------------------------------- of a worker


@pytest.fixture
def rig(stage: Stage, hand: ByHand) -> Iterator[tuple[SiteStore, SiteWorker]]:
    with stage.process() as (store, worker):
        worker.ahead._executor = hand
        yield store, worker


def offered(stage: Stage, plan: Plan = PLAN) -> pb.NextWorkResponse:
    return pb.NextWorkResponse(plan=stage.signed(plan), consent=bytes.fromhex(plan.digest))


def test_answers_come_from_the_records_loaded_at_acceptance(
    stage: Stage, rig: tuple[SiteStore, SiteWorker], hand: ByHand
) -> None:
    _, worker = rig
    assert worker.work(offered(stage)) is None
    assert worker.load_ahead(worker.consent().accepted) == {PLAN.digest}
    hand.do()
    assert worker.load_ahead(worker.consent().accepted) == frozenset()
    with mock.patch.object(worker._engine, "load", side_effect=AssertionError):
        answers = [worker.work(work(one)) for one in (FIRST, SECOND)]
    with stage.process() as (_, other):
        expected = other.work(work(SECOND))
    assert all(isinstance(one, Contribution) for one in answers)
    assert np.array_equal(answers[1].values, expected.values)  # type: ignore[union-attr]


def test_no_record_is_read_before_a_person_agrees_nor_after_a_withdrawal(stage: Stage, hand: ByHand) -> None:
    stage.rule(approval=Approval.MANUAL)
    with stage.process() as (store, worker):
        worker.ahead._executor = hand
        worker.work(offered(stage))
        assert worker.load_ahead(worker.consent().accepted) == frozenset()
        assert hand.due == []
        received = store.studies.get(PLAN.digest)
        assert received is not None
        store.accept(PLAN, received, None, PERSON)
        assert worker.load_ahead(worker.consent().accepted) == {PLAN.digest}
        store.withdraw(PLAN.digest, replace(PERSON, reason_code=DeclineReason.UNSTATED))
        worker.work(pb.NextWorkResponse())
        with mock.patch.object(worker._engine, "load") as load:
            hand.do()
        load.assert_not_called()
        assert worker.load_ahead([PLAN.digest]) == frozenset(), "the policy is asked again"


def test_records_that_broke_are_refused_with_the_query(
    stage: Stage, rig: tuple[SiteStore, SiteWorker], hand: ByHand
) -> None:
    store, worker = rig
    worker.work(offered(stage))
    stage.records.unlink()
    worker.load_ahead(worker.consent().accepted)
    hand.do()
    assert worker.load_ahead(worker.consent().accepted) == frozenset()
    assert store.egress.rows() == []
    assert reason_of(worker.work(work(FIRST))) == pb.DECLINE_REASON_FAILURE


def test_a_fifth_study_is_not_loaded_ahead(
    stage: Stage, rig: tuple[SiteStore, SiteWorker], hand: ByHand
) -> None:
    _, worker = rig
    plans = [a_plan(a_study(epsilon=0.2), submission=str(n)) for n in range(MAX_LOADED_STUDIES + 2)]
    reply_to(stage, worker, rehearse(plans[0])[0], plans[0])
    for plan in plans[1:]:
        worker.work(offered(stage, plan))
    assert worker.load_ahead(worker.consent().accepted) == {one.digest for one in plans[1:MAX_LOADED_STUDIES]}


async def test_a_daemon_states_that_it_loads_and_at_once_that_it_has_loaded(
    stage: Stage, monkeypatch: Patch
) -> None:
    """And nothing else of it: the two requests differ in that alone."""
    monkeypatch.setattr(connection, "DECISION_POLL_SECONDS", 3600.0)
    go, load = threading.Event(), LocalEngine.load

    def held(engine: LocalEngine, plan: Plan, require: Callable[[], object]) -> Any:
        assert go.wait(60)
        return load(engine, plan, require)

    monkeypatch.setattr(LocalEngine, "load", held)
    coordinator = Coordinator(work=[offered(stage)])
    digest = bytes.fromhex(PLAN.digest)
    try:
        async with stage.serving(coordinator), stage.daemon():
            await until(lambda: coordinator.requests and list(coordinator.requests[-1].loading) == [digest])
            before = coordinator.requests[-1]
            assert [one.plan_digest for one in before.agreed] == [digest]
            go.set()
            await until(lambda: not coordinator.requests[-1].loading)
            after = pb.NextWorkRequest.FromString(coordinator.requests[-1].SerializeToString())
            after.loading.append(digest)
            assert after == before
            assert coordinator.hellos == 1, "on the same connection, so before its long poll ended"
    finally:
        go.set()


def test_a_load_ends_once_its_study_is_withdrawn(
    stage: Stage, rig: tuple[SiteStore, SiteWorker], hand: ByHand
) -> None:
    _, worker = rig
    engine, taken = worker._engine, list[int]()
    assert isinstance(engine, LocalEngine)

    def read(_: object, sink: Callable[[Any], None]) -> None:
        for block in range(9):
            sink(np.zeros((2, PLAN.study.dimension), dtype=np.int16))
            taken.append(block)
            with stage.process() as (other, _):
                other.withdraw(PLAN.digest, PERSON)

    engine._read = read  # type: ignore[assignment]
    worker.work(offered(stage))
    worker.load_ahead(worker.consent().accepted)
    hand.do()
    assert taken == [0]


def test_the_end_of_a_daemon_refuses_nothing(stage: Stage, rig: tuple[SiteStore, SiteWorker]) -> None:
    """Its readers are ended, which is no fault of the records."""
    store, worker = rig
    engine = worker._engine
    assert isinstance(engine, LocalEngine)

    def ended(*_: object) -> None:
        worker.ahead.close()
        raise BadRecords("its reader was ended")

    engine._read = ended  # type: ignore[assignment]
    worker.work(offered(stage))
    for _ in range(2):
        assert worker.work(work(FIRST)) is None
    assert (store.egress.rows(), store.ledger.ledger.spent.micro_rho) == ([], 0)
    with stage.process() as (_, other):
        assert isinstance(other.work(work(FIRST)), Contribution)


async def test_a_signal_ends_the_load_for_which_a_thread_waits(monkeypatch: Patch) -> None:
    """Before the event loop ends, which waits for the thread."""
    killed = threading.Event()
    monkeypatch.setattr(loading, "SERVER", mock.Mock(close=killed.set))

    def load(_: Plan) -> Any:
        assert killed.wait(10)
        raise BadRecords("its reader was ended")

    ahead = LoadsAhead(load)
    ahead.begin(PLAN)

    async def run() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.to_thread(ahead.take, PLAN.digest)

    await service._until_stopped(mock.Mock(run=run), mock.Mock(ahead=ahead), None)
    assert killed.is_set()


def test_records_loaded_ahead_count_as_loaded(
    stage: Stage, rig: tuple[SiteStore, SiteWorker], hand: ByHand
) -> None:
    _, worker = rig
    plans = [a_plan(a_study(epsilon=0.2), submission=str(n)) for n in range(MAX_LOADED_STUDIES + 1)]
    for plan in plans[:2]:
        reply_to(stage, worker, rehearse(plan)[0], plan)
    for plan in plans[2:-1]:
        worker.work(offered(stage, plan))
    worker.load_ahead(worker.consent().accepted)
    hand.do()
    reply_to(stage, worker, rehearse(plans[-1])[0], plans[-1])
    loaded = [*worker._answers._loaded_records, *worker.ahead.plans]
    assert sorted(loaded) == sorted(one.digest for one in plans[1:])
