"""The budget's currency: integer micro-rho, and what it means as (epsilon, delta) by zero-concentrated DP.

That holds whatever the noise is; where all of it is Gaussian, `gaussian` promises more for the same integers.
Any order gives a valid conversion, so an imperfect minimum errs on the safe side [P5].
Source: Bun & Steinke 2016 (composition); Canonne, Kamath & Steinke 2020, Proposition 12 (conversion).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from eigenveil.accounting.digits import shown
from eigenveil.errors import Code, RequestError

MICRO = 10**6
ATTO = 10**18
PICO = 10**12
LOGARITHMS, HALVINGS = (-700.0, 700.0), 64  # of an order less 1: all that floats hold, and to their last bit
MAX_EPSILON = 1e6  # a plan of it still has fewer micro-rho than canonical JSON has exact integers


@dataclass(frozen=True, slots=True, kw_only=True, order=False)
class Cost:
    """A price: integer micro-rho (zCDP), and integer atto-delta for mechanisms with a delta of their own.

    Both columns add up.
    """

    micro_rho: int
    atto_delta: int = 0

    def __post_init__(self) -> None:
        if self.micro_rho < 0 or self.atto_delta < 0:
            raise RequestError(Code.BAD_ARGUMENT, "a cost cannot be negative")

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            micro_rho=self.micro_rho + other.micro_rho,
            atto_delta=self.atto_delta + other.atto_delta,
        )

    def __sub__(self, other: Cost) -> Cost:
        return Cost(
            micro_rho=self.micro_rho - other.micro_rho,
            atto_delta=self.atto_delta - other.atto_delta,
        )

    def fits(self, budget: Cost) -> bool:
        return self.micro_rho <= budget.micro_rho and self.atto_delta <= budget.atto_delta


NOTHING = Cost(micro_rho=0)


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise RequestError(Code.BAD_ARGUMENT, message)


def _check_rho(rho: float) -> None:
    _need(math.isfinite(rho) and rho >= 0, f"rho must be a finite number from 0, got {rho}")


def check_epsilon(epsilon: float) -> None:
    """Refuse what is no epsilon that a study may state."""
    _need(0 <= epsilon <= MAX_EPSILON, f"epsilon must lie in [0, {shown(MAX_EPSILON)}], got {epsilon}")


def check_delta(delta: float) -> None:
    """Refuse what is no probability strictly between 0 and 1."""
    _need(0 < delta < 1, f"delta must lie strictly between 0 and 1, got {delta}")


def mu(micro_rho: int) -> float:
    """sqrt(2 rho): what Gaussian noise divides its sensitivity by, and the epsilon of a pure mechanism."""
    return math.sqrt(2 * micro_rho / MICRO)


def scale_squared(moved2: int, micro_rho: int) -> Fraction:
    """The exact square of a scale, D^2 / (2 rho) for what moves by D: sigma of a Gaussian with D in L2, and
    b = D / epsilon of a Laplace law with D in L1 and epsilon = sqrt(2 rho)."""
    return Fraction(moved2 * MICRO, 2 * micro_rho)


def scale_of(moved2: int, micro_rho: int) -> float:
    """The scale whose square is `scale_squared`, rounded up."""
    return root_of(scale_squared(moved2, micro_rho))


def root_of(square: Fraction) -> float:
    """The least float found whose exact square is at least `square`."""
    root = math.sqrt(square)
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root


def pico_epsilon(micro_rho: int) -> int:
    """epsilon = sqrt(2 rho) of a pure mechanism, in 1e-12, rounded up."""
    return math.isqrt(2 * micro_rho * PICO**2 // MICRO - 1) + 1 if micro_rho else 0


def delta_at(rho: float, epsilon: float) -> float:
    """The delta of rho-zCDP at `epsilon`: min over a > 1 of exp((a-1)(a rho - eps)) / (a-1) (1 - 1/a)^a."""
    _check_rho(rho)
    _need(math.isfinite(epsilon) and epsilon >= 0, f"epsilon must be finite and from 0, got {epsilon}")
    if rho == 0:
        return 0.0
    # The function is convex in t = a - 1, and least where rho + 2 t rho - epsilon = log(1 + 1/t).
    low, high = LOGARITHMS
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        t = math.exp(middle)
        low, high = (low, middle) if rho + 2 * t * rho - epsilon > math.log1p(1 / t) else (middle, high)
    t = math.exp(low)
    log_delta = t * ((1 + t) * rho - epsilon) - t * math.log1p(1 / t) - math.log1p(t)
    return min(1.0, math.exp(min(0.0, log_delta)))


@lru_cache(maxsize=256)  # asked for by a release, its report and its check
def epsilon_at(rho: float, delta: float) -> float:
    """The least epsilon (to a relative 1e-9, rounded up) with delta_at(rho, epsilon) <= delta."""
    _check_rho(rho)
    check_delta(delta)
    if rho == 0:
        return 0.0
    low, high = 0.0, rho + 2 * math.sqrt(-rho * math.log(delta)) + 1e-12
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(rho, middle) <= delta else (middle, high)
    return high


@lru_cache(maxsize=256)  # asked for by every plan of a study
def micro_rho_for(epsilon: float, delta: float) -> int:
    """The largest budget in micro-rho that still gives (epsilon, delta) by zCDP, rounded down.

    Raises:
        RequestError: the guarantee is so strict that not even one micro-rho is left.
    """
    return most_micro_rho(lambda n: delta_at(n / MICRO, epsilon) <= delta, epsilon, delta)


def most_micro_rho(gives: Callable[[int], bool], epsilon: float, delta: float) -> int:
    """The largest whole number that `gives` (epsilon, delta), where no more does.

    Raises:
        RequestError: not even one micro-rho does.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    low, high = 0, 1
    while gives(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if gives(middle) else (low, middle)
    if low < 1:
        raise RequestError(
            Code.BAD_STUDY,
            f"epsilon = {shown(epsilon)} at delta = {shown(delta)} is too small to be counted; raise epsilon",
        )
    return low
