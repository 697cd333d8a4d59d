"""The algorithms of [DPPCA] beside `dp-pca`, in the simulator: [P7] [P9] right, defined, and within budget.

False alarms: noise is seeded; nothing here is random from run to run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eigenveil.algorithms.papers.oja import StepSchedule, best_group, oja
from eigenveil.algorithms.papers.single_pass import OCTAVES, bins_for, box_for, read_spread, records_needed
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.numerics.linalg import eigenpairs, sin_angle
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.rounds import Release
from eigenveil.queries import CoordinateClippedSum, GradientSpec
from eigenveil.reporting.explain import explain
from eigenveil.reporting.trust import CENTRAL, TRUSTED
from eigenveil.simulation import Simulation, simulate
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Extraction, Federation, Study
from tests.support import a_column, a_study

OJA, SINGLE = Algorithm.PRIVATE_OJA, Algorithm.DP_PCA_SINGLE_PASS
FAMILY = [OJA, SINGLE]


def study(d: int, algorithm: Algorithm, **changes: Any) -> Study:
    values: dict[str, Any] = {
        "columns": tuple(a_column(f"x{i}", -6.0, 6.0) for i in range(d)),
        "epsilon": 8.0,
    }
    values |= {"algorithm": algorithm, "expected_records": 20_000, "centring": False, "max_records": 2**20}
    return a_study(**(values | {"federation": Federation(sites=("a", "b"), minimum_cohort=1)} | changes))


def run(what: Study, rows: FloatArray, seed: int = 1) -> Simulation:
    half = len(rows) // 2
    return simulate(what, {"a": rows[:half], "b": rows[half:]}, seed=seed)


def spread(n: int, variances: list[float], seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).normal(size=(n, len(variances))) * np.sqrt(variances)


@pytest.mark.parametrize(
    ("algorithm", "rank"),
    [
        (OJA, Extraction.BLOCK),
        pytest.param(SINGLE, Extraction.DEFLATION, marks=pytest.mark.slow),
        pytest.param(OJA, Extraction.DEFLATION, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_finds_the_leading_subspace_with_its_variances(algorithm: Algorithm, rank: Extraction) -> None:
    rows = spread(20_000, [3.0, 1.5] + [0.05] * 6)
    exact = eigenpairs(np.cov(rows.T))[1][:, :2].T
    sines = []
    for name in "abcdefghijk":  # records are dealt anew; the median of few such deals is often over .2
        found = run(study(8, algorithm, components=2, rank=rank, name=name), rows).estimate
        sines.append(sin_angle(found.components, exact))
    assert np.median(sines) < 0.2
    assert np.allclose(found.components @ found.components.T, np.eye(2), atol=1e-9)
    assert np.allclose(found.explained_variance, np.array([3.0, 1.5]) / 36, rtol=0.1)


@pytest.mark.parametrize("algorithm", FAMILY)
@pytest.mark.parametrize("rank", Extraction)
def test_rehearsal_foresees_the_rounds(algorithm: Algorithm, rank: Extraction) -> None:
    result = run(study(4, algorithm, components=2, rank=rank, batches=15), spread(3000, [2.0, 1.0, 0.1, 0.1]))
    assert len(rehearse(result.plan)) == len(result.releases)
    assert explain(result.plan)["trust"] == (TRUSTED if algorithm.properties.trusted else CENTRAL)


def test_too_few_records_are_no_release_and_the_needed_n_is_named() -> None:
    what = study(4, SINGLE, epsilon=0.5)
    result = run(what, spread(2000, [2.0, 0.1, 0.1, 0.1]))
    needed = records_needed(result.plan)
    assert needed > 20_000
    assert result.estimate.declined is not None
    assert str(needed) in result.estimate.declined
    enough = run(replace(what, epsilon=8.0), spread(20_000, [2.0, 0.1, 0.1, 0.1]))
    assert str(records_needed(enough.plan)) in enough.estimate.warnings[0]


# --- the pieces


def a_release(values: IntArray) -> Release:
    return Release(round=0, query="0" * 64, values=values, sigma=1.0, micro_rho=0, atto_delta=0, present=())


def test_no_bin_is_a_defined_outcome() -> None:
    empty = np.zeros(len(OCTAVES) + 1, dtype=np.int64)
    assert read_spread(a_release(frozen(empty))) == 0.0
    empty[0] = 5
    assert 0 < read_spread(a_release(frozen(empty))) < 4
    field = GradientSpec(
        centre=frozen([0, 0]), directions=frozen([[1], [1]]), offset=frozen([[0], [0]]), shift=0
    )
    bins = bins_for(field, 0.0)
    quiet_site = box_for(bins, a_release(frozen(np.zeros(bins.length, dtype=np.int64))), 0.0)
    assert isinstance(quiet_site, CoordinateClippedSum)
    assert quiet_site.halves.tolist() == [1, 1]
    counts = np.zeros(bins.length, dtype=np.int64)
    counts[0] = 9
    one = box_for(bins, a_release(frozen(counts)), 100.0)
    assert one.halves[0] > 1
    assert one.halves[1] == 0


def test_the_best_candidate_has_the_largest_quotients() -> None:
    assert best_group(np.array([1.0, 2.0, 2.5, 1.0, 0.0, 2.0]), 2) == 1
    assert best_group(np.array([1.0, 2.0, 0.5]), 1) == 1


def test_steps_shrink_and_survive_a_strength_of_nothing() -> None:
    rates = StepSchedule(gain=8.0, offset=1.0)
    assert rates.step(0, 2.0) == 4.0
    assert rates.step(3, 2.0) == 1.0
    assert np.isfinite(rates.step(0, -1.0))


@pytest.mark.parametrize("rank", Extraction)
def test_oja_finds_the_components_without_noise(rank: Extraction) -> None:
    rows = spread(6000, [3.0, 1.5] + [0.05] * 4)
    found = oja(rows, 2, rank=rank)
    assert found.shape == (2, 6)
    assert np.allclose(found @ found.T, np.eye(2), atol=1e-9)
    assert sin_angle(found, eigenpairs(rows.T @ rows)[1][:, :2].T) < 0.1
