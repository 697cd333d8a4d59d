"""How far a subspace turns when each of its directions leans towards each direction outside at random.

To first order the sine of the largest principal angle is the norm of the k-by-(d - k) matrix of leanings,
whose entries are about normal, each with a variance of its own. Its law is read off a few matrices of public
numbers: the largest leanings one by one, all others by their sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.public_random import public_normals

INSIDE, SINGLE, GROUPS = 12, 16, 32
DRAWS = 64
LOW, HIGH = 0.1, 0.9
# Measured medians lie this far from predicted ones, 9 in 10 of them (benchmarks/planner.py).
MISFIT = 1.25


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outside:
    """The directions outside the wanted k, the many small ones in groups of like value.

    Shape: values (g,), falling; counts (g,), summing up to d - k.
    """

    values: FloatArray
    counts: FloatArray


def outside(values: FloatArray, k: int) -> Outside:
    """What lies beyond the k-th of falling eigenvalues. Shape: values (d,)."""
    beyond = values[k:]
    if len(beyond) <= SINGLE + GROUPS:
        return Outside(values=beyond, counts=np.ones(len(beyond)))
    cuts = np.unique(np.geomspace(SINGLE, len(beyond), GROUPS + 1).astype(int))
    sums = np.add.reduceat(beyond, cuts[:-1])
    counts = np.diff(cuts).astype(np.float64)
    return Outside(
        values=np.concatenate([beyond[:SINGLE], sums / counts]),
        counts=np.concatenate([np.ones(SINGLE), counts]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedError:
    """A predicted sine of the largest principal angle: the median, and where 8 in 10 runs should lie.

    `raw` is the median to first order, which grows without bound as the noise does.
    """

    low: float
    median: float
    high: float
    raw: float


def beside(found: PredictedError, sine: float) -> PredictedError:
    """An error with another, independent one of about that sine beside it."""
    low, median, high = (min(1.0, math.hypot(one, sine)) for one in (found.low, found.median, found.high))
    return PredictedError(low=low, median=median, high=high, raw=math.hypot(found.raw, sine))


NOISE = PredictedError(low=1.0, median=1.0, high=1.0, raw=float("inf"))


def error(variances: FloatArray, counts: FloatArray, started: FloatArray | None = None) -> PredictedError:
    """The error that leans of these variances give.

    `started` are squares of what is left of a start in directions that are no better than random ones: its
    lean from i to j is a quotient of two normal numbers, of which the lower one is common to all j.

    Shape: variances and started (DRAWS or 1, m, g), counts (g,).
    """
    if not np.isfinite(variances).all():
        return NOISE
    if not variances.size:
        return PredictedError(low=0.0, median=0.0, high=0.0, raw=0.0)  # k = d: there is nothing outside
    norms = _norms(variances, counts, np.zeros_like(variances) if started is None else started)
    low, median, high = (float(np.quantile(norms, q)) for q in (LOW, 0.5, HIGH))
    return PredictedError(
        low=min(1.0, low / MISFIT), median=min(1.0, median), high=min(1.0, high * MISFIT), raw=median
    )


def _norms(variances: FloatArray, counts: FloatArray, started: FloatArray) -> FloatArray:
    """The norm of each drawn matrix. Shape: (DRAWS,)."""
    m = variances.shape[1]
    single = min(int(np.argmax(counts > 1)) if (counts > 1).any() else len(counts), SINGLE)
    fresh, old, below = _draws(m)
    drawn = fresh[:, :, :single] * np.sqrt(variances[..., :single])
    drawn = drawn + old[:, :, :single] * np.sqrt(started[..., :single]) / below
    many = (variances[..., single:] * counts[single:]).sum(axis=-1)[..., None]
    many = many + (started[..., single:] * counts[single:]).sum(axis=-1)[..., None] / below**2
    squares = drawn @ drawn.transpose(0, 2, 1) + np.eye(m) * many
    return np.asarray(np.sqrt(np.maximum(np.linalg.eigvalsh(squares)[:, -1], 0.0)))


@lru_cache(maxsize=INSIDE)
def _draws(m: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Shape: twice (DRAWS, m, SINGLE), and (DRAWS, m, 1)."""
    drawn = public_normals(b"eigenveil/turns/v1", (DRAWS, m, 2 * SINGLE + 1))
    return drawn[:, :, :SINGLE], drawn[:, :, SINGLE:-1], drawn[:, :, -1:]
