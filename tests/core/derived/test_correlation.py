"""Correlations, partial correlations and distances equal those of numpy, with errors that match the noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eigenveil.derived.correlations import Correlations, correlation, mahalanobis, partial_correlation
from eigenveil.derived.covariance import IntervalEstimate
from eigenveil.derived.moments import Moments
from eigenveil.errors import Code
from tests.core.derived.drawn import WITHIN, a_matrix, a_noise, spread
from tests.support import refused

BOTH = pytest.mark.parametrize("answer", [correlation, partial_correlation])


def test_they_are_those_of_the_matrix_in_any_units() -> None:
    matrix = a_matrix()
    sizes = np.sqrt(np.diag(matrix.values))
    found = correlation(matrix, 0.95).numbers
    assert np.allclose(found.values, matrix.values / np.outer(sizes, sizes))
    assert not np.diag(found.errors).any()
    rescaled = replace(matrix, scale=matrix.scale * 7)
    assert np.array_equal(correlation(rescaled, 0.95).numbers.errors, found.errors)


def test_a_partial_correlation_is_that_of_the_residuals() -> None:
    matrix = a_matrix()
    inside, outside = matrix.values[:2, :2], matrix.values[2:, :2]
    left = inside - outside.T @ np.linalg.solve(matrix.values[2:, 2:], outside)
    expected = left[0, 1] / np.sqrt(left[0, 0] * left[1, 1])
    assert np.isclose(partial_correlation(matrix, 0.95).numbers.values[0, 1], expected)


@BOTH
@pytest.mark.parametrize("even", [False, True])
def test_stated_errors_match_the_spread_over_noise(answer: object, even: bool) -> None:
    assert callable(answer)
    matrix = a_matrix(even=even, count=0.01)
    stated: Correlations = answer(matrix, 0.95)
    seen = spread(matrix, lambda one: answer(one, 0.95).numbers.values)
    isolated = ~np.eye(4, dtype=bool)
    assert np.allclose(stated.numbers.errors[isolated], seen[isolated], rtol=WITHIN)


@BOTH
def test_correlations_of_noise_are_noted_and_stay_within_one(answer: object) -> None:
    assert callable(answer)
    drowned = replace(a_matrix(), values=np.diag([1e-5, -2e-5, 1e-5, 0.0]), noise=a_noise(1.0))
    result: Correlations = answer(drowned, 0.95)
    assert "mostly noise" in result.notes[0]
    assert result.numbers.low.min() >= -1
    assert result.numbers.high.max() <= 1
    assert not answer(a_matrix(), 0.95).notes


# Mahalanobis distances and intervals.


ROWS = np.array([[6.0, 10.0, 0.0, 41.0], [5.0, -2.0, 0.1, 40.0], [0.0, -30.0, 1.0, 30.0]])


def test_distances_are_in_the_columns_own_units() -> None:
    matrix = a_matrix()
    covariance = matrix.values * np.outer(matrix.scale, matrix.scale)
    far = ROWS - matrix.mean
    expected = np.sqrt(np.einsum("ni,ij,nj->n", far, np.linalg.inv(covariance), far))
    assert np.allclose(mahalanobis(matrix, ROWS, 0.95).numbers.values, expected)


@pytest.mark.parametrize("mean_noise_variance", [0.0, 1e-4])
def test_stated_errors_of_distances_match_the_spread_over_noise(mean_noise_variance: float) -> None:
    matrix = replace(a_matrix(count=0.01), mean_noise_variance=mean_noise_variance)
    far = ROWS[::2]  # the other one is the mean itself
    seen = spread(matrix, lambda one: mahalanobis(one, far, 0.95).numbers.values)
    assert np.allclose(mahalanobis(matrix, far, 0.95).numbers.errors, seen, rtol=WITHIN)


@pytest.mark.parametrize("rows", [ROWS[0], ROWS[:, :3], np.full((1, 4), np.nan)])
def test_rows_of_another_shape_are_refused(rows: object) -> None:
    with refused(Code.BAD_ARGUMENT, "4 columns"):
        Moments(matrix=a_matrix()).mahalanobis(rows)  # type: ignore[arg-type]


def test_an_interval_covers_its_level() -> None:
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
    with refused(Code.BAD_ARGUMENT, '"released", "original", "standard"'):
        moments.pca(1, scaling="bounds")
    with refused(Code.BAD_ARGUMENT, '"none", "varimax", "promax"'):
        moments.factor_analysis(1, rotation="quartimax")
