"""Matrices with noise drawn here, to compare stated errors with their spread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from eigenveil.derived.clipping import ColumnLoss
from eigenveil.derived.covariance import NoisedCovariance
from eigenveil.numerics.encoding import FloatArray
from eigenveil.protocol.estimate import MatrixNoise
from eigenveil.protocol.query import NoiseDistribution

DRAWS = 500
WITHIN = 0.11  # of an error: three and a half of the standard errors of DRAWS draws, which are seeded


def a_noise(size: float, *, even: bool = False, count: float = 0.0, remaining: float = 1.0) -> MatrixNoise:
    """Symmetric noise of that sd off the diagonal, or as much on it."""
    return MatrixNoise(
        distribution=NoiseDistribution.GAUSSIAN,
        diagonal=size if even else size * np.sqrt(2),
        off_diagonal=size,
        count=count,
        centre=0.0,
        retained_share=remaining,
    )


def a_matrix(
    size: float = 1e-4, *, even: bool = False, count: float = 0.0, seed: int = 3
) -> NoisedCovariance:
    """Four columns in units of their own, correlated, without noise yet."""
    rows = np.random.default_rng(seed).normal(size=(50, 4)) @ np.triu(np.ones((4, 4)))
    return NoisedCovariance(
        columns=tuple("abcd"),
        values=np.cov(rows.T, bias=True) / 10,
        scale=np.array([1.0, 20.0, 0.5, 3.0]),
        mean=np.array([5.0, -2.0, 0.1, 40.0]),
        records=1000.0,
        noise=a_noise(size, even=even, count=count),
        mean_noise_variance=0.0,
        divided=np.ones(4),
        loss=ColumnLoss.none(4),
    )


def spread(matrix: NoisedCovariance, answer: Callable[[NoisedCovariance], FloatArray]) -> FloatArray:
    """The sd of an answer over DRAWS matrices and means with noise as `matrix` says it has."""
    generator, m, noise = np.random.default_rng(8), len(matrix.columns), matrix.noise
    means = np.random.default_rng(9).normal(size=(DRAWS, m)) * np.sqrt(matrix.mean_noise_variance)
    found = []
    for away in means:
        upper = np.triu(generator.normal(size=(m, m)), 1) * noise.off_diagonal
        moved = upper + upper.T + np.diag(generator.normal(size=m)) * noise.diagonal
        moved += matrix.values * noise.count * generator.normal() + np.outer(away, away)
        mean = matrix.mean + away * matrix.scale
        found.append(answer(replace(matrix, values=matrix.values + moved, mean=mean)))
    return np.asarray(np.std(found, axis=0))
