"""Factors behind correlations: principal axes by least squares, turned so that each column goes with few."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from itertools import combinations
from typing import Any

import numpy as np

from eigenveil.derived.frame import Frame, Units
from eigenveil.derived.matrix import Noised, inverted
from eigenveil.derived.uncertain import Uncertain, noise_note
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.blas import one_thread
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import fix_signs
from eigenveil.numerics.public_random import public_normals

DRAWS = 200
FIRST_STEPS, STEPS, CLOSE = 2000, 200, 1e-6
LEAST = 0.005  # of a variance is a column's own, as in other software: below it a solution is improper
WIDE = 1.0
POWER = 4  # of promax, as its authors chose


class Rotation(Enum):
    """`varimax` keeps factors uncorrelated, `promax` does not, `none` leaves them by size."""

    NONE = "none"
    VARIMAX = "varimax"
    PROMAX = "promax"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Factors:
    """Shape: loadings (m, k), of standardised columns; unique (m,), the share of each column's variance that
    no factor explains; between (k, k), the factors' correlations."""

    columns: tuple[str, ...]
    rotation: Rotation
    loadings: Uncertain
    unique: Uncertain
    between: FloatArray
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Lists and numbers."""
        return {
            "columns": list(self.columns),
            "rotation": self.rotation.value,
            "loadings": self.loadings.to_dict(),
            "unique": self.unique.to_dict(),
            "between": self.between.tolist(),
            "notes": list(self.notes),
        }


def factor_analysis(matrix: Noised, k: int, rotation: Rotation, level: float) -> Factors:
    """Loadings L that leave the least squares of R - L L^T off its diagonal, for the correlations R.

    Every entry of a noised matrix is known about as well as any other, which is what least squares is for.
    The errors are the spread over matrices that lie about this one as its noise says.

    Raises:
        RequestError: fewer than 3 columns, or not fewer factors than half of them.
    """
    m = len(matrix.columns)
    if m < 3 or not 1 <= k <= (m - 1) // 2:
        raise RequestError(
            Code.BAD_ARGUMENT,
            f"{m} columns tell at most {max((m - 1) // 2, 0)} factors; got {k}",
        )
    whole = matrix.positive()
    around = [_correlations(one) for one in (whole, *_alike(whole))]
    first = _principal_axes(around[0][None], np.ones((1, m)) / 2, k, FIRST_STEPS)
    start = np.repeat(first[1], DRAWS, axis=0)
    others, shares = _principal_axes(np.array(around[1:]), start, k, STEPS)
    loadings, between = _rotated(first[0][0], rotation)
    spread = np.array([matched(_rotated(one, rotation)[0], loadings) for one in others])
    numbers = _about(loadings, spread, level, -1.0)
    return Factors(
        columns=whole.columns,
        rotation=rotation,
        loadings=numbers,
        unique=_about(first[1][0], shares, level, 0.0),
        between=between,
        notes=(*noise_note("loadings", numbers, WIDE), *whole.notes()),
    )


def _about(values: FloatArray, others: FloatArray, level: float, least: float) -> Uncertain:
    errors = np.sqrt(np.mean((others - values) ** 2, axis=0))
    return Uncertain(values=values, errors=errors, level=level, least=least, most=1.0)


def _correlations(matrix: Noised) -> FloatArray:
    values = Frame.of(matrix, Units.STANDARD).values
    at = np.diag_indices(len(values))
    values[at] = 1.0
    return values


def _alike(matrix: Noised) -> list[Noised]:
    """Matrices that lie about this one as its noise says: half of them on the other side of the rest."""
    m = len(matrix.columns)
    normals = public_normals(b"eigenveil/derived/factors/v1", (DRAWS // 2, m, m))
    upper = np.triu(normals)
    moved = (upper + np.triu(normals, 1).transpose(0, 2, 1)) * matrix.entries
    return [replace(matrix, values=matrix.values + sign * one) for sign in (1, -1) for one in moved]


def _principal_axes(
    correlations: FloatArray, unique: FloatArray, k: int, most: int
) -> tuple[FloatArray, FloatArray]:
    """Principal axes with the diagonal that they explain, found in turns. Shape: (b, m, m), (b, m) ->
    (b, m, k), (b, m)."""
    at = np.arange(correlations.shape[-1])
    with one_thread():
        for _ in range(most):
            reduced = correlations.copy()
            reduced[:, at, at] -= unique
            values, vectors = np.linalg.eigh(reduced)
            loadings = vectors[:, :, : -k - 1 : -1] * np.sqrt(np.maximum(values[:, None, : -k - 1 : -1], 0.0))
            before, unique = unique, np.clip(1 - (loadings**2).sum(axis=2), LEAST, 1.0)
            if np.abs(unique - before).max() < CLOSE:
                break
    return np.asarray(loadings), np.asarray(unique, dtype=np.float64)


def _rotated(loadings: FloatArray, rotation: Rotation) -> tuple[FloatArray, FloatArray]:
    """Loadings, the factor that explains most first, each with its largest positive; and the correlations."""
    k = loadings.shape[1]
    turn = np.eye(k)
    if rotation is not Rotation.NONE and k > 1:
        turn = varimax(loadings)
    if rotation is Rotation.PROMAX and k > 1:
        turn = turn @ _promax(loadings @ turn)
    turned = loadings @ turn
    between = inverted(turn.T @ turn)
    order = np.argsort(-(turned**2).sum(axis=0), kind="stable")
    turned, between = turned[:, order], between[np.ix_(order, order)]
    signs = np.sign((turned * fix_signs(turned)).sum(axis=0))
    return turned * signs, between * np.outer(signs, signs)


def varimax(loadings: FloatArray) -> FloatArray:
    """The turn after which squared loadings differ most within factors (Kaiser 1958, rows of equal length).

    Plane by plane, each by the angle that is the best there: iterating over all at once, by singular values,
    may step over the best angle and back for ever. Shape: (m, k) -> (k, k).
    """
    lengths = np.linalg.norm(loadings, axis=1, keepdims=True)
    rows, k = loadings / np.maximum(lengths, 1e-12), loadings.shape[1]
    turn = np.eye(k)
    for _ in range(STEPS):
        angles = []
        for pair in combinations(range(k), 2):
            angle = _best_angle(*(rows @ turn[:, pair]).T)
            cosine, sine = math.cos(angle), math.sin(angle)
            turn[:, pair] = turn[:, pair] @ np.array([[cosine, -sine], [sine, cosine]])
            angles.append(abs(angle))
        if max(angles) < CLOSE:
            break
    return turn


def _best_angle(x: FloatArray, y: FloatArray) -> float:
    """By which to turn two factors into each other. Shape: (m,), (m,)."""
    u, v = x**2 - y**2, 2 * x * y
    across = 2 * float(u @ v) - 2 * float(u.sum() * v.sum()) / u.size
    along = float(u @ u - v @ v) - float(u.sum() ** 2 - v.sum() ** 2) / u.size
    return math.atan2(across, along) / 4


def _promax(loadings: FloatArray) -> FloatArray:
    """The oblique turn nearest to loadings with small ones made smaller (Hendrickson & White 1964)."""
    target = loadings * np.abs(loadings) ** (POWER - 1)
    turn = np.linalg.lstsq(loadings, target, rcond=None)[0]
    return np.asarray(turn * np.sqrt(np.diag(inverted(turn.T @ turn))))


def matched(loadings: FloatArray, model: FloatArray) -> FloatArray:
    """The same factors in the order and with the signs in which they are most like those of `model`."""
    likeness = model.T @ loadings
    out, free = np.empty_like(loadings), np.abs(likeness)
    for _ in range(loadings.shape[1]):
        i, j = np.unravel_index(int(free.argmax()), free.shape)
        out[:, i] = loadings[:, j] * (1.0 if likeness[i, j] >= 0 else -1.0)
        free[i], free[:, j] = -1.0, -1.0
    return out
