"""[P35] A site answers repeated attempts while the pool of the study pays for them, whatever it is asked."""

from __future__ import annotations

from collections import Counter
from unittest import mock

import numpy as np
import pytest

from eigenveil.planning.choose import dearest, rehearse
from eigenveil.queries import Gram
from eigenveil.study.study import MAX_ATTEMPTS
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.state.outgoing import AnsweredRounds
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


def test_the_transaction_of_an_answer_checks_the_pool_again(peers: Peers) -> None:
    """Another process of the site may have answered since the first look."""
    with process(peers.stage) as (store, worker):
        for number in range(1, SPARES + 2):
            answered(worker, QUESTIONS[LAST], peers.attempt(QUESTIONS[LAST], number))
        with mock.patch.object(AnsweredRounds, "pool_covers", return_value=True):
            reply = reply_to(worker, QUESTIONS[LAST], peers.attempt(QUESTIONS[LAST], SPARES + 2))
        assert isinstance(reply, Refusal)
        assert len(store.attempts.answered(PLAN.digest, LAST)) == SPARES + 1
        assert left(store)[0] == (SPARES + 1) * COSTS[LAST]


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
def test_no_sequence_of_requests_gets_more_than_the_pool(peers: Peers, seed: int) -> None:
    """Rounds step on at random, numbers and sets are any, and the process is started again in between."""
    draw, tried, round = np.random.default_rng(seed), Counter[int](), 0
    for _ in range(3):
        with process(peers.stage) as (store, worker):
            for _ in range(15):
                round = min(round + int(draw.integers(0, 3)) * int(draw.integers(0, 2)), LAST)
                number, sites = int(draw.integers(1, MAX_ATTEMPTS + 1)), SETS[draw.integers(len(SETS))]
                reply_to(worker, QUESTIONS[round], peers.attempt(QUESTIONS[round], number, sites))
                tried[round] = len(store.attempts.answered(PLAN.digest, round))
                repeated = sum(COSTS[round] * max(0, times - 1) for round, times in tried.items())
                first = sum(COSTS[round] for round, times in tried.items() if times)
                assert repeated <= PLAN.spare_micro_rho
                assert left(store)[0] == first + repeated <= PLAN.cost.micro_rho
