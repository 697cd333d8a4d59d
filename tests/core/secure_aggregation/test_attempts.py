"""[P9] [P33] [P35] All attempts together cost no more than was promised, and each is paid; of a pass over
disjoint batches as often as its most tried batch was. (`tests/client/site/test_prices.py` says it of sites,
which may see only some attempts.)"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from eigenveil.accounting.zcdp import ATTO, MICRO
from eigenveil.errors import Code
from eigenveil.planning.choose import dearest, rehearse
from eigenveil.queries import Count, batch_of
from eigenveil.secure_aggregation.masking import Attempt, SignedAttempt
from eigenveil.simulation import MemoryJournal
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import MAX_ATTEMPTS, MAX_SITES, Trust
from tests.core.conversions import mu_for
from tests.support import a_plan, a_query, refused

BATCHES, ATTEMPTS = 3, 3
STATED = Attempt(plan="ab" * 32, round=0, query="cd" * 32, number=1, members={"a": "12" * 32, "b": "34" * 32})


@pytest.mark.parametrize(
    "message",
    [
        STATED.signed_json.replace(b":", b": "),
        STATED.signed_json + b" ",
        STATED.signed_json.replace(b'"number":1', b'"number":1,"number":1'),
        STATED.signed_json.replace(b'"number":1', b'"number":1,"more":1'),
        json.dumps(dict(reversed(json.loads(STATED.signed_json).items())), separators=(",", ":")).encode(),
    ],
)  # fmt: skip
def test_an_attempt_has_one_canonical_form(message: bytes) -> None:
    """[R29]"""
    assert Attempt.read(STATED.signed_json) == STATED
    with refused(Code.PROTOCOL):
        Attempt.read(message)


@pytest.mark.parametrize("change", [{"plan": "ef" * 32}, {"round": 1}, {"query": "ef" * 32}])
def test_an_attempt_matches_only_its_own_query_round_and_plan(change: dict[str, Any]) -> None:
    round_query = a_query(Count())
    mine = Attempt.at(round_query, 1, STATED.members)
    assert mine.is_of(round_query)
    assert not replace(mine, **change).is_of(round_query)


def test_attempts_are_numbered_from_one_to_the_most_that_a_study_may_have() -> None:
    for number in (1, MAX_ATTEMPTS):
        assert Attempt.read(replace(STATED, number=number).signed_json).number == number
    for number in (0, MAX_ATTEMPTS + 1):
        with refused(Code.PROTOCOL):
            replace(STATED, number=number)


def test_an_attempt_longer_than_the_most_sites_is_refused_unhashed() -> None:
    too_long = SignedAttempt(signed_json=b"[" * (200 * MAX_SITES + 1), signature=bytes(64))
    with refused(Code.PROTOCOL, "too long"):
        too_long.check(bytes(32))


def test_a_pass_is_charged_as_often_as_its_most_attempted_batch() -> None:
    plan = a_plan(
        trust=Trust.SECURE_AGGREGATION,
        spare_attempts=ATTEMPTS - 1,
        algorithm=Algorithm.PRIVATE_OJA,
        centring=False,
        batches=BATCHES,
    )
    round_query = [one for one in rehearse(plan) if batch_of(one.query) is not None]
    assert len(round_query) == BATCHES
    for tried in product(range(1, ATTEMPTS + 1), repeat=BATCHES):
        journal = MemoryJournal(plan)
        for one, times in zip(round_query, tried, strict=True):
            for number in range(1, times + 1):
                journal.attempt(one, number)
        assert journal.ledger.spent.micro_rho == max(tried) * round_query[0].priced.micro_rho


@pytest.mark.parametrize("spares", [0, 1, 7])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-9), (1.0, 1e-6), (20.0, 1e-12)])
def test_all_attempts_in_sum_satisfy_the_privacy_of_the_study(
    spares: int, epsilon: float, delta: float
) -> None:
    """And may spend nearly all of it. mu by another road than the product's."""
    plan = a_plan(trust=Trust.SECURE_AGGREGATION, spare_attempts=spares, epsilon=epsilon, delta=delta)
    own = (1 + spares) * 2**12 / ATTO
    assert plan.cost.atto_delta == (1 + spares) * 2**12
    allowed = mu_for(epsilon, delta - own) ** 2 / 2 * MICRO
    assert (1 - 1e-9) * allowed - 1 - spares <= plan.cost.micro_rho <= (1 + 1e-9) * allowed
    assert plan.cost.micro_rho == plan.micro_rho + spares * dearest(plan)
