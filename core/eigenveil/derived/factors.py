"""Factor analysis of correlations: principal axes by least squares, with varimax or promax rotation."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from itertools import combinations

import numpy as np

from eigenveil.derived.clipping import IntervalTrust
from eigenveil.derived.covariance import (
    IntervalEstimate,
    NoisedCovariance,
    ScaledCovariance,
    Units,
    inverse_of,
    noise_note,
)
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import fix_signs, public_normals, single_blas_thread
from eigenveil.protocol.estimate import PlainResult

DRAWS = 200
FIRST_STEPS, STEPS, TOLERANCE = 2000, 200, 1e-6
LEAST_UNIQUENESS = 0.005  # of a column, as in other software; below it a solution is improper
LONG_INTERVAL = 1.0
PROMAX_POWER = 4  # exponent of promax, as its authors chose


class Rotation(Enum):
    """Rotation of factors: `varimax` is orthogonal, `promax` is oblique, `none` orders them by size."""

    NONE = "none"
    VARIMAX = "varimax"
    PROMAX = "promax"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Factors(PlainResult):
    """Factors of standardised columns with errors. Shape: loadings (m, k); unique (m,), the share of each
    column's variance that no factor explains; between (k, k), the factors' correlations."""

    columns: tuple[str, ...]
    rotation: Rotation
    loadings: IntervalEstimate
    unique: IntervalEstimate
    between: FloatArray
    intervals: IntervalTrust
    notes: tuple[str, ...]


def factor_analysis(matrix: NoisedCovariance, k: int, rotation: Rotation, level: float) -> Factors:
    """Return the loadings L that minimise the squares of R - L L^T off its diagonal, for the correlations R.

    All entries of a noised matrix have about the same error, so least squares weights them equally. The
    errors are the spread over matrices drawn about this one with its noise. Raises RequestError: fewer than 3
    columns, or too many factors for them."""
    m = len(matrix.columns)
    if m < 3 or not 1 <= k <= (m - 1) // 2:
        raise RequestError(
            Code.BAD_ARGUMENT, f"{m} columns allow at most {max((m - 1) // 2, 0)} factors; got {k}"
        )
    repaired = matrix.positive_definite()
    correlation_draws = [_correlations(one) for one in (repaired, *_noise_draws(repaired))]
    first = _principal_axes(correlation_draws[0][None], np.ones((1, m)) / 2, k, FIRST_STEPS)
    start = np.repeat(first[1], DRAWS, axis=0)
    others, shares = _principal_axes(np.array(correlation_draws[1:]), start, k, STEPS)
    loadings, between = _rotate(first[0][0], rotation)
    spread = np.array([match_factors(_rotate(one, rotation)[0], loadings) for one in others])
    numbers = _with_spread(loadings, spread, level, -1.0)
    return Factors(
        columns=repaired.columns,
        rotation=rotation,
        loadings=numbers,
        unique=_with_spread(first[1][0], shares, level, 0.0),
        between=between,
        intervals=matrix.intervals,
        notes=(*noise_note("loadings", numbers, LONG_INTERVAL), *repaired.notes()),
    )


def _with_spread(values: FloatArray, others: FloatArray, level: float, least: float) -> IntervalEstimate:
    errors = np.sqrt(np.mean((others - values) ** 2, axis=0))
    return IntervalEstimate(values=values, errors=errors, level=level, least=least, most=1.0)


def _correlations(matrix: NoisedCovariance) -> FloatArray:
    values = ScaledCovariance.of(matrix, Units.STANDARD).values
    np.fill_diagonal(values, 1.0)
    return values


def _noise_draws(matrix: NoisedCovariance) -> list[NoisedCovariance]:
    """Return matrices drawn about this one with its noise, in antithetic pairs."""
    m = len(matrix.columns)
    normals = public_normals(b"eigenveil/derived/factors/v1", (DRAWS // 2, m, m))
    upper = np.triu(normals)
    moved = (upper + np.triu(normals, 1).transpose(0, 2, 1)) * matrix.entry_errors
    return [replace(matrix, values=matrix.values + sign * one) for sign in (1, -1) for one in moved]


def _principal_axes(
    correlations: FloatArray, unique: FloatArray, k: int, most: int
) -> tuple[FloatArray, FloatArray]:
    """Return principal axes and uniquenesses, by alternating iteration. Shape: (b, m, m), (b, m) -> (b, m,
    k), (b, m)."""
    at = np.arange(correlations.shape[-1])
    with single_blas_thread():
        for _ in range(most):
            reduced = correlations.copy()
            reduced[:, at, at] -= unique
            values, vectors = np.linalg.eigh(reduced)
            loadings = vectors[:, :, : -k - 1 : -1] * np.sqrt(np.maximum(values[:, None, : -k - 1 : -1], 0.0))
            before, unique = unique, np.clip(1 - (loadings**2).sum(axis=2), LEAST_UNIQUENESS, 1.0)
            if np.abs(unique - before).max() < TOLERANCE:
                break
    return np.asarray(loadings), np.asarray(unique, dtype=np.float64)


def _rotate(loadings: FloatArray, rotation: Rotation) -> tuple[FloatArray, FloatArray]:
    """Return rotated loadings, largest factor first with positive signs, and the factors' correlations."""
    k = loadings.shape[1]
    rotation_matrix = np.eye(k)
    if rotation is not Rotation.NONE and k > 1:
        rotation_matrix = varimax(loadings)
    if rotation is Rotation.PROMAX and k > 1:
        rotation_matrix = rotation_matrix @ _promax(loadings @ rotation_matrix)
    rotated = loadings @ rotation_matrix
    between = inverse_of(rotation_matrix.T @ rotation_matrix)
    order = np.argsort(-(rotated**2).sum(axis=0), kind="stable")
    rotated, between = rotated[:, order], between[np.ix_(order, order)]
    signs = np.sign((rotated * fix_signs(rotated)).sum(axis=0))
    return rotated * signs, between * np.outer(signs, signs)


