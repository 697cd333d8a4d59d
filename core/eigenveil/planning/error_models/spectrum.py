"""What the planner assumes of records that nobody has seen: a spectrum, and how lengths spread about it.

All of it is public: a default, eigenvalues that the analyst states, or records that are public.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs
from eigenveil.numerics.public_random import public_normals

# The default: lambda_i ~ i^-0.75. At 20 to 60 columns the total is then 5 to 8 times the first, as in the
# clinical tables that were measured (2 to 7), and it is the flatter the more columns there are.
DECAY = 0.75
SPREAD = 0.25  # assumed standard deviation of a column, in half widths of its bounds
POINTS, MANY_POINTS = 1024, 4096
LEADING = 32  # coordinates of a point that are held one by one; of the others only their length
BEYOND = 4
FLOOR = 1e-12
LEAST_ROWS = 20
FITTINGS = 32  # of points to a norm and to their spectrum in turn: they then have it to 4 %


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AssumedSpectrum:
    """An assumed spectrum, and points along its axes that stand for the records.

    Shape: values (d,), falling, in analysis units; leading (N, m), the first coordinates of the points about
    their mean; rest (N,), the squared length of their other coordinates. `sampled`: the points are records,
    whose higher moments count; otherwise they are normal, and symmetric about every axis. `known`: somebody
    said so of these records; a default is not.
    """

    values: FloatArray
    leading: FloatArray
    rest: FloatArray
    source: str
    sampled: int | None = None
    known: bool = True

    @property
    def lengths(self) -> FloatArray:
        """The points' norms. Shape: (N,)."""
        return np.asarray(np.sqrt((self.leading**2).sum(axis=1) + self.rest))

    @property
    def flatness(self) -> float:
        """tr / lambda_1: about how many columns vary as much as the first component."""
        return float(self.values.sum() / self.values[0])


def default_guess(d: int, k: int) -> AssumedSpectrum:
    """The spectrum assumed when nothing is stated."""
    values: FloatArray = np.arange(1, d + 1, dtype=np.float64) ** -DECAY
    return replace(normal_guess(values, k, source="the default spectrum"), known=False)


def stated_guess(stated: Sequence[float], d: int, k: int) -> AssumedSpectrum:
    """Leading eigenvalues, in any unit; columns beyond the list share its last value.

    Raises:
        RequestError: the list is empty, too long, or not falling numbers above 0.
    """
    values = np.asarray(stated, dtype=np.float64)
    falling = bool(np.isfinite(values).all() and (values > 0).all() and (np.diff(values) <= 0).all())
    if not (1 <= len(values) <= d and falling):
        raise RequestError(
            Code.BAD_ARGUMENT, f"a spectrum is 1 to {d} numbers above 0, the largest first, such as 5,2,1"
        )
    filled = np.concatenate([values, np.full(d - len(values), values[-1])])
    return normal_guess(filled, k, source="the stated spectrum")


def normal_guess(values: FloatArray, k: int, *, source: str) -> AssumedSpectrum:
    """Normal records of a spectrum, as large as `SPREAD` says. Shape: values (d,), falling."""
    d = len(values)
    values = np.maximum(values, FLOOR * values[0])
    values = values * (d * SPREAD**2 / values.sum())
    m = _coordinates(d, k)
    normals = _normals(m + 1)
    tail = values[m:]
    return AssumedSpectrum(
        values=values,
        leading=normals[:, :m] * np.sqrt(values[:m]),
        rest=_chi_square(tail, normals[:, m]) if len(tail) else np.zeros(len(normals)),
        source=source,
    )


def sample_guess(rows: FloatArray, k: int) -> AssumedSpectrum:
    """The spectrum and the points of public records. Shape: rows (N, d), in analysis units.

    Raises:
        RequestError: too few records, or all alike.
    """
    if len(rows) < LEAST_ROWS:
        raise RequestError(
            Code.TOO_FEW_RECORDS, f"a public sample of {len(rows)} records says too little; give {LEAST_ROWS}"
        )
    centred = rows - rows.mean(axis=0)
    values, vectors = eigenpairs(centred.T @ centred / len(rows))
    if values[0] <= 0:
        raise RequestError(Code.BAD_DATA, "the records of the public sample are all alike")
    few = centred[np.linspace(0, len(rows) - 1, min(len(rows), MANY_POINTS)).astype(int)]
    leading = few @ vectors[:, : _coordinates(rows.shape[1], k)]
    return AssumedSpectrum(
        values=np.maximum(values, FLOOR * values[0]),
        leading=leading,
        rest=np.maximum((few**2).sum(axis=1) - (leading**2).sum(axis=1), 0.0),
        source=f"a public sample of {len(rows)} records",
        sampled=len(rows),
    )


def within(guess: AssumedSpectrum, norm: float) -> AssumedSpectrum:
    """The same spectrum of records that are no longer than a norm: smaller, if they were assumed longer on
    average, and with points that keep both to it and to the norm. A public sample stays as it is."""
    if guess.sampled is not None or math.isinf(norm):
        return guess
    values = guess.values * min(1.0, norm / math.sqrt(float(guess.values.sum()))) ** 2
    m = guess.leading.shape[1]
    tail, leading, rest = float(values[m:].sum()), guess.leading, guess.rest
    for _ in range(FITTINGS):
        leading = leading * np.sqrt(values[:m] / (leading**2).mean(axis=0))
        rest = rest * (tail / max(float(rest.mean()), 1e-300))
        less = np.minimum(1.0, norm / np.sqrt((leading**2).sum(axis=1) + rest))
        leading, rest = leading * less[:, None], rest * less**2
    return replace(guess, values=values, leading=leading, rest=rest)


def _coordinates(d: int, k: int) -> int:
    return min(d, k + BEYOND, LEADING)


def _chi_square(weights: FloatArray, normal: FloatArray) -> FloatArray:
    """sum_j weights_j z_j^2, by mean and variance (Wilson & Hilferty 1931). Shape: normal (N,) -> (N,)."""
    total = float(weights.sum())
    spread = 2 / 9 * float((weights**2).sum()) / total**2
    cubes = np.maximum(1 - spread + math.sqrt(spread) * normal, 0.0) ** 3
    return np.asarray(total * cubes * (len(cubes) / cubes.sum()))


@lru_cache(maxsize=8)
def _normals(columns: int) -> FloatArray:
    """Public normal numbers, the same at every call: each column of mean 0 and variance 1.

    Shape: (POINTS, columns).
    """
    normals = public_normals(b"eigenveil/points/v1", (POINTS, columns))
    out: FloatArray = (normals - normals.mean(axis=0)) / normals.std(axis=0)
    out.setflags(write=False)
    return out
