"""[P5] Budgets of Gaussian noise: exact, rounded to the safe side, equal to three other computations."""

from __future__ import annotations

from fractions import Fraction

import pytest
from flint import arb, ctx, fmpq
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.accounting import gaussian
from eigenveil.accounting.gaussian import epsilon_at, micro_mu, micro_rho_for, noise_multiplier, satisfies_dp
from eigenveil.accounting.zcdp import MAX_EPSILON, MICRO
from eigenveil.errors import Code, InternalError
from tests.core.conversions import gaussian_epsilon, mu_for
from tests.support import refused

deltas = st.floats(-300, -0.5).map(lambda x: 10.0**x)
epsilons = st.floats(-3, 6).map(lambda x: 10.0**x)
SIZES = [1, 300, 28_014, 10**6, 10**8]  # micro-rho


def lost(micro_rho: int, epsilon: float) -> arb:
    """delta by its formula, in balls of 2,000 bits."""
    with ctx.workprec(2000):
        mu, e = (arb(fmpq(2 * micro_rho, 10**6))).sqrt(), arb(epsilon)
        cdf = [(-x / arb(2).sqrt()).erfc() / 2 for x in (mu / 2 - e / mu, -mu / 2 - e / mu)]
        return cdf[0] - e.exp() * cdf[1]


@given(epsilon=epsilons, delta=deltas)
def test_the_budget_is_the_largest_whole_number_within_delta(epsilon: float, delta: float) -> None:
    if lost(1, epsilon) > arb(delta):
        with refused(Code.BAD_STUDY, "raise epsilon"):
            micro_rho_for(epsilon, delta)
        return
    budget = micro_rho_for(epsilon, delta)
    assert lost(budget, epsilon) <= arb(delta) < lost(budget + 1, epsilon)
    assert budget < 2**53


@given(micro_rho=st.integers(1, 10**12), delta=deltas)
def test_epsilon_is_the_least_that_holds(micro_rho: int, delta: float) -> None:
    epsilon = epsilon_at(micro_rho, delta)
    assert lost(micro_rho, epsilon) <= arb(delta)
    assert epsilon == 0 or lost(micro_rho, epsilon * (1 - 2e-9)) > arb(delta)


@pytest.mark.parametrize(
    ("micro_rho", "delta"), [(300, 1e-6), (28_014, 1e-12), (28_014, 1e-2), (10**6, 1e-6), (10**8, 1e-2)]
)
def test_epsilon_equals_that_of_dp_accounting(micro_rho: int, delta: float) -> None:
    """As one event, as a hundred of a hundredth of it, and by an integral of the privacy loss."""
    from dp_accounting import dp_event  # takes seconds: collecting tests need not wait
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.pld.pld_privacy_accountant import PLDAccountant

    sigma = (2 * micro_rho / MICRO) ** -0.5
    ours = epsilon_at(micro_rho, delta)
    step = max(ours * 1e-4, 1e-6)
    once = pld.from_gaussian_mechanism(sigma, value_discretization_interval=step)
    assert ours == pytest.approx(once.get_epsilon_for_delta(delta), rel=1e-3, abs=2 * step)
    many = PLDAccountant(value_discretization_interval=step)
    many.compose(dp_event.GaussianDpEvent(10 * sigma), 100)
    assert ours == pytest.approx(many.get_epsilon(delta), rel=0.02, abs=100 * step)
    assert ours == pytest.approx(gaussian_epsilon(1 / sigma, delta), rel=1e-6)


@pytest.mark.parametrize("epsilon", [1e-9, 0.01, 1.0, 40.0, MAX_EPSILON])
def test_the_noise_of_an_epsilon_and_a_delta_is_rounded_up_and_barely(epsilon: float) -> None:
    for delta in (1e-15, 1e-6, 0.1):
        factor = Fraction(noise_multiplier(epsilon, delta))
        assert satisfies_dp(1 / factor**2, epsilon, delta)
        assert not satisfies_dp(1 / (factor * (1 - Fraction(1, 10**8))) ** 2, epsilon, delta)
        if 1e-3 < epsilon < 100:
            assert mu_for(epsilon, delta) * float(factor) == pytest.approx(1, rel=1e-6)


@given(st.integers(1, 10**15))
def test_a_stated_mu_is_rounded_up_and_by_less_than_a_step(micro_rho: int) -> None:
    stated, exact_square = micro_mu(micro_rho), Fraction(2 * micro_rho, MICRO) * MICRO**2
    assert (stated - 1) ** 2 < exact_square <= stated**2


def test_an_undecided_precision_is_an_error_and_is_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if another thread had lowered it every time: the next time it is found all the same."""
    micro_rho_for.cache_clear()
    with monkeypatch.context() as lowered:
        lowered.setattr(gaussian, "PRECISIONS", (2,))
        with pytest.raises(InternalError, match="not decided"):
            micro_rho_for(3.0, 1e-7)
    assert lost(micro_rho_for(3.0, 1e-7) + 1, 3.0) > arb(1e-7)
