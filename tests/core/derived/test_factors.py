"""Factor analysis finds planted factors, and a rotation changes no communality."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eigenveil.derived.clipping import ColumnLoss
from eigenveil.derived.covariance import NoisedCovariance
from eigenveil.derived.factors import Rotation, factor_analysis, match_factors, varimax
from eigenveil.errors import Code
from tests.core.derived.drawn import a_matrix, a_noise
from tests.support import refused

LOADINGS = np.array([[0.9, 0], [0.7, 0], [0.6, 0], [0.8, 0], [0, 0.8], [0, 0.7], [0, 0.5]])


def of_factors(size: float, between: float = 0.0) -> NoisedCovariance:
    """Seven columns that two factors explain, in variances of their own."""
    sizes = np.array([1, 0.5, 2, 1, 0.2, 1, 3]) / 10
    shared = LOADINGS @ np.array([[1, between], [between, 1]]) @ LOADINGS.T
    np.fill_diagonal(shared, 1.0)
    return replace(
        a_matrix(),
        columns=tuple("abcdefg"),
        values=shared * np.outer(sizes, sizes),
        scale=np.ones(7),
        mean=np.zeros(7),
        noise=a_noise(size),
        loss=ColumnLoss.none(7),
    )


@pytest.mark.parametrize(("rotation", "between"), [(Rotation.VARIMAX, 0.0), (Rotation.PROMAX, 0.3)])
def test_factors_that_made_the_correlations_are_found_again(rotation: Rotation, between: float) -> None:
    found = factor_analysis(of_factors(1e-9, between), 2, rotation, 0.95)
    close = 1e-3 if rotation is Rotation.VARIMAX else 0.1  # promax comes near, as its target is a guess
    assert np.allclose(found.loadings.values, LOADINGS, atol=close)
    assert np.allclose(found.between, [[1, between], [between, 1]], atol=close)
    assert np.allclose(found.unique.values, 1 - (LOADINGS**2).sum(axis=1), atol=1e-3)


def test_a_turn_changes_no_communality_and_no_fit() -> None:
    plain, turned = (
        factor_analysis(of_factors(1e-6, 0.3), 2, one, 0.95).loadings.values
        for one in (Rotation.NONE, Rotation.VARIMAX)
    )
    assert np.allclose(plain @ plain.T, turned @ turned.T)
    assert not np.allclose(plain, turned, atol=0.1)
    turn = varimax(plain)
    assert np.allclose(turn.T @ turn, np.eye(2))
    rows = plain / np.linalg.norm(plain, axis=1, keepdims=True)
    tried = [np.array([[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]]) for t in np.linspace(0, np.pi, 400)]
    best = max(((rows @ one) ** 2).var(axis=0).sum() for one in tried)
    assert ((rows @ turn) ** 2).var(axis=0).sum() >= best


def test_stated_errors_match_the_spread_over_noise() -> None:
    matrix, generator, found = of_factors(5e-5), np.random.default_rng(4), []
    stated = factor_analysis(matrix, 2, Rotation.VARIMAX, 0.95).loadings
    for _ in range(8):
        upper = np.triu(generator.normal(size=(7, 7)), 1) * 5e-5
        moved = upper + upper.T + np.diag(generator.normal(size=7)) * 5e-5 * np.sqrt(2)
        again = factor_analysis(replace(matrix, values=matrix.values + moved), 2, Rotation.VARIMAX, 0.95)
        found.append((match_factors(again.loadings.values, stated.values) - stated.values) / stated.errors)
    assert 0.8 < np.sqrt(np.mean(np.square(found))) < 1.25


def test_factors_of_noise_alone_are_noted_and_too_many_are_refused() -> None:
    assert "mostly noise" in factor_analysis(of_factors(1.0), 2, Rotation.VARIMAX, 0.95).notes[0]
    for k in (0, 4):
        with refused(Code.BAD_ARGUMENT, "at most 3 factors"):
            factor_analysis(of_factors(1e-6), k, Rotation.VARIMAX, 0.95)
