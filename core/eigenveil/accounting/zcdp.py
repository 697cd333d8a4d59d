"""Zero-concentrated DP: cost in integer micro-rho, (epsilon, delta) conversion, neighbouring relations.

Valid for any noise; for Gaussian noise only, `gaussian` gives a smaller epsilon for the same integers. Every
order gives a valid conversion, so an imperfect minimum is on the safe side [P5]. Source: Bun & Steinke 2016
(composition); Canonne, Kamath & Steinke 2020, Proposition 12 (conversion)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache

from eigenveil.accounting.formatting import shown
from eigenveil.errors import Code, RequestError

MICRO = 10**6
ATTO = 10**18
PICO = 10**12
LOGARITHMS, HALVINGS = (-700.0, 700.0), 64  # of an order minus 1: the whole range and precision of floats
MAX_EPSILON = 1e6  # its micro-rho is still an exact integer of canonical JSON


@dataclass(frozen=True, slots=True, kw_only=True, order=False)
class Cost:
    """Cost in integer micro-rho (zCDP), and in integer atto-delta for mechanisms with their own delta. Both
    add up."""

    micro_rho: int
    atto_delta: int = 0

    def __post_init__(self) -> None:
        if self.micro_rho < 0 or self.atto_delta < 0:
            raise RequestError(Code.BAD_ARGUMENT, "a cost cannot be negative")

    def __add__(self, other: Cost) -> Cost:
        return Cost(micro_rho=self.micro_rho + other.micro_rho, atto_delta=self.atto_delta + other.atto_delta)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(micro_rho=self.micro_rho - other.micro_rho, atto_delta=self.atto_delta - other.atto_delta)

    def fits(self, budget: Cost) -> bool:
        return self.micro_rho <= budget.micro_rho and self.atto_delta <= budget.atto_delta


NO_COST = Cost(micro_rho=0)


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise RequestError(Code.BAD_ARGUMENT, message)


def _check_rho(rho: float) -> None:
    _need(math.isfinite(rho) and rho >= 0, f"rho must be a finite number from 0, got {rho}")


def check_epsilon(epsilon: float) -> None:
    """Check that epsilon lies in the range that a study may state."""
    _need(0 <= epsilon <= MAX_EPSILON, f"epsilon must lie in [0, {shown(MAX_EPSILON)}], got {epsilon}")


def check_delta(delta: float) -> None:
    """Check that delta lies strictly between 0 and 1."""
    _need(0 < delta < 1, f"delta must lie strictly between 0 and 1, got {delta}")


def mu(micro_rho: int) -> float:
    """Return sqrt(2 rho): sensitivity over sigma of Gaussian noise, or the epsilon of a pure mechanism."""
    return math.sqrt(2 * micro_rho / MICRO)


def scale_squared(moved2: int, micro_rho: int) -> Fraction:
    """Return the exact square of the noise scale, D^2 / (2 rho), for a sensitivity D with `moved2` = D^2. The
    scale is sigma of Gaussian noise (D in L2), or b = D / epsilon of Laplace noise (D in L1, epsilon = sqrt(2
    rho))."""
    return Fraction(moved2 * MICRO, 2 * micro_rho)


def scale_of(moved2: int, micro_rho: int) -> float:
    """Return the square root of `scale_squared`, rounded up."""
    return root_of(scale_squared(moved2, micro_rho))


def root_of(square: Fraction) -> float:
    """Return a float near the square root of `square` whose exact square is at least `square`."""
    root = math.sqrt(square)
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root


def pico_epsilon(micro_rho: int) -> int:
    """Return epsilon = sqrt(2 rho) of a pure mechanism, in 1e-12, rounded up."""
    return math.isqrt(2 * micro_rho * PICO**2 // MICRO - 1) + 1 if micro_rho else 0


def delta_at(rho: float, epsilon: float) -> float:
    """Return delta of rho-zCDP at `epsilon`: min over a > 1 of exp((a-1)(a rho-eps)) / (a-1) (1 - 1/a)^a."""
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


@lru_cache(maxsize=256)  # used by a release, its report and its verification
def epsilon_at(rho: float, delta: float) -> float:
    """Return the least epsilon (to a relative 1e-9, rounded up) with delta_at(rho, epsilon) <= delta."""
    _check_rho(rho)
    check_delta(delta)
    if rho == 0:
        return 0.0
    low, high = 0.0, rho + 2 * math.sqrt(-rho * math.log(delta)) + 1e-12
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(rho, middle) <= delta else (middle, high)
    return high


@lru_cache(maxsize=256)  # used by every plan of a study
def micro_rho_for(epsilon: float, delta: float) -> int:
    """Return the largest budget in micro-rho that is (epsilon, delta)-DP by zCDP, rounded down. Raises
    RequestError: the budget is below one micro-rho."""
    return most_micro_rho(lambda n: delta_at(n / MICRO, epsilon) <= delta, epsilon, delta)


def most_micro_rho(satisfies_dp: Callable[[int], bool], epsilon: float, delta: float) -> int:
    """Return the largest whole number of micro-rho for which the monotone condition is True. Raises
    RequestError: it is below one micro-rho."""
    check_epsilon(epsilon)
    check_delta(delta)
    low, high = 0, 1
    while satisfies_dp(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if satisfies_dp(middle) else (low, middle)
    if low < 1:
        raise RequestError(
            Code.BAD_STUDY,
            f"epsilon = {shown(epsilon)} at delta = {shown(delta)} is below one micro-rho; raise epsilon",
        )
    return low


class Neighbours(Enum):
    """Neighbouring relation of data sets.

    `add-remove`: one record is added or removed, so the number of records is private. `replace-one`: one
    record is replaced by any other, so the number is public.

    >>> Neighbours("replace-one") is Neighbours.REPLACE_ONE
    True"""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"

    @property
    def records(self) -> int:
        """Number of records in which neighbours differ: 1, or 2 (one removed, one added).

        If one record changes a sum by at most D in any norm, neighbours differ by `records` D. The squared
        distance grows by the factor `records` only, not its square, in two cases: the two records change
        different entries, or any two contributions have at most twice the squared distance that one has from
        zero (as positive semidefinite matrices)."""
        return 1 if self is Neighbours.ADD_REMOVE else 2
