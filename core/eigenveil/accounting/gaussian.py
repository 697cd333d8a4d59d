"""Conversion of budgets with Gaussian noise only: mu-Gaussian DP with mu^2 = 2 rho to (epsilon, delta).

delta = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2), which is exact. Comparisons use ball
arithmetic, which encloses the true value, never floats [P5].
Source: Balle & Wang 2018, Theorem 8; Smith & Thakurta 2022 (squares of adaptively chosen mu add up)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from eigenveil.accounting.zcdp import (
    MICRO,
    PICO,
    check_delta,
    check_epsilon,
    most_micro_rho,
    pico_epsilon,
    root_of,
)
from eigenveil.errors import Code, InternalError

PRECISIONS = tuple(2**bits for bits in range(7, 15))  # in bits; the first that decides a comparison is used
TIGHT = 1e-9  # relative width at which a search for a float ends


def satisfies_dp(mu_squared: Fraction, epsilon: float, delta: float) -> bool:
    """Return True if mu-Gaussian DP is (epsilon, delta)-DP. Raises InternalError: no precision decides. The
    two sides are never equal, so another thread must have lowered the shared precision; a wrong answer would
    be cached for the life of the process."""
    # The import takes 60 ms, and half of the commands never convert a budget.
    from flint import arb, ctx, fmpq

    for precision in PRECISIONS:
        with ctx.workprec(precision):
            mu = arb(fmpq(mu_squared.numerator, mu_squared.denominator)).sqrt()
            ratio, half_mu = arb(epsilon) / mu, mu / 2
            root, most = arb(2).sqrt(), 2 * arb(delta)
            twice_delta = ((ratio - half_mu) / root).erfc() - arb(epsilon).exp() * (
                (ratio + half_mu) / root
            ).erfc()
            if twice_delta <= most:
                return True
            if twice_delta > most:
                return False
    raise InternalError(
        Code.BUG, f"(epsilon, delta) = ({epsilon}, {delta}) was not decided with {PRECISIONS[-1]} bits"
    )


@lru_cache(maxsize=256)
def micro_rho_for(epsilon: float, delta: float) -> int:
    """Return the largest budget in micro-rho = 10^6 mu^2 / 2 that is (epsilon, delta)-DP, rounded down.
    Raises RequestError: the budget is below one micro-rho."""
    return most_micro_rho(lambda n: satisfies_dp(Fraction(2 * n, MICRO), epsilon, delta), epsilon, delta)


@lru_cache(maxsize=256)
def epsilon_at(micro_rho: int, delta: float) -> float:
    """Return the least epsilon of the budget at `delta` (to a relative 1e-9, rounded up)."""
    check_delta(delta)
    mu_squared = Fraction(2 * micro_rho, MICRO)
    if micro_rho == 0 or satisfies_dp(mu_squared, 0.0, delta):
        return 0.0
    return _least(lambda epsilon: satisfies_dp(mu_squared, epsilon, delta), 1.0)


@lru_cache(maxsize=256)
def noise_multiplier(epsilon: float, delta: float) -> float:
    """Return the noise multiplier of Gaussian noise for (epsilon, delta)-DP: sigma / L2 sensitivity = 1 / mu.
    Rounded up by at most 1e-9. Micro-rho would be too coarse for a small share of a small epsilon."""
    check_epsilon(epsilon)
    check_delta(delta)
    return root_of(Fraction(_least(lambda square: satisfies_dp(1 / Fraction(square), epsilon, delta), 1.0)))


def micro_mu(micro_rho: int) -> int:
    """Return mu = sqrt(2 rho) in 1e-6, rounded up."""
    return -(-pico_epsilon(micro_rho) // (PICO // MICRO))


def _least(holds: Callable[[float], bool], high: float) -> float:
    """Return the least float at which the monotone `holds` is True, up to a relative 1e-9."""
    while not holds(high):
        high *= 2
    low = high / 2
    while holds(low):
        low, high = low / 2, low
    while high - low > TIGHT * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
