"""[P9] [P33] A pass over disjoint batches is paid as often as any of its batches was tried here."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from eigenveil.accounting.zcdp import Cost
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import batch_of
from eigenveil.study.algorithm import Algorithm
from eigenveil_client.site.daemon.answers import MaskedAnswer
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_common.storage.ledger_store import LedgerStore, PositionedWrite
from tests.client.site.masking import ATTEMPTS, Peers, assignment, masked_plan
from tests.client.site.support import a_stage, write_records

PLAN = masked_plan(algorithm=Algorithm.PRIVATE_OJA, centring=False, batches=4)
ASKED = rehearse(PLAN)
BATCHES = [asked for asked in ASKED if batch_of(asked.query) is not None]
BEFORE = [asked for asked in ASKED if asked.round < BATCHES[0].round]
PRICE = BATCHES[0].micro_rho


@pytest.fixture
def peers(tmp_path: Path) -> Peers:
    """A site that has answered all that comes before its first pass."""
    stage = a_stage(tmp_path, algorithms=("private-oja",), minimum_records=80)
    write_records(stage.records, rows=80)
    peers = Peers(stage)
    assert answers(peers, [(asked, 1) for asked in BEFORE]) == sum(asked.micro_rho for asked in BEFORE)
    return peers


def answers(peers: Peers, tried: list[tuple[RoundQuery, int]]) -> int:
    """What one life of the process is charged for these attempts, all of which it answers."""
    store = peers.stage.store()
    worker, before = peers.stage.worker(store), store.ledger.ledger.spent.micro_rho
    for asked, number in tried:
        reply = worker.work(assignment(asked, peers.attempt(asked, number), peers.stage.signed(PLAN)))
        assert isinstance(reply, MaskedAnswer), (asked.round, number)
    spent = store.ledger.ledger.spent.micro_rho - before
    store.close()
    return spent


@pytest.mark.parametrize(
    ("numbers", "paid"),
    [
        (((1,), (1,), (1,), (1,)), 1),
        (((1, 2), (1,), (1, 2), (1,)), 2),
        (((1,), (1, 2), (1, 2, 3), (1,)), 3),
        (((3,), (1,), (1,), (1,)), 1),
        (((3,), (1, 2, 3), (3,), (2, 3)), 3),
        (((2,), (1, 3), (), (1, 2)), 2),
    ],
)
def test_a_pass_costs_what_its_most_tried_batch_does(
    peers: Peers, numbers: tuple[tuple[int, ...], ...], paid: int
) -> None:
    """Found here: had number 3 alone paid for all up to 3, a record of a later batch would have been answered
    about three times for one charge."""
    tried = [(asked, number) for asked, several in zip(BATCHES, numbers, strict=False) for number in several]
    cut = len(tried) // 2
    assert answers(peers, tried[:cut]) + answers(peers, tried[cut:]) == paid * PRICE


def test_a_batch_that_is_tried_again_costs_what_the_pass_does_however_cheap_it_is(peers: Peers) -> None:
    """Else a dearer batch could be tried as often later on, at no further charge."""
    assert answers(peers, [(BATCHES[0], 1), (BATCHES[1], 1)]) == PRICE
    store = peers.stage.store()
    assert store.rounds.cost(PLAN, replace(BATCHES[1], micro_rho=1)) == BATCHES[0].answer_cost
    store.close()


def test_a_price_that_another_process_has_made_too_low_is_not_charged(peers: Peers) -> None:
    """Found here: both would have been the first attempt at their batch, which the pass had paid for."""
    assert answers(peers, [(BATCHES[0], 1)]) == PRICE
    store, real = peers.stage.store(), LedgerStore.attempt

    def late(self: LedgerStore, asked: RoundQuery, cost: Cost, also: PositionedWrite) -> None:
        with mock.patch.object(LedgerStore, "attempt", real):
            assert answers(peers, [(BATCHES[1], 1)]) == 0
        real(self, asked, cost, also)

    with mock.patch.object(LedgerStore, "attempt", late):
        attempt = peers.attempt(BATCHES[1], 2)
        reply = peers.stage.worker(store).work(assignment(BATCHES[1], attempt, peers.stage.signed(PLAN)))
    assert isinstance(reply, Refusal)
    assert list(store.attempts.answered(PLAN.digest, BATCHES[1].round)) == [1]
    store.close()


def test_whatever_is_tried_no_record_is_answered_about_more_often_than_was_paid(peers: Peers) -> None:
    draw = np.random.default_rng(1)
    tried = [(asked, number) for asked in BATCHES for number in range(1, ATTEMPTS + 1) if draw.random() < 0.6]
    by_pass: dict[int, Counter[int]] = {}
    for asked, _ in tried:
        batch = batch_of(asked.query)
        assert batch is not None
        by_pass.setdefault(batch.first, Counter())[batch.index] += 1
    prices = {asked.round: asked.micro_rho for asked in BATCHES}
    assert answers(peers, tried) == sum(
        max(counts.values()) * prices[first] for first, counts in by_pass.items()
    )
