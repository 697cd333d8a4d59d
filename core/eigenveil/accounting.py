"""The budget's currency: zero-concentrated DP in integer micro-rho, and what it means as (epsilon, delta).

Source: Bun & Steinke 2016 (composition); Canonne, Kamath & Steinke 2020, Proposition 12 (conversion).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from scipy.optimize import minimize_scalar

from eigenveil.errors import Code, RequestError

MICRO = 10**6
ATTO = 10**18


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

    def fits(self, budget: Cost) -> bool:
        """Whether both columns stay within `budget`."""
        return self.micro_rho <= budget.micro_rho and self.atto_delta <= budget.atto_delta


NOTHING = Cost(micro_rho=0)


def micro(rho: float) -> int:
    """`rho` in micro-rho, rounded up."""
    return math.ceil(Fraction(rho) * MICRO)


def delta_at(rho: float, epsilon: float) -> float:
    """The delta of rho-zCDP at `epsilon`: min over a > 1 of exp((a-1)(a rho - eps)) / (a-1) (1 - 1/a)^a."""
    if rho <= 0:
        return 0.0

    def log_delta(log_order: float) -> float:
        a = 1 + math.exp(log_order)
        return (a - 1) * (a * rho - epsilon) - math.log(a - 1) + a * math.log1p(-1 / a)

    # The unconstrained optimum sits near a = (eps + rho) / (2 rho); the bracket is generous on both sides.
    centre = math.log(max((epsilon - rho) / (2 * rho), 1e-6))
    best = minimize_scalar(log_delta, bounds=(min(centre, 0) - 8, centre + 8), method="bounded")
    return min(1.0, math.exp(min(0.0, float(best.fun))))


def epsilon_at(rho: float, delta: float) -> float:
    """The least epsilon (to a relative 1e-9, rounded up) with delta_at(rho, epsilon) <= delta."""
    if rho <= 0:
        return 0.0
    low, high = 0.0, rho + 2 * math.sqrt(rho * math.log(1 / delta)) + 1e-12
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(rho, middle) <= delta else (middle, high)
    return high


def micro_rho_for(epsilon: float, delta: float) -> int:
    """The largest budget in micro-rho that still gives (epsilon, delta), rounded down.

    Raises:
        RequestError: the guarantee is so strict that not even one micro-rho is left.
    """
    low, high = 0, 1
    while delta_at(high / MICRO, epsilon) <= delta:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if delta_at(middle / MICRO, epsilon) <= delta else (low, middle)
    if low < 1:
        raise RequestError(
            Code.BAD_STUDY,
            f"epsilon = {epsilon:g} at delta = {delta:g} leaves less than one micro-rho; raise epsilon",
        )
    return low


def split(total: int, *shares: float) -> tuple[int, ...]:
    """Divide `total` micro-rho in proportion to `shares`, each part rounded down."""
    whole = sum(shares)
    return tuple(math.floor(total * share / whole) for share in shares)
