"""Distances of rows that one holds, and what an interval says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eigenveil.derived.correlations import mahalanobis
from eigenveil.derived.covariance import IntervalEstimate
from eigenveil.derived.moments import Moments
from eigenveil.errors import Code
from tests.core.derived.drawn import WITHIN, a_matrix, spread
from tests.support import refused

ROWS = np.array([[6.0, 10.0, 0.0, 41.0], [5.0, -2.0, 0.1, 40.0], [0.0, -30.0, 1.0, 30.0]])


def test_distances_are_in_the_columns_own_units() -> None:
    matrix = a_matrix()
    covariance = matrix.values * np.outer(matrix.scale, matrix.scale)
    far = ROWS - matrix.mean
    expected = np.sqrt(np.einsum("ni,ij,nj->n", far, np.linalg.inv(covariance), far))
    assert np.allclose(mahalanobis(matrix, ROWS, 0.95).numbers.values, expected)


@pytest.mark.parametrize("mean_noise_variance", [0.0, 1e-4])
def test_errors_are_what_noise_does(mean_noise_variance: float) -> None:
    matrix = replace(a_matrix(count=0.01), mean_noise_variance=mean_noise_variance)
    far = ROWS[::2]  # the other one is the mean itself
    seen = spread(matrix, lambda one: mahalanobis(one, far, 0.95).numbers.values)
    assert np.allclose(mahalanobis(matrix, far, 0.95).numbers.errors, seen, rtol=WITHIN)


@pytest.mark.parametrize("rows", [ROWS[0], ROWS[:, :3], np.full((1, 4), np.nan)])
def test_rows_of_another_shape_are_refused(rows: object) -> None:
    with refused(Code.BAD_ARGUMENT, "4 columns"):
        Moments(matrix=a_matrix()).mahalanobis(rows)  # type: ignore[arg-type]


def test_an_interval_is_as_long_as_its_level_says() -> None:
    """Of normal numbers with these errors, such a share is inside: 200,000, to a third of a percent."""
    moved = np.random.default_rng(1).normal(size=200_000) * 3 + 5
    for level in (0.5, 0.95, 0.99):
        one = IntervalEstimate(values=moved, errors=np.full_like(moved, 3.0), level=level)
        assert abs(np.mean((one.low <= 5) & (one.high >= 5)) - level) < 0.0035
    for level in (0.0, 1.0, np.nan):
        with refused(Code.BAD_ARGUMENT, "level"):
            IntervalEstimate(values=moved, errors=moved, level=level)


def test_a_word_that_is_none_is_answered_with_those_there_are() -> None:
    moments = Moments(matrix=a_matrix())
    with refused(Code.BAD_ARGUMENT, "released, own, standard"):
        moments.pca(1, scaling="bounds")
    with refused(Code.BAD_ARGUMENT, "none, varimax, promax"):
        moments.factor_analysis(1, rotation="quartimax")
