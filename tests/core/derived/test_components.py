"""Components in any units equal those of numpy, with errors that match the noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eigenveil.derived.components import pca, subspace_angle
from eigenveil.derived.covariance import NoisedCovariance, Units
from eigenveil.errors import Code
from eigenveil.numerics.encoding import FloatArray
from tests.core.derived.drawn import WITHIN, a_matrix, spread
from tests.support import refused

ALL = pytest.mark.parametrize("units", Units)


def in_units(matrix: NoisedCovariance, units: Units) -> FloatArray:
    sizes = np.sqrt(np.diag(matrix.values))
    weights = {Units.RELEASED: np.ones(4), Units.ORIGINAL: matrix.scale, Units.STANDARD: 1 / sizes}[units]
    return np.asarray(matrix.values * np.outer(weights, weights))


@ALL
def test_they_are_those_of_the_matrix_in_these_units(units: Units) -> None:
    matrix = a_matrix()
    values, vectors = np.linalg.eigh(in_units(matrix, units))
    found = pca(matrix, 4, units, 0.95)
    assert np.allclose(found.variances.values, values[::-1], atol=1e-3 * values[-1])
    assert np.allclose(np.abs((found.loadings.values @ vectors[:, ::-1]).round(6)), np.eye(4))
    assert np.isclose(found.ratio.sum(), 1, atol=1e-3)
    assert found.sine == 0


@ALL
@pytest.mark.parametrize("even", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_stated_errors_match_the_spread_over_noise(units: Units, even: bool) -> None:
    matrix = a_matrix(even=even, count=0.001)
    found = pca(matrix, 2, units, 0.95)

    def answer(one: NoisedCovariance) -> FloatArray:
        again = pca(one, 2, units, 0.95)
        return np.concatenate([again.variances.values, again.loadings.values.ravel()])

    seen = spread(matrix, answer)
    stated = np.concatenate([found.variances.errors, found.loadings.errors.ravel()])
    assert np.allclose(stated, seen, rtol=WITHIN, atol=1e-3 * stated.max())


def test_two_releases_of_one_table_differ_by_noise_and_two_tables_by_more() -> None:
    matrix, another = a_matrix(0.003), a_matrix(0.003, seed=9)
    moved = np.diag([0.003, -0.002, 0.004, 0.001])
    again = replace(matrix, values=matrix.values + moved).of(["d", "c", "b", "a"])
    same = subspace_angle(matrix, again, 2, Units.RELEASED)
    assert "no more than noise" in same.notes[0]
    assert 0 < same.degrees[0] < same.noise_degrees
    other = subspace_angle(matrix, another, 2, Units.STANDARD)
    assert other.degrees[0] > other.noise_degrees
    assert not any("no more than noise" in note for note in other.notes)


def test_incomparable_matrices_are_refused() -> None:
    matrix = a_matrix()
    with refused(Code.BAD_ARGUMENT, "different columns"):
        subspace_angle(matrix, matrix.of(["a", "b"]), 1, Units.ORIGINAL)
    with refused(Code.BAD_ARGUMENT, "different scales"):
        subspace_angle(matrix, replace(matrix, scale=matrix.scale * 2), 1, Units.RELEASED)
    for k in (0, 5):
        with refused(Code.BAD_ARGUMENT, "between 1 and the 4 columns"):
            pca(matrix, k, Units.ORIGINAL, 0.95)
