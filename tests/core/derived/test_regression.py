"""Regressions equal those of the records in their own units, with errors that match the noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eigenveil.derived.covariance import NoisedCovariance
from eigenveil.derived.regression import Regression, regress
from eigenveil.errors import Code
from eigenveil.numerics.encoding import FloatArray
from tests.core.derived.drawn import WITHIN, a_matrix, spread
from tests.support import refused


def of(matrix: object, ridge: float = 0.0) -> Regression:
    return regress(matrix, "b", ["a", "d", "c"], ridge, 0.95)  # type: ignore[arg-type]


def test_without_noise_a_regression_is_least_squares() -> None:
    matrix = a_matrix(1e-12)
    drawn = np.random.default_rng(0).normal(size=(1000, 4))
    ones = np.linalg.qr(np.column_stack([np.ones(1000), drawn]))[0][:, 1:5] * np.sqrt(1000)
    rows = ones @ np.linalg.cholesky(matrix.values).T * matrix.scale + matrix.mean
    x, y = rows[:, [0, 3, 2]], rows[:, 1]
    design = np.column_stack([x, np.ones(1000)])
    slopes, residual, _, _ = np.linalg.lstsq(design, y, rcond=None)
    found = of(matrix)
    assert np.allclose(found.privacy.values, slopes[:-1])
    assert np.isclose(found.intercept.values, slopes[-1])
    assert np.isclose(found.r_squared.values, 1 - residual[0] / 1000 / y.var())
    classical = np.sqrt(np.diag(np.linalg.inv(design.T @ design))[:-1] * residual[0] / (1000 - 4))
    assert np.allclose(found.sampling.errors, classical)
    assert np.allclose(found.both.errors, np.hypot(found.privacy.errors, classical))


@pytest.mark.parametrize("even", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_stated_errors_match_the_spread_over_noise(even: bool, ridge: float) -> None:
    matrix = a_matrix(even=even, count=0.01)
    found = of(matrix, ridge)

    def answer(one: NoisedCovariance) -> FloatArray:
        again = of(one, ridge)
        return np.append(again.privacy.values, again.r_squared.values)

    seen = spread(matrix, answer)
    assert np.allclose(np.append(found.privacy.errors, found.r_squared.errors), seen, rtol=WITHIN)


def test_an_intercept_knows_that_the_mean_is_noised_too() -> None:
    matrix = replace(a_matrix(), mean_noise_variance=1e-4, mean=a_matrix().mean / 10)
    seen = spread(matrix, lambda one: of(one).intercept.values)
    assert np.isclose(of(matrix).intercept.errors, seen, rtol=WITHIN)


def test_noise_that_slopes_follow_is_taken_off_r_squared_and_is_in_its_error() -> None:
    """Opposite draws cancel to first order. The larger noise hides the slopes."""
    exact = of(a_matrix(1e-12)).r_squared.values
    for size in (0.003, 0.03):
        matrix, generator = a_matrix(size), np.random.default_rng(8)
        plain, found = [], []
        for _ in range(60):
            upper = np.triu(generator.normal(size=(4, 4)), 1) * matrix.noise.off_diagonal
            moved = upper + upper.T + np.diag(generator.normal(size=4)) * matrix.noise.diagonal
            for noise in (moved, -moved):
                one = replace(matrix, values=matrix.values + noise)
                answer = of(one)
                plain.append(1 - (answer.residual_sd / one.scale[1]) ** 2 / one.values[1, 1])
                found.append(answer.r_squared.values)
        if size < 0.01:
            assert abs(np.mean(found) - exact) < abs(np.mean(plain) - exact) / 2
        off = np.sqrt(np.mean((np.array(found) - exact) ** 2))
        assert off < of(matrix).r_squared.errors * (1 + WITHIN)


def test_an_invalid_regression_is_refused_by_column_name() -> None:
    with refused(Code.BAD_ARGUMENT, "no column 'bb'", ": b"):
        regress(a_matrix(), "bb", ["a"], 0.0, 0.95)
    with refused(Code.BAD_ARGUMENT, "named twice"):
        regress(a_matrix(), "b", ["a", "b"], 0.0, 0.95)
    for on, ridge in (([], 0.0), (["a"], -1.0), (["a"], np.nan)):
        with refused(Code.BAD_ARGUMENT, "one column or more"):
            regress(a_matrix(), "b", on, ridge, 0.95)
