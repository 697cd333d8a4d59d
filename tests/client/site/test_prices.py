"""[P4] [P8] [P9] What a site charges itself, whatever the coordinator does: passes, and added epsilons."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from eigenveil.accounting.budget import NoiseRule
from eigenveil.accounting.zcdp import Cost
from eigenveil.aggregation import Contribution
from eigenveil.errors import RequestError
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseDistribution, RoundQuery
from eigenveil.queries import Batch, Gradient, batch_of
from eigenveil.queries.gradients import pass_key
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.composition import micro_rho_of
from eigenveil.study.study import Federation
from eigenveil_client.site.daemon.answers import MaskedAnswer
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.daemon.worker import SiteWorker
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.storage.ledger_store import LedgerStore, PositionedWrite
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.masking import Peers, assignment, masked_plan
from tests.client.site.support import SITE, Stage, a_plan, a_stage, a_study, work, write_records
from tests.support import changed_query


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = a_stage(
        tmp_path, algorithms=("gauss-cov", "private-oja"), noise=NoiseRule.ANY, minimum_records=80
    )
    write_records(stage.records, rows=80)
    return stage


def reply_to(stage: Stage, worker: SiteWorker, step: RoundQuery, plan: Plan) -> object:
    return worker.work(work(step, stage.signed(plan)))


def spent(store: SiteStore) -> int:
    return store.ledger.ledger.spent.micro_rho


def test_site_that_missed_the_first_batch_pays_with_the_next(stage: Stage, store: SiteStore) -> None:
    federation = Federation(sites=(SITE, "b"), quorum=1)
    plan = a_plan(a_study(algorithm=Algorithm.PRIVATE_OJA, batches=4, federation=federation))
    worker = stage.worker(store)
    first = next(step.round for step in rehearse(plan) if batch_of(step.query) is not None)
    before, parts = rehearse(plan)[:first], rehearse(plan)[first : first + 4]
    for step in (*before, *parts[1:]):
        assert isinstance(reply_to(stage, worker, step, plan), Contribution)
    assert spent(store) == sum(step.priced.micro_rho for step in before) + parts[1].priced.micro_rho
    assert isinstance(reply_to(stage, worker, parts[-1], plan), Contribution)  # again, as after a lost reply
    assert spent(store) == sum(step.priced.micro_rho for step in before) + parts[1].priced.micro_rho


def pure_plan() -> Plan:
    return a_plan(a_study(algorithm=Algorithm.GAUSS_COV, delta=0.0))


def test_epsilons_add_up_at_the_site_too(stage: Stage, store: SiteStore) -> None:
    """Found in review: rho alone would let thousands of questions through at a hundred times the epsilon."""
    plan = pure_plan()
    stage.worker(store).work(work(None, stage.signed(plan)))
    half = micro_rho_of(0.5 * plan.study.epsilon)
    first, second, third = (
        changed_query(rehearse(plan)[0], round=round, micro_rho=half) for round in range(3)
    )
    for query in (first, second):
        store.outgoing.answer(plan, query, b"", ())
    with pytest.raises(RequestError, match="exceed the study's epsilon"):
        store.outgoing.answer(plan, third, b"", ())
    store.outgoing.answer(plan, second, b"", ())  # what is paid for may leave once more
    assert spent(store) == 2 * half < 3 * half < plan.micro_rho


def test_a_study_in_mu_gets_gaussian_noise_or_no_answer(stage: Stage, store: SiteStore) -> None:
    """The site insists on it by itself: a guarantee in mu holds for no other noise of the same price."""
    plan = a_plan()
    stage.worker(store).work(work(None, stage.signed(plan)))
    step = rehearse(plan)[0]
    for other in (
        changed_query(step, distribution=NoiseDistribution.LAPLACE),
        changed_query(step, distribution=NoiseDistribution.STABILITY),
    ):
        with pytest.raises(RequestError, match="noise that is not Gaussian"):
            store.outgoing.answer(plan, other, b"", ())
    assert (spent(store), store.egress.rows()) == (0, [])
    store.outgoing.answer(plan, step, b"", ())


def test_a_pure_study_gets_pure_noise_or_no_answer(stage: Stage, store: SiteStore) -> None:
    plan, worker = pure_plan(), stage.worker(store)
    noisy = changed_query(rehearse(plan)[0], distribution=NoiseDistribution.GAUSSIAN)
    assert isinstance(reply_to(stage, worker, noisy, plan), Refusal)
    assert spent(store) == 0


PLAN = a_plan(a_study(algorithm=Algorithm.PRIVATE_OJA, centring=False, batches=4))
QUERIES = rehearse(PLAN)
BEGAN = next(query.round for query in QUERIES if batch_of(query.query) is not None)


def answered(stage: Stage, worker: SiteWorker, step: RoundQuery, plan: Plan = PLAN) -> bool:
    reply = worker.work(work(step, stage.signed(plan)))
    if isinstance(reply, Refusal):
        assert reply.reason in (pb.DECLINE_REASON_PROTOCOL, pb.DECLINE_REASON_BUDGET)
    return isinstance(reply, Contribution)


def test_a_pass_is_charged_once_and_goes_on_after_a_restart(stage: Stage) -> None:
    for life in (QUERIES[: BEGAN + 2], QUERIES[BEGAN + 2 : BEGAN + 4]):
        with stage.process() as (store, worker):
            assert all(answered(stage, worker, query) for query in life)
            spent = store.ledger.ledger.spent.micro_rho
    assert spent == sum(query.priced.micro_rho for query in QUERIES[: BEGAN + 1])


def test_expensive_query_is_no_payment_for_a_pass(stage: Stage, store: SiteStore) -> None:
    whole = next(q.query for q in QUERIES if isinstance(q.query, Gradient) and q.query.batch is not None)
    expensive = changed_query(QUERIES[BEGAN], query=replace(whole, batch=None))
    part = Batch(first_round=BEGAN, index=1, batches=4, key=pass_key(PLAN.digest, BEGAN, 4))
    free = changed_query(expensive, round=BEGAN + 1, query=replace(whole, batch=part))
    worker = stage.worker(store)
    assert all(answered(stage, worker, query) for query in QUERIES[:BEGAN])
    store.outgoing.answer(PLAN, expensive, b"", ())
    with pytest.raises(RequestError, match=r"reservation|costs more than"):
        store.outgoing.answer(PLAN, free, b"", ())


@pytest.mark.parametrize("more", [1, 1000])
def test_batch_that_costs_more_than_its_pass_is_refused(stage: Stage, more: int, store: SiteStore) -> None:
    first, second = QUERIES[BEGAN : BEGAN + 2]
    worker = stage.worker(store)
    assert all(answered(stage, worker, query) for query in (*QUERIES[:BEGAN], first))
    assert not answered(stage, worker, changed_query(second, micro_rho=first.priced.micro_rho + more))
    assert answered(stage, worker, second)


MASKED_PLAN = masked_plan(algorithm=Algorithm.PRIVATE_OJA, centring=False, batches=4)
ROUNDS = rehearse(MASKED_PLAN)
BATCHES = [step for step in ROUNDS if batch_of(step.query) is not None]
BEFORE = [step for step in ROUNDS if step.round < BATCHES[0].round]
COST = BATCHES[0].priced.micro_rho


@pytest.fixture
def peers(tmp_path: Path) -> Peers:
    stage = a_stage(tmp_path, algorithms=("private-oja",), minimum_records=80)
    write_records(stage.records, rows=80)
    peers = Peers(stage)
    assert answers(peers, [(step, 1) for step in BEFORE]) == sum(step.priced.micro_rho for step in BEFORE)
    return peers


def answers(peers: Peers, tried: list[tuple[RoundQuery, int]]) -> int:
    store = peers.stage.store()
    worker, before = peers.stage.worker(store), store.ledger.ledger.spent.micro_rho
    for step, number in tried:
        reply = worker.work(assignment(step, peers.attempt(step, number), peers.stage.signed(MASKED_PLAN)))
        assert isinstance(reply, MaskedAnswer), (step.round, number)
    spent = store.ledger.ledger.spent.micro_rho - before
    store.close()
    return spent


@pytest.mark.parametrize(("numbers", "paid"), [
    (((1,), (1,), (1,), (1,)), 1),
    (((1, 2), (1,), (1, 2), (1,)), 2),
    (((1,), (1, 2), (1, 2, 3), (1,)), 3),
    (((3,), (1,), (1,), (1,)), 1),
    (((3,), (1, 2, 3), (3,), (2, 3)), 3),
    (((2,), (1, 3), (), (1, 2)), 2),
])  # fmt: skip
def test_pass_costs_as_its_most_tried_batch(
    peers: Peers, numbers: tuple[tuple[int, ...], ...], paid: int
) -> None:
    """Found here: had number 3 alone paid for all up to 3, a record of a later batch would have been answered
    about three times for one charge."""
    tried = [(step, number) for step, several in zip(BATCHES, numbers, strict=False) for number in several]
    cut = len(tried) // 2
    assert answers(peers, tried[:cut]) + answers(peers, tried[cut:]) == paid * COST


def test_repeated_batch_costs_as_its_pass(peers: Peers) -> None:
    assert answers(peers, [(BATCHES[0], 1), (BATCHES[1], 1)]) == COST
    store = peers.stage.store()
    assert store.rounds.cost(MASKED_PLAN, changed_query(BATCHES[1], micro_rho=1)) == BATCHES[0].priced.cost
    store.close()


def test_cost_outdated_by_another_process_is_not_charged(peers: Peers) -> None:
    assert answers(peers, [(BATCHES[0], 1)]) == COST
    store, real = peers.stage.store(), LedgerStore.attempt

    def late(self: LedgerStore, step: RoundQuery, cost: Cost, pool: Cost, also: PositionedWrite) -> None:
        with mock.patch.object(LedgerStore, "attempt", real):
            assert answers(peers, [(BATCHES[1], 1)]) == 0
        real(self, step, cost, pool, also)

    with mock.patch.object(LedgerStore, "attempt", late):
        attempt = peers.attempt(BATCHES[1], 2)
        reply = peers.stage.worker(store).work(
            assignment(BATCHES[1], attempt, peers.stage.signed(MASKED_PLAN))
        )
    assert isinstance(reply, Refusal)
    assert list(store.attempts.answered(MASKED_PLAN.digest, BATCHES[1].round)) == [1]
    store.close()
