"""[P4] [P5] zCDP conversions: exact, monotone, conservative, and equal to two independent computations."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.accounting.zcdp import (
    MICRO,
    Cost,
    delta_at,
    epsilon_at,
    micro_rho_for,
)
from eigenveil.errors import Code
from tests.support import refused

RHOS = [1e-6, 1e-3, 0.01, 0.1, 1.0, 10.0]
DELTAS = [1e-12, 1e-6, 1e-3]
NAN, INF = math.nan, math.inf

deltas = st.floats(-15, -0.5).map(lambda x: 10.0**x)
epsilons = st.floats(-4, 2).map(lambda x: 10.0**x)


def brute_delta(rho: float, epsilon: float) -> float:
    """The least bound of [CKS] Proposition 12 over a million orders between 1 + 1e-9 and 1e9."""
    t = np.exp(np.linspace(np.log(1e-9), np.log(1e9), 1_000_000))
    a = 1 + t
    log = t * (a * rho - epsilon) + t * np.log(t) - a * np.log1p(t)
    return float(np.exp(min(0.0, float(np.min(log)))))


@pytest.mark.parametrize("rho", [*RHOS, 1e-9, 100.0])
@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 1e-3, 0.1, 1.0, 5.0, 50.0])
def test_delta_is_the_minimum_over_all_orders(rho: float, epsilon: float) -> None:
    ours, best = delta_at(rho, epsilon), brute_delta(rho, epsilon)
    assert ours >= best * (1 - 1e-6)
    assert ours <= best * (1 + 1e-6) + 1e-300


@given(epsilon=epsilons, delta=deltas)
def test_the_budget_is_the_largest_within_epsilon_and_delta(epsilon: float, delta: float) -> None:
    if delta_at(1 / MICRO, epsilon) > delta:
        with refused(Code.BAD_STUDY, "raise epsilon"):
            micro_rho_for(epsilon, delta)
        return
    budget = micro_rho_for(epsilon, delta)
    assert delta_at(budget / MICRO, epsilon) <= delta
    assert delta_at((budget + 1) / MICRO, epsilon) > delta * (1 - 1e-7)
    assert epsilon_at(budget / MICRO, delta) <= epsilon * (1 + 1e-8)


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (lambda: delta_at(0, 0), 0.0),
        (lambda: delta_at(5e-324, 1), 0.0),
        (lambda: delta_at(1e300, 1), 1.0),
        (lambda: delta_at(1e300, 1e300), 1.0),
        (lambda: epsilon_at(0, 1e-6), 0.0),
        (lambda: epsilon_at(1e-300, 0.1), 0.0),
    ],
)
def test_the_edges_of_the_table(call: Callable[[], float], wanted: float) -> None:
    assert call() == pytest.approx(wanted, abs=1e-9)


def test_a_delta_near_the_smallest_number_is_not_free() -> None:
    assert 0 < micro_rho_for(1, 5e-324) < micro_rho_for(1, 1e-300) < 1000
    assert 50 < epsilon_at(1, 5e-324) < 60


@pytest.mark.parametrize("bad", [-1.0, -5e-324, NAN, INF, -INF, 0.0, 1.0, 2.0])
def test_what_is_no_rho_no_epsilon_or_no_delta_is_refused_by_name(bad: float) -> None:
    calls: list[tuple[str, Callable[[], float]]] = [
        ("delta", lambda: epsilon_at(1.0, bad)),
        ("delta", lambda: micro_rho_for(1.0, bad)),
    ]
    if not 0 <= bad <= 2:
        calls += [("rho", lambda: delta_at(bad, 1.0)), ("rho", lambda: epsilon_at(bad, 1e-6))]
        calls += [("epsilon", lambda: delta_at(1.0, bad)), ("epsilon", lambda: micro_rho_for(bad, 1e-6))]
    for name, call in calls:
        with refused(Code.BAD_ARGUMENT, name):
            call()


@pytest.mark.parametrize("bad", [{"micro_rho": -1}, {"micro_rho": 1, "atto_delta": -1}])
def test_a_negative_cost_is_refused(bad: dict[str, int]) -> None:
    with refused(Code.BAD_ARGUMENT, "negative"):
        Cost(**bad)
