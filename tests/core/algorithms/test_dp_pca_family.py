"""The algorithms of [DPPCA] beside `dp-pca`, in the simulator: [P7] [P9] right, defined, and within budget.

False alarms: noise is seeded; nothing here is random from run to run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eigenveil.algorithms.papers.oja import oja
from eigenveil.algorithms.papers.single_pass import records_needed
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, sin_angle
from eigenveil.simulation import Simulation, simulate
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Extraction, Federation, Study
from tests.core.algorithms.test_algorithms import spectrum
from tests.core.algorithms.test_algorithms import study as easy_study

OJA, SINGLE = Algorithm.PRIVATE_OJA, Algorithm.DP_PCA_SINGLE_PASS


def study(d: int, algorithm: Algorithm, **changes: Any) -> Study:
    values = {"epsilon": 8.0, "expected_records": 20_000, "centring": False}
    sites = Federation(sites=("a", "b"), minimum_cohort=1)
    return easy_study(d, algorithm, **(values | {"federation": sites} | changes))


def run(what: Study, rows: FloatArray, seed: int = 1) -> Simulation:
    half = len(rows) // 2
    return simulate(what, {"a": rows[:half], "b": rows[half:]}, seed=seed)


@pytest.mark.parametrize(
    ("algorithm", "rank"),
    [
        (OJA, Extraction.BLOCK),
        pytest.param(SINGLE, Extraction.DEFLATION, marks=pytest.mark.slow),
        pytest.param(OJA, Extraction.DEFLATION, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_finds_the_leading_subspace_with_its_variances(algorithm: Algorithm, rank: Extraction) -> None:
    rows = spectrum(20_000, [3.0, 1.5] + [0.05] * 6)
    exact = eigenpairs(np.cov(rows.T))[1][:, :2].T
    sines = []
    for name in "abcdefghijk":  # records are dealt anew; the median of few such deals is often over .2
        found = run(study(8, algorithm, components=2, rank=rank, name=name), rows).estimate
        sines.append(sin_angle(found.components, exact))
    assert np.median(sines) < 0.2
    assert np.allclose(found.components @ found.components.T, np.eye(2), atol=1e-9)
    assert np.allclose(found.explained_variance, np.array([3.0, 1.5]) / 36, rtol=0.1)


def test_too_few_records_are_no_release_and_the_needed_n_is_named() -> None:
    what = study(4, SINGLE, epsilon=0.5)
    result = run(what, spectrum(2000, [2.0, 0.1, 0.1, 0.1]))
    needed = records_needed(result.plan)
    assert needed > 20_000
    assert result.estimate.declined is not None
    assert str(needed) in result.estimate.declined
    enough = run(replace(what, epsilon=8.0), spectrum(20_000, [2.0, 0.1, 0.1, 0.1]))
    assert str(records_needed(enough.plan)) in enough.estimate.warnings[0]


# --- the pieces


@pytest.mark.parametrize("rank", Extraction)
def test_oja_finds_the_components_without_noise(rank: Extraction) -> None:
    rows = spectrum(6000, [3.0, 1.5] + [0.05] * 4)
    found = oja(rows, 2, rank=rank)
    assert found.shape == (2, 6)
    assert np.allclose(found @ found.T, np.eye(2), atol=1e-9)
    assert sin_angle(found, eigenpairs(rows.T @ rows)[1][:, :2].T) < 0.1
