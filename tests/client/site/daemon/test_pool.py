"""[P35] A site answers repeated attempts while the pool of the study pays for them, whatever it is asked."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest import mock

import numpy as np
import pytest

from eigenveil.errors import RequestError
from eigenveil.planning.choose import dearest, rehearse
from eigenveil.queries import Gram
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import MAX_ATTEMPTS
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.state.outgoing import AnsweredRounds
from eigenveil_common.storage.ledger_store import LedgerStore
from tests.client.site.masking import (
    EVERY,
    PLAN,
    QUESTIONS,
    SPARES,
    Peers,
    answered,
    left,
    masked_plan,
    process,
    reply_to,
    row_count,
)
from tests.client.site.stated import work
from tests.client.site.support import killed_at

COSTS = [one.priced.micro_rho for one in QUESTIONS]
LAST = len(QUESTIONS) - 1
SETS = (EVERY, EVERY[:3], (*EVERY[:2], EVERY[3]))


def test_a_pool_is_for_the_dearest_query_as_often_as_the_plan_states_and_no_more(
    peers: Peers, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(QUESTIONS[LAST].query, Gram)
    assert COSTS[LAST] == dearest(PLAN) == PLAN.spare_micro_rho // SPARES
    with process(peers.stage) as (store, worker):
        for number in range(1, SPARES + 2):
            answered(worker, QUESTIONS[LAST], peers.attempt(QUESTIONS[LAST], number))
        assert store.ledger.ledger.repeated[PLAN.digest].micro_rho == PLAN.spare_micro_rho
        spent = left(store)
        refused = reply_to(worker, QUESTIONS[LAST], peers.attempt(QUESTIONS[LAST], SPARES + 2, EVERY[:3]))
        assert isinstance(refused, Refusal)
        assert left(store)[0] == spent[0] == (SPARES + 1) * COSTS[LAST]
        assert row_count(store, "refused_attempts") == 1, "evidence against the coordinator"
    assert "costs more than is left of what the study set aside" in caplog.text


def test_cheaper_queries_are_repeated_more_often(peers: Peers) -> None:
    with process(peers.stage) as (store, worker):
        for number in range(1, MAX_ATTEMPTS + 1):
            answered(worker, QUESTIONS[0], peers.attempt(QUESTIONS[0], number))
        assert left(store)[0] == MAX_ATTEMPTS * COSTS[0]


def test_a_first_answer_is_not_paid_by_the_pool_whatever_its_number(peers: Peers) -> None:
    with process(peers.stage) as (store, worker):
        answered(worker, QUESTIONS[0], peers.attempt(QUESTIONS[0], MAX_ATTEMPTS))
        assert PLAN.digest not in store.ledger.ledger.repeated


def test_the_transaction_of_an_answer_checks_the_pool_again(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process of the site may have answered since the first look. Each query is so cheap that the
    reservation has room left: only the pool refuses."""
    plan = masked_plan("cheap", spare_attempts=1, algorithm=Algorithm.DP_PCA)
    question = rehearse(plan)[-1]
    cost = question.priced.micro_rho
    times = 1 + plan.spare_micro_rho // cost
    assert times < MAX_ATTEMPTS
    real, refusals = LedgerStore.attempt, list[str]()

    def noted(self: LedgerStore, *args: Any) -> None:
        try:
            real(self, *args)
        except RequestError as problem:
            refusals.append(str(problem))
            raise

    monkeypatch.setattr(LedgerStore, "attempt", noted)
    with process(peers.stage) as (store, worker):
        assert worker.work(work(None, peers.stage.signed(plan))) is None
        for number in range(1, times + 1):
            answered(worker, question, peers.attempt(question, number))
        assert store.ledger.ledger.reserved[plan.digest].micro_rho > 5 * cost
        with mock.patch.object(AnsweredRounds, "pool_covers", return_value=True):
            reply = reply_to(worker, question, peers.attempt(question, times + 1))
        assert isinstance(reply, Refusal)
        assert len(store.attempts.answered(plan.digest, question.round)) == times
        assert left(store)[0] == times * cost
    (why,) = refusals
    assert "set aside for repeated attempts does not pay for another" in why


@pytest.mark.parametrize(("spares", "kept"), [(1, [True, False]), (2, [True, True, False])])
def test_an_exact_answer_is_kept_while_another_attempt_can_be_paid(
    peers: Peers, spares: int, kept: list[bool]
) -> None:
    plan = masked_plan("kept", spare_attempts=spares)
    question, found = rehearse(plan)[LAST], []
    with process(peers.stage) as (_, worker):
        assert worker.work(work(None, peers.stage.signed(plan))) is None
        for number in range(1, spares + 2):
            answered(worker, question, peers.attempt(question, number))
            found.append(plan.digest in worker._masked._exact_answers)
    assert found == kept


def test_without_spare_attempts_no_second_attempt_is_answered(peers: Peers) -> None:
    """Not even as the first answer to a round, which no pool has to pay for."""
    plan = masked_plan("none", spare_attempts=0)
    question = rehearse(plan)[0]
    with process(peers.stage) as (_, worker):
        assert worker.work(work(None, peers.stage.signed(plan))) is None
        assert isinstance(reply_to(worker, question, peers.attempt(question, 2)), Refusal)
        answered(worker, question, peers.attempt(question, 1))


def test_a_charge_of_a_repeated_attempt_survives_a_crash(peers: Peers) -> None:
    with process(peers.stage) as (_, worker):
        answered(worker, QUESTIONS[LAST], peers.attempt(QUESTIONS[LAST], 1))
        with killed_at("attempt-stored"):
            reply_to(worker, QUESTIONS[LAST], peers.attempt(QUESTIONS[LAST], 2))
    with process(peers.stage) as (store, worker):
        assert store.ledger.ledger.repeated[PLAN.digest].micro_rho == COSTS[LAST]
        answered(worker, QUESTIONS[LAST], peers.attempt(QUESTIONS[LAST], 3))
        reply = reply_to(worker, QUESTIONS[LAST], peers.attempt(QUESTIONS[LAST], 4))
        assert isinstance(reply, Refusal)


@pytest.mark.parametrize("seed", range(6))
def test_no_sequence_of_requests_gets_more_than_the_pool(
    peers: Peers, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The last rounds, any number and set, and the process is started again in between. Each sequence asks
    for more than the pool."""
    plan = masked_plan("one", spare_attempts=1)
    questions, pool = rehearse(plan), plan.spare_micro_rho
    costs = [one.priced.micro_rho for one in questions]
    draw, tried, round = np.random.default_rng(seed), Counter[int](), LAST - 1
    for _ in range(3):
        with process(peers.stage) as (store, worker):
            assert worker.work(work(None, peers.stage.signed(plan))) is None
            for _ in range(8):
                latest = max(store.attempts.answered(plan.digest, round), default=0)
                number = int(draw.integers(1, min(latest + 2, MAX_ATTEMPTS) + 1))
                sites = SETS[draw.integers(len(SETS))]
                reply_to(worker, questions[round], peers.attempt(questions[round], number, sites))
                tried[round] = len(store.attempts.answered(plan.digest, round))
                repeated = sum(costs[round] * max(0, times - 1) for round, times in tried.items())
                first = sum(costs[round] for round, times in tried.items() if times)
                assert repeated <= pool
                assert left(store)[0] == first + repeated <= plan.cost.micro_rho
                round = min(round + int(draw.integers(0, 4) == 0), LAST)
    assert "costs more than is left of what the study set aside" in caplog.text
