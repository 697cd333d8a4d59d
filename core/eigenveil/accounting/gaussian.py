"""What a budget means where all noise is Gaussian: mu-Gaussian DP with mu^2 = 2 rho, hence (epsilon, delta).

delta = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2), which is exact. Every comparison is
decided by balls that hold the true value, never by a float [P5].
Source: Balle & Wang 2018, Theorem 8; Smith & Thakurta 2022 (squares of adaptively chosen mu add up).
"""

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

PRECISIONS = tuple(2**bits for bits in range(7, 15))  # in bits, until a ball leaves no doubt
TIGHT = 1e-9  # relative width at which a search for a float ends


def gives(mu_squared: Fraction, epsilon: float, delta: float) -> bool:
    """Whether mu-Gaussian DP is (epsilon, delta)-DP.

    Raises:
        InternalError: no precision decides. The two sides are never equal, so another thread lowered the
            precision, which all share, each time; an answer would be kept for the life of the process.
    """
    # 60 ms to import, and half of the commands never convert a budget.
    from flint import arb, ctx, fmpq

    for precision in PRECISIONS:
        with ctx.workprec(precision):
            mu = arb(fmpq(mu_squared.numerator, mu_squared.denominator)).sqrt()
            told, half = arb(epsilon) / mu, mu / 2
            root, most = arb(2).sqrt(), 2 * arb(delta)
            twice = ((told - half) / root).erfc() - arb(epsilon).exp() * ((told + half) / root).erfc()
            if twice <= most:
                return True
            if twice > most:
                return False
    raise InternalError(
        Code.BUG, f"(epsilon, delta) = ({epsilon}, {delta}) is not decided in {PRECISIONS[-1]} bits"
    )


@lru_cache(maxsize=256)
def micro_rho_for(epsilon: float, delta: float) -> int:
    """The largest budget in micro-rho = 10^6 mu^2 / 2 that still gives (epsilon, delta), rounded down.

    Raises:
        RequestError: the guarantee is so strict that not even one micro-rho is left.
    """
    return most_micro_rho(lambda n: gives(Fraction(2 * n, MICRO), epsilon, delta), epsilon, delta)


@lru_cache(maxsize=256)
def epsilon_at(micro_rho: int, delta: float) -> float:
    """The least epsilon (to a relative 1e-9, rounded up) at which this budget gives (epsilon, delta)."""
    check_delta(delta)
    mu_squared = Fraction(2 * micro_rho, MICRO)
    if micro_rho == 0 or gives(mu_squared, 0.0, delta):
        return 0.0
    return _least(lambda epsilon: gives(mu_squared, epsilon, delta), 1.0)


@lru_cache(maxsize=256)
def noise_for(epsilon: float, delta: float) -> float:
    """How many times its L2 sensitivity Gaussian noise must be to be (epsilon, delta)-DP: 1 / mu.

    Rounded up by at most 1e-9. Not in micro-rho, of which a small share of a small epsilon may leave none.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    return root_of(Fraction(_least(lambda square: gives(1 / Fraction(square), epsilon, delta), 1.0)))


def micro_mu(micro_rho: int) -> int:
    """mu = sqrt(2 rho) in 1e-6, rounded up."""
    return -(-pico_epsilon(micro_rho) // (PICO // MICRO))


def _least(holds: Callable[[float], bool], high: float) -> float:
    """A float at which `holds`, which turns true once, by a relative 1e-9 above one at which it does not."""
    while not holds(high):
        high *= 2
    low = high / 2
    while holds(low):
        low, high = low / 2, low
    while high - low > TIGHT * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
