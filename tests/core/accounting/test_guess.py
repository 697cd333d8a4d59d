"""The success rate of an attack on one person, compared with mechanisms whose best attack is known."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from eigenveil.accounting.budget import attack_success, attack_success_gaussian, attack_success_zcdp
from eigenveil.accounting.gaussian import satisfies_dp

MUS = [0.01, 0.3, 1.0, 2.5, 6.0]
EPSILONS = [0.01, 0.5, 1.0, 3.0]
CLOSE = 2e-6  # what is returned is in whole millionths


@pytest.mark.parametrize("mu", MUS)
def test_the_success_rate_is_the_hockey_stick_at_epsilon_zero_and_no_more_under_gaussian_than_zcdp(
    mu: float,
) -> None:
    square, result = Fraction(mu) ** 2, attack_success_gaussian(Fraction(mu) ** 2)
    assert result == 1 or satisfies_dp(square, 0.0, float(2 * result - 1))
    assert not satisfies_dp(square, 0.0, float(2 * result - 1) - 2 * CLOSE)
    assert attack_success_zcdp(square / 2) >= result


@pytest.mark.parametrize("delta", [0.0, 0.1])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_randomised_response_with_failure_probability_delta_reaches_the_bound(
    epsilon: float, delta: float
) -> None:
    truth = delta + (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    assert truth <= attack_success(epsilon, delta) <= truth + CLOSE
    assert attack_success_zcdp(Fraction(epsilon) ** 2 / 2, Fraction(delta).limit_denominator()) >= truth
