"""Whole algorithms in the simulator: right on easy data, defined on degenerate data, within budget."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eigenveil.algorithms import ALGORITHMS
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, sin_angle
from eigenveil.simulation import Simulation, simulate, split_rows
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Federation, Study
from tests.support import a_column, a_study

DEFAULTS = [Algorithm.GAUSS_COV, Algorithm.DP_PCA, Algorithm.REFINED_COV, Algorithm.REFINED_PCA]


def study(d: int, algorithm: Algorithm, **changes: Any) -> Study:
    columns = tuple(a_column(f"x{i}", -6.0, 6.0) for i in range(d))
    federation = Federation(sites=("a", "b", "c"), minimum_cohort=1)
    values: dict[str, Any] = {"columns": columns, "epsilon": 4.0, "max_records": 2**20}
    return a_study(**(values | {"algorithm": algorithm, "federation": federation} | changes))


def run(what: Study, rows: FloatArray, seed: int | None = 1) -> Simulation:
    return simulate(what, split_rows(rows, {"a": 3.0, "b": 2.0, "c": 1.0}), seed=seed)


def spectrum(n: int, variances: list[float], seed: int = 0) -> FloatArray:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(n, len(variances))) * np.sqrt(variances)


def truth(rows: FloatArray, k: int) -> FloatArray:
    return eigenpairs(np.cov(rows.T))[1][:, :k].T


# The product's algorithms at the default epsilon, and the papers' where their noise is small.
PAPERS = ["analyze-gauss", "separate-cov", "adaptive-cov", "em-cov", "noisy-power"]
FOUND = [*((one, 4.0) for one in DEFAULTS), *((Algorithm(one), 20.0) for one in PAPERS)]


@pytest.mark.parametrize(("algorithm", "epsilon"), FOUND)
@pytest.mark.parametrize("k", [1, 3])
def test_the_leading_subspace_is_found_with_its_variances(
    algorithm: Algorithm, epsilon: float, k: int
) -> None:
    d = 20 if epsilon < 20 else 8
    rows = spectrum(20_000, [3.0, 2.0, 1.2] + [0.1] * (d - 3)) + 1.0
    found = run(study(d, algorithm, components=k, epsilon=epsilon), rows).estimate
    assert sin_angle(found.components, truth(rows, k)) < 0.1
    assert np.allclose(found.components @ found.components.T, np.eye(k), atol=1e-9)
    exact = np.sort(np.var(rows, axis=0))[::-1] / 36
    assert np.allclose(found.explained_variance, exact[:k], rtol=0.15)
    assert found.total_variance == pytest.approx(exact.sum(), rel=0.1)
    assert np.allclose(found.mean, 1 / 6, atol=0.02)
    assert found.records == pytest.approx(20_000, rel=0.02)
    assert found.sin_error is not None
    assert found.sin_error < 0.12
    assert found.covariance is None or np.allclose(found.covariance, found.covariance.T)


@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a.properties.gaussian])
def test_a_single_column_is_its_own_component(algorithm: Algorithm) -> None:
    rows = np.random.default_rng(0).normal(size=(500, 1))
    assert abs(run(study(1, algorithm), rows).estimate.components[0, 0]) == pytest.approx(1)


@pytest.mark.parametrize("algorithm", DEFAULTS)
def test_without_centring_the_second_moment_leads(algorithm: Algorithm) -> None:
    rows = spectrum(5000, [0.5, 0.1, 0.1, 0.1]) + np.array([0.0, 3.0, 0.0, 0.0])
    plain = run(study(4, algorithm, centring=False), rows).estimate
    centred = run(study(4, algorithm), rows).estimate
    assert abs(plain.components[0, 1]) > 0.9
    assert abs(centred.components[0, 0]) > 0.9
    assert not plain.mean.any()


def test_a_fixed_quantile_claims_no_error_band() -> None:
    rows = spectrum(3000, [2.0] + [0.2] * 7)
    for algorithm in DEFAULTS:
        result = run(study(8, algorithm, radius=0.8), rows)
        assert result.estimate.sin_error is None
        assert result.document["results"]["pca"]["predicted_sin_angle"] is None