def varimax(loadings: FloatArray) -> FloatArray:
    """Return the varimax rotation matrix (Kaiser 1958, with rows of equal norm). Each plane is rotated by its
    best angle. The simultaneous iteration by singular values may oscillate about the best angle without end.
    Shape: (m, k) -> (k, k)."""
    lengths = np.linalg.norm(loadings, axis=1, keepdims=True)
    rows, k = loadings / np.maximum(lengths, 1e-12), loadings.shape[1]
    rotation_matrix = np.eye(k)
    for _ in range(STEPS):
        angles = []
        for pair in combinations(range(k), 2):
            angle = _best_angle(*(rows @ rotation_matrix[:, pair]).T)
            cosine, sine = math.cos(angle), math.sin(angle)
            rotation_matrix[:, pair] = rotation_matrix[:, pair] @ np.array([[cosine, -sine], [sine, cosine]])
            angles.append(abs(angle))
        if max(angles) < TOLERANCE:
            break
    return rotation_matrix


def _best_angle(x: FloatArray, y: FloatArray) -> float:
    """Return the best rotation angle in the plane of two factors. Shape: (m,), (m,)."""
    u, v = x**2 - y**2, 2 * x * y
    across = 2 * float(u @ v) - 2 * float(u.sum() * v.sum()) / u.size
    along = float(u @ u - v @ v) - float(u.sum() ** 2 - v.sum() ** 2) / u.size
    return math.atan2(across, along) / 4


def _promax(loadings: FloatArray) -> FloatArray:
    """Return the promax rotation matrix (Hendrickson & White 1964)."""
    target = loadings * np.abs(loadings) ** (PROMAX_POWER - 1)
    rotation_matrix = np.linalg.lstsq(loadings, target, rcond=None)[0]
    return np.asarray(rotation_matrix * np.sqrt(np.diag(inverse_of(rotation_matrix.T @ rotation_matrix))))


def match_factors(loadings: FloatArray, model: FloatArray) -> FloatArray:
    """Return the factors in the order and with the signs that match those of `model` best."""
    likeness = model.T @ loadings
    out, unmatched = np.empty_like(loadings), np.abs(likeness)
    for _ in range(loadings.shape[1]):
        i, j = np.unravel_index(int(unmatched.argmax()), unmatched.shape)
        out[:, i] = loadings[:, j] * (1.0 if likeness[i, j] >= 0 else -1.0)
        unmatched[i], unmatched[:, j] = -1.0, -1.0
    return out
