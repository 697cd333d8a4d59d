"""Privacy budgets as (epsilon, delta), computed independently of the product. Nothing of the product is
imported here. In floats: right to many digits, and to no safe side."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np


def log_delta(rho: float, epsilon: float) -> float:
    """ln of min over a > 1 of exp((a - 1) (a rho - epsilon)) / (a - 1) (1 - 1 / a)^a, at the a where the
    derivative rho (2 a - 1) - epsilon - ln(1 + 1 / (a - 1)) is 0."""
    low, high = -60.0, 60.0  # of ln(a - 1)
    for _ in range(200):
        middle = (low + high) / 2
        t = math.exp(middle)
        low, high = (low, middle) if rho * (2 * t + 1) - epsilon > math.log1p(1 / t) else (middle, high)
    t = math.exp(low)
    return t * ((t + 1) * rho - epsilon) - low + (t + 1) * math.log(t / (t + 1))


def bisected(holds: Callable[[float], bool], high: float) -> float:
    """The largest x below `high` at which `holds`, which turns false once."""
    low = 0.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


@cache
def epsilon_for(rho: float, delta: float) -> float:
    """The least epsilon that rho gives at delta."""
    return bisected(
        lambda e: log_delta(rho, e) > math.log(delta), rho + 3 * math.sqrt(-rho * math.log(delta))
    )


def log_lost(mu: float, epsilon: float) -> float:
    """ln of the delta at which mu-Gaussian DP keeps epsilon: E[(1 - e^(epsilon - L))_+] for a loss L of the
    law N(mu^2 / 2, mu^2); integrated over t = (L - epsilon) / mu = e^s by the trapezoidal rule,
    which is right to many digits for what falls off so fast on both sides."""
    far = (epsilon - mu * mu / 2) / mu
    s = np.linspace(-40, 8, 4001)
    t = np.exp(s)
    log = s - (far + t) ** 2 / 2 + np.log(-np.expm1(-mu * t))
    top = float(log.max())
    return top + math.log(float(np.exp(log - top).sum()) * (s[1] - s[0])) - math.log(2 * math.pi) / 2


@cache
def mu_for(epsilon: float, delta: float) -> float:
    """The largest mu that gives (epsilon, delta)."""
    return bisected(lambda mu: log_lost(mu, epsilon) <= math.log(delta), math.sqrt(2 * epsilon) + 5)


@cache
def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least epsilon that mu gives at delta."""
    return bisected(
        lambda e: log_lost(mu, e) > math.log(delta), mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))
    )


def for_two_changes(
    epsilon: float, delta: float, rho: float, own: float, *, kind: str
) -> tuple[float, float]:
    """(epsilon, delta) of a data set that is two neighbours away: a record out and another in."""
    if kind == "basic":
        return 2 * epsilon, own * (1 + math.exp(epsilon))
    if kind == "gaussian":
        return gaussian_epsilon(2 * math.sqrt(2 * rho), delta), delta
    if not own:
        return epsilon_for(4 * rho, delta), delta
    once = epsilon_for(rho, delta - own)
    return 2 * once, delta * (1 + math.exp(once))


@cache
def local_rho(epsilon: float, delta: float, n: int) -> float:
    """[P24], Feldman, McMillan, Talwar, Theorems 3.1 and 3.8 with half of delta for the order."""
    half = delta / 2

    def combined(local: float) -> float:
        g = math.exp(local)
        root = math.sqrt(g * math.log(4 / half) / n)
        return math.log(1 + (g - 1) / (g + 1) * (8 * root + 8 * g / n))

    most = math.log(n / (16 * math.log(2 / half)))
    local = bisected(lambda e: combined(e) <= epsilon, most)
    return mu_for(local, half / ((math.exp(epsilon) + 1) * (1 + math.exp(-local) / 2) * n)) ** 2 / 2
