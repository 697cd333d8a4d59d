"""smooth-gaussian, smooth-cauchy and propose-test-release, run whole on seeded noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import sin_angle
from eigenveil.simulation import Simulation, simulate
from eigenveil.study.algorithm import Algorithm
from tests.support import a_column, a_study

FAMILY = (Algorithm.SMOOTH_GAUSSIAN, Algorithm.SMOOTH_CAUCHY, Algorithm.PROPOSE_TEST_RELEASE)


def records(n: int, d: int = 8, k: int = 1) -> FloatArray:
    """Records with k strong directions. Shape: (n, d)."""
    scales = np.full(d, 0.05)
    scales[:k] = 0.3
    return np.clip(np.random.default_rng(n + k).normal(size=(n, d)) * scales, -1, 1)


def run(algorithm: Algorithm, x: FloatArray, seed: int = 1, **changes: Any) -> Simulation:
    columns = tuple(a_column(f"c{i}", -1.0, 1.0) for i in range(x.shape[1]))
    values: dict[str, Any] = {"epsilon": 2.0, "algorithm": algorithm, "expected_records": len(x)} | changes
    return simulate(a_study(sites=("here",), columns=columns, **values), {"here": x}, seed=seed)


def error(simulation: Simulation, x: FloatArray, k: int = 1) -> float:
    truth = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[2][:k]
    return sin_angle(truth, simulation.estimate.components)


def median_error(algorithm: Algorithm, x: FloatArray, k: int = 1) -> float:
    runs = [run(algorithm, x, seed, components=k) for seed in range(7)]
    return float(np.median([error(one, x, k) for one in runs]))


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("algorithm", FAMILY)
def test_a_wide_gap_is_found(algorithm: Algorithm, k: int) -> None:
    x = records(30_000, k=k)
    assert median_error(algorithm, x, k) < (0.4 if algorithm is Algorithm.SMOOTH_CAUCHY else 0.1)


def test_no_gap_is_declined_and_paid_for() -> None:
    x = np.random.default_rng(0).uniform(-0.5, 0.5, (500, 6))
    simulation = run(Algorithm.PROPOSE_TEST_RELEASE, x)
    assert "gap" in str(simulation.estimate.declined)
    assert simulation.estimate.components.shape == (0, 6)
    assert simulation.releases[-1].atto_delta == simulation.plan.atto_delta


@pytest.mark.parametrize("algorithm", FAMILY)
def test_directions_within_the_span_are_separated_with_their_variances(algorithm: Algorithm) -> None:
    """A release is turned at random within its span; each component must not be."""
    scales = np.array([0.3, 0.2, 0.05, 0.05, 0.05])
    x = np.clip(np.random.default_rng(5).normal(size=(50_000, 5)) * scales, -1, 1)
    for seed in range(5):
        found = run(algorithm, x, seed, components=2, epsilon=20.0).estimate
        for i in range(2):
            assert abs(found.components[i, i]) > 0.98
            assert found.explained_variance[i] == pytest.approx(scales[i] ** 2, rel=0.1)
        assert found.total_variance == pytest.approx(float((scales**2).sum()), rel=0.1)
