"""[P9] [P33] However a coordinator numbers its attempts, and whichever of them a site is in, no batch of a
pass is asked about more often than was paid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, combinations, product

import pytest

from eigenveil.accounting.neighbours import Neighbours
from eigenveil.accounting.zcdp import ATTO, MICRO
from eigenveil.protocol.budget import attempt_cost
from eigenveil.queries import Gradient
from eigenveil.study.study import Trust
from tests.core.conversions import mu_for
from tests.core.recorder import a_batch, plan_of, query_of
from tests.core.specification import Setting
from tests.support import a_field, a_plan

PRICE, BATCHES, ATTEMPTS = 1000, 3, 3
PLAN = plan_of(Neighbours.ADD_REMOVE, 1)
QUESTION = Gradient(spec=a_field(4, 2), radius=2**20)
ASKED = [
    query_of(
        PLAN,
        replace(QUESTION, batch=a_batch("", BATCHES, index)),
        Setting(adds=True, sites=1, micro_rho=PRICE),
    )
    for index in range(BATCHES)
]
Numbers = tuple[int, ...]
WAYS: list[Numbers] = [*chain(*(combinations(range(1, ATTEMPTS + 1), n) for n in range(ATTEMPTS + 1)))]


def paid(answered: Sequence[Numbers], tried: Callable[[Numbers], int] = len) -> int:
    """Attempts that a site pays for, which `answered` these numbers of each batch."""
    total = 0
    for place, numbers in enumerate(answered):
        before = {earlier: tried(answered[earlier]) for earlier in range(place)}
        total += sum(attempt_cost(ASKED[place], number, before).micro_rho for number in numbers)
    return total // PRICE


def test_a_pass_is_paid_as_often_as_its_most_tried_batch() -> None:
    for answered in product(WAYS, repeat=BATCHES):
        most = max(map(len, answered))
        assert paid(answered) >= most
        if all(numbers == tuple(range(1, len(numbers) + 1)) for numbers in answered):
            assert paid(answered) == most


def test_counting_by_the_last_number_is_caught() -> None:
    """Planted: under number 3 once, and then three times, for one charge."""
    assert paid(((3,), (1, 2, 3), ()), lambda numbers: max(numbers, default=0)) == 1


def test_outside_of_a_pass_every_attempt_is_paid() -> None:
    alone = query_of(PLAN, QUESTION, Setting(adds=True, sites=1, micro_rho=PRICE))
    assert [attempt_cost(alone, number, {0: 3}).micro_rho for number in (1, 2)] == [PRICE, PRICE]


@pytest.mark.parametrize("attempts", [1, 2, 8])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-6), (20.0, 1e-12)])
def test_all_attempts_together_keep_the_promise_of_the_study(
    attempts: int, epsilon: float, delta: float
) -> None:
    """And spend nearly all of it. mu by another road than the product's."""
    plan = a_plan(trust=Trust.SECURE_AGGREGATION, attempts=attempts, epsilon=epsilon, delta=delta)
    own = attempts * 2**12 / ATTO
    assert plan.cost.atto_delta == attempts * 2**12
    allowed = mu_for(epsilon, delta - own) ** 2 / 2 * MICRO
    assert (1 - 1e-9) * allowed - attempts <= plan.cost.micro_rho <= (1 + 1e-9) * allowed
    assert plan.cost.micro_rho == attempts * plan.once.micro_rho
