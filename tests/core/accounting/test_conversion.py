"""A budget is told for both relations: of one record added or removed, and of one replaced [P4]."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from eigenveil.accounting import gaussian, zcdp
from eigenveil.accounting.budget import Conversion, NoiseRule, budget_for
from eigenveil.accounting.zcdp import MICRO

DELTA = 1e-6


def numbers(text: str) -> list[float]:
    """Both epsilons of a text, the one of a record added or removed first."""
    found = re.fullmatch(r"epsilon (\S+) \(add-remove; as replace-one: (\S+)\)", text)
    assert found is not None
    return [float(one) for one in found.groups()]


@pytest.mark.parametrize("micro_rho", [1, 28_013, 1_707_796])
def test_a_record_replaced_is_two_of_mu_exactly_and_four_of_rho(micro_rho: int) -> None:
    exact, mixed = Conversion(delta=DELTA, exact=True), Conversion(delta=DELTA, exact=False)
    chain = Fraction(2 * 4 * micro_rho, MICRO)  # (2 mu)^2
    assert gaussian.gives(chain, exact.replaced(micro_rho), DELTA)
    assert not gaussian.gives(chain, exact.replaced(micro_rho) * (1 - 1e-8), DELTA)
    assert zcdp.delta_at(4 * micro_rho / MICRO, mixed.replaced(micro_rho)) <= DELTA


def test_ten_under_add_remove_is_told_as_what_it_is_of_a_record_replaced() -> None:
    budget = budget_for(10.0, DELTA, 0.0, NoiseRule.GAUSSIAN)
    assert budget.gaussian is not None
    told = Conversion(delta=DELTA, exact=True)
    assert numbers(told.spent(budget.gaussian.micro_rho)) == [10, 23.77]
    assert numbers(told.left(budget.gaussian.micro_rho, budget.gaussian.micro_rho)) == [10, 23.77]


@pytest.mark.parametrize("exact", [True, False])
def test_what_is_spent_is_never_told_as_less_and_what_is_left_never_as_more(exact: bool) -> None:
    told, whole = Conversion(delta=DELTA, exact=exact), 1_000_000
    for micro_rho in (1, 77, 12_345, 999_999):
        amounts = [told.epsilon(micro_rho), told.replaced(micro_rho)]
        for spent, left, amount in zip(
            numbers(told.spent(micro_rho)), numbers(told.left(micro_rho, whole)), amounts, strict=True
        ):
            assert left < amount <= spent
            assert spent - left <= 1.1e-3 * amount + 1e-9


def test_of_nothing_nothing_is_told() -> None:
    assert numbers(Conversion(delta=DELTA, exact=False).spent(0)) == [0, 0]
