"""Correlations and partial correlations: numpy's, with the errors that noise really gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eigenveil.derived.correlations import Correlations, correlation, partial_correlation
from tests.core.derived.drawn import WITHIN, a_matrix, a_noise, spread

BOTH = pytest.mark.parametrize("answer", [correlation, partial_correlation])


def test_they_are_those_of_the_matrix_in_any_units() -> None:
    matrix = a_matrix()
    sizes = np.sqrt(np.diag(matrix.values))
    found = correlation(matrix, 0.95).numbers
    assert np.allclose(found.values, matrix.values / np.outer(sizes, sizes))
    assert not np.diag(found.errors).any()
    rescaled = replace(matrix, scale=matrix.scale * 7)
    assert np.array_equal(correlation(rescaled, 0.95).numbers.errors, found.errors)


def test_two_columns_held_against_the_rest_are_residuals_correlated() -> None:
    matrix = a_matrix()
    inside, outside = matrix.values[:2, :2], matrix.values[2:, :2]
    left = inside - outside.T @ np.linalg.solve(matrix.values[2:, 2:], outside)
    expected = left[0, 1] / np.sqrt(left[0, 0] * left[1, 1])
    assert np.isclose(partial_correlation(matrix, 0.95).numbers.values[0, 1], expected)


@BOTH
@pytest.mark.parametrize("even", [False, True])
def test_errors_are_what_noise_does(answer: object, even: bool) -> None:
    assert callable(answer)
    matrix = a_matrix(even=even, count=0.01)
    stated: Correlations = answer(matrix, 0.95)
    seen = spread(matrix, lambda one: answer(one, 0.95).numbers.values)
    apart = ~np.eye(4, dtype=bool)
    assert np.allclose(stated.numbers.errors[apart], seen[apart], rtol=WITHIN)


@BOTH
def test_what_is_mostly_noise_is_said_and_stays_within_one(answer: object) -> None:
    assert callable(answer)
    drowned = replace(a_matrix(), values=np.diag([1e-5, -2e-5, 1e-5, 0.0]), noise=a_noise(1.0))
    told: Correlations = answer(drowned, 0.95)
    assert "mostly noise" in told.notes[0]
    assert told.numbers.low.min() >= -1
    assert told.numbers.high.max() <= 1
    assert not answer(a_matrix(), 0.95).notes
