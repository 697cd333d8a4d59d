"""[P7] Fractions of grid steps, which newer revisions keep: true and stated errors at loose bounds."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil import simulation
from eigenveil.algorithms.recommended import refined
from eigenveil.algorithms.shared import refinement
from eigenveil.algorithms.shared.preparation import FRACTIONS
from eigenveil.algorithms.shared.query_builders import FINE_UNITS, fraction_bits
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import sin_angle
from eigenveil.planning.choose import make_plan
from eigenveil.queries import CrossCovariance, CrossNorms
from eigenveil.queries.cross_covariance import MOST_FRACTION_BITS, most_fraction_bits
from eigenveil.queries.limits import GRADIENT_LIMIT
from eigenveil.simulation import Simulation
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.grid import S
from eigenveil.study.scaling import Scaling
from eigenveil.study.study import Study
from tests.core.algorithms.test_algorithms import run, spectrum, study, truth
from tests.support import a_column

A = Algorithm
AXES = np.linalg.qr(np.random.default_rng(5).normal(size=(10, 10)))[0]
ROWS = spectrum(20_000, [1 / i for i in range(1, 11)]) @ AXES


def loose(algorithm: Algorithm, steps: float, epsilon: float = 30.0) -> Study:
    """Return a study with bounds that leave the first component `steps` grid steps a standard deviation."""
    columns = tuple(a_column(f"x{i}", -S / steps, S / steps) for i in range(10))
    return study(10, algorithm, columns=columns, epsilon=epsilon)


def run_revision(what: Study, revision: int, rows: FloatArray = ROWS) -> Simulation:
    plan = replace(make_plan(what), revision=revision)
    with mock.patch.object(simulation, "make_plan", return_value=plan):
        return run(what, rows)


def true_and_stated(found: Simulation, rows: FloatArray = ROWS) -> tuple[float, float]:
    assert found.estimate.sin_error is not None
    return sin_angle(found.estimate.components, truth(rows, 1)), found.estimate.sin_error


@pytest.mark.parametrize("steps", [8.0, 16.0])
def test_at_loose_bounds_a_cross_covariance_with_fractions_is_right_and_says_how_right(steps: float) -> None:
    what = loose(A.REFINED_COV, steps)
    before, after = (run_revision(what, revision) for revision in (2, 3))
    rounded, stated_before = true_and_stated(before)
    true, stated = true_and_stated(after)
    assert true < rounded / 2
    assert true < 1.5 * stated < 4 * true
    assert stated_before < 0.7 * rounded


def test_only_the_cross_queries_have_fractions_and_only_in_revision_3() -> None:
    before, after = (run_revision(loose(A.REFINED_COV, 40.0), revision) for revision in (2, 3))
    assert len(before.queries) == len(after.queries)
    for one, other in zip(before.queries, after.queries, strict=True):
        cross = isinstance(other.query, CrossNorms | CrossCovariance)
        assert (replace(one, plan_digest="").digest == replace(other, plan_digest="").digest) != cross
        if isinstance(one.query, CrossCovariance) and isinstance(other.query, CrossCovariance):
            assert one.query.spec.fraction_bits == 0 < other.query.spec.fraction_bits
            assert other.query.radius > GRADIENT_LIMIT // 2


@pytest.mark.parametrize("algorithm", [A.GAUSS_COV, A.REFINED_COV, A.DP_PCA, A.REFINED_PCA])
def test_a_mean_between_two_steps_turns_no_component(algorithm: Algorithm) -> None:
    """About a centre half a step off, with few steps a standard deviation, the older revision is far off."""
    steps = 8.0
    rows = ROWS + 0.5 / steps
    before, after = (
        run_revision(loose(algorithm, steps), revision, rows)
        for revision in (FRACTIONS[algorithm] - 1, FRACTIONS[algorithm])
    )
    assert true_and_stated(after, rows)[0] < 0.6 * true_and_stated(before, rows)[0]
    assert true_and_stated(after, rows)[0] < 1.5 * true_and_stated(after, rows)[1]
    error = np.abs(after.result.mean - rows.mean(axis=0)).max()
    assert error < 0.3 / steps < np.abs(before.result.mean - rows.mean(axis=0)).max()


def test_a_result_names_columns_with_few_steps_a_spread_and_right_bounds() -> None:
    def coarse(found: Simulation) -> list[str]:
        return [one for one in found.warnings if "grid steps" in one]

    assert coarse(run(study(10, A.REFINED_COV), ROWS)) == []
    (warning,) = coarse(run(loose(A.REFINED_COV, 8.0), ROWS))
    spread = ROWS[:, 0].std()
    assert f"x0 ({8 * spread:.2g} steps; {10 * spread:.2g}" in warning


def test_a_column_whose_spread_is_hidden_by_noise_has_no_right_bounds() -> None:
    """A column that was divided by a small scale has more noise than the mean of all columns."""
    rows = ROWS[:, :4]
    columns = (a_column("wide", -25_000.0, 25_000.0), *(a_column(f"x{i}", -6.0, 6.0) for i in range(3)))
    what = study(4, A.GAUSS_COV, columns=columns, scaling=Scaling.STANDARD)
    found = [one for seed in range(20) for one in run(what, rows, seed).warnings if "grid steps" in one]
    assert len(found) <= 2


def test_rounding_of_rests_is_stated() -> None:
    """Without fraction bits, as where no more fit, the statement holds what rounding leaves."""
    with mock.patch.object(refinement, "fraction_bits", return_value=0):
        true, stated = true_and_stated(run(loose(A.REFINED_COV, 8.0), ROWS))
    assert 0.5 * true < stated < 4 * true
    assert stated > 1.1 * true_and_stated(run(loose(A.REFINED_COV, 8.0), ROWS))[1]


def test_a_wide_matrix_is_refined_on_its_leading_axes_alone() -> None:
    """Its statement and its components are about those of the whole basis, which narrower studies keep."""
    rows = spectrum(3000, [40.0, 20.0, *[1.0] * 38])
    whole = run(study(40, A.REFINED_COV), rows)
    with (
        mock.patch.object(refined, "WIDE_MATRIX", 40),
        mock.patch.object(refined, "SPARE", 8),
    ):
        leading = run(study(40, A.REFINED_COV), rows)
    (true, stated), (exact, stated_whole) = (true_and_stated(one, rows) for one in (leading, whole))
    assert true < 1.3 * exact + 0.01
    assert 0.7 < stated / stated_whole < 1.4


@given(st.floats(1e-6, 200), st.integers(2, 20_000), st.integers(1, 64))
def test_fraction_bits_make_no_rest_finer_than_is_of_use(rest: float, d: int, k: int) -> None:
    bits = fraction_bits(rest, d, k)
    assert 0 <= bits <= most_fraction_bits(d, k) <= MOST_FRACTION_BITS
    units = rest * S / np.sqrt(d) * 2.0**bits  # a column
    assert bits == 0 or units <= FINE_UNITS * (1 + 1e-9)
    assert bits == most_fraction_bits(d, k) or 2 * units > FINE_UNITS * (1 - 1e-9)


def test_within_right_bounds_the_leading_part_keeps_all_its_bits() -> None:
    """Its truncation is a bias: fewer bits for finer rests were 7 times the error on skewed records."""
    found = run_revision(study(10, A.REFINED_COV, epsilon=30.0), 3, spectrum(20_000, [1.0] * 10))
    queries = [one.priced.query for one in found.queries]
    bits = [one.spec.fraction_bits for one in queries if isinstance(one, CrossCovariance)]
    assert bits == [0] * len(bits) != []
