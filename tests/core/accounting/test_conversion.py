"""A budget is stated for both neighbouring relations, add-remove and replace-one [P4]."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import pytest

from eigenveil.accounting import gaussian, zcdp
from eigenveil.accounting.budget import Conversion
from eigenveil.accounting.zcdp import ATTO, MICRO, Cost

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
    assert gaussian.satisfies_dp(chain, exact.replaced(micro_rho), DELTA)
    assert not gaussian.satisfies_dp(chain, exact.replaced(micro_rho) * (1 - 1e-8), DELTA)
    assert zcdp.delta_at(4 * micro_rho / MICRO, mixed.replaced(micro_rho)) <= DELTA


@pytest.mark.parametrize("exact", [True, False])
def test_spent_amounts_are_rounded_up_and_remaining_ones_down(exact: bool) -> None:
    result, whole = Conversion(delta=DELTA, exact=exact), 1_000_000
    for micro_rho in (1, 77, 12_345, 999_999):
        amounts = [result.epsilon(micro_rho), result.replaced(micro_rho)]
        for spent, left, amount in zip(
            numbers(result.spent(micro_rho)), numbers(result.left(micro_rho, whole)), amounts, strict=True
        ):
            assert left < amount <= spent
            assert spent - left <= 1.1e-3 * amount + 1e-9
        assert all(free < one for free, one in zip(numbers(result.free(micro_rho)), amounts, strict=True))


OWN = Cost(micro_rho=1_519_000, atto_delta=10**13)  # 1e-5


def test_the_probability_of_a_mixed_budget_holds_the_deltas_that_mechanisms_have_of_their_own() -> None:
    result = re.fullmatch(
        r"(\S+) \(add-remove; as replace-one: (\S+)\)",
        Conversion(delta=DELTA, exact=False).failure_probability(OWN),
    )
    assert result is not None
    added, replaced = (Fraction(one) for one in result.groups())
    own, stated = Fraction(OWN.atto_delta, ATTO), Fraction("1e-6")
    assert added == stated + own
    # The dearest that one mechanism can be: (epsilon_0, own) in a chain of two [P4].
    most = math.sqrt(2 * OWN.micro_rho / MICRO)
    chain = stated + own * Fraction(1 + math.exp(most))
    assert chain <= replaced <= chain * Fraction("1.001")


def test_where_all_noise_is_gaussian_or_no_delta_is_own_the_probability_is_delta() -> None:
    assert Conversion(delta=DELTA, exact=True).failure_probability(OWN) == "1e-06"
    assert Conversion(delta=DELTA, exact=False).failure_probability(Cost(micro_rho=1)) == "1e-06"
