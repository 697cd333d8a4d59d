"""Rotation of a subspace by random tilts of its directions towards the outside, on assumed records. To first
order the sine of the largest principal angle is the norm of the k-by-(d - k) matrix of tilt angles. Its
entries are about normal with separate variances. The distribution of the norm comes from a few matrices of
public random numbers: the largest tilts one by one, all others by their sum. Assumed records have the gaps
and squared coordinates of the directions that may rotate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import public_normals
from eigenveil.planning.error_models.assumed_records import AssumedSpectrum

INSIDE, SINGLE, GROUPS = 12, 16, 32
DRAWS = 64
LOW, HIGH = 0.1, 0.9
# 9 in 10 measured medians are within this factor of the predicted ones (benchmarks/planner.py).
MISFIT = 1.25


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutsideDirections:
    """Directions outside the wanted k, the many small ones in groups of similar value. Shape: values (g,),
    falling; counts (g,), with sum d - k."""

    values: FloatArray
    counts: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedError:
    """Predicted sine of the largest principal angle: the median, and the range of 8 in 10 runs. `raw` is the
    median to first order, which grows without bound as the noise does."""

    low: float
    median: float
    high: float
    raw: float


def combine_independent(found: PredictedError, sine: float) -> PredictedError:
    """Return the error combined with an independent error of about that sine."""
    low, median, high = (min(1.0, math.hypot(one, sine)) for one in (found.low, found.median, found.high))
    return PredictedError(low=low, median=median, high=high, raw=math.hypot(found.raw, sine))


NOISE = PredictedError(low=1.0, median=1.0, high=1.0, raw=float("inf"))


def predict_sine(
    variances: FloatArray, counts: FloatArray, started: FloatArray | None = None
) -> PredictedError:
    """Return the error for tilts of these variances. `started` are squared rests of random starting
    directions: the tilt from i to j is then a quotient of two normal numbers, with a denominator common to
    all j.
    Shape: variances and started (DRAWS or 1, m, g), counts (g,)."""
    if not np.isfinite(variances).all():
        return NOISE
    if not variances.size:
        return PredictedError(low=0.0, median=0.0, high=0.0, raw=0.0)  # k = d: no direction is outside
    norms = _norms(variances, counts, np.zeros_like(variances) if started is None else started)
    low, median, high = (float(np.quantile(norms, q)) for q in (LOW, 0.5, HIGH))
    return PredictedError(
        low=min(1.0, low / MISFIT), median=min(1.0, median), high=min(1.0, high * MISFIT), raw=median
    )


def _norms(variances: FloatArray, counts: FloatArray, started: FloatArray) -> FloatArray:
    """Return the norm of each drawn matrix. Shape: (DRAWS,)."""
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
    """Return public normal numbers. Shape: twice (DRAWS, m, SINGLE), and (DRAWS, m, 1)."""
    drawn = public_normals(b"eigenveil/turns/v1", (DRAWS, m, 2 * SINGLE + 1))
    return drawn[:, :, :SINGLE], drawn[:, :, SINGLE:-1], drawn[:, :, -1:]


CERTAIN = 0.05  # a gap with a smaller relative variance is used as it is
UNCLEAR = 0.25  # beyond this, a predicted error can be wrong by more than a factor 1.5


@dataclass(frozen=True, eq=False)
class AssumedRecords:
    """Assumed records: the wanted directions i that may rotate most, the directions j outside, and n records.
    Shape: m of the i, g of the j (in groups, see `OutsideDirections`), N points."""

    spectrum: AssumedSpectrum
    k: int
    records: float

    @property
    def first(self) -> int:
        """Return the index of the first modelled direction: the last wanted ones rotate most."""
        return max(0, self.k - INSIDE)

    @property
    def values(self) -> FloatArray:
        """Return the eigenvalues of the modelled directions. Shape: (m,)."""
        return self.spectrum.values[self.first : self.k]

    @cached_property
    def beyond(self) -> OutsideDirections:
        """Return the directions outside. Shape: (g,)."""
        beyond = self.spectrum.values[self.k :]
        if len(beyond) <= SINGLE + GROUPS:
            return OutsideDirections(values=beyond, counts=np.ones(len(beyond)))
        cuts = np.unique(np.geomspace(SINGLE, len(beyond), GROUPS + 1).astype(int))
        counts = np.diff(cuts).astype(np.float64)
        means = np.add.reduceat(beyond, cuts[:-1]) / counts
        return OutsideDirections(
            values=np.concatenate([beyond[:SINGLE], means]), counts=np.concatenate([np.ones(SINGLE), counts])
        )

    @cached_property
    def squares(self) -> FloatArray:
        """Return x_i^2 of the points. Shape: (N, m)."""
        return self.squared(self.first, self.values)

    @cached_property
    def squares_beyond(self) -> FloatArray:
        """Return x_j^2 of the points. Shape: (N, g)."""
        return self.squared(self.k, self.beyond.values)

    def squared(self, first: int, values: FloatArray) -> FloatArray:
        """Return squared coordinates from `first` on; those not stored have their expectation given the sum.
        Shape: values (v,) -> (N, v)."""
        leading, rest = self.spectrum.leading, self.spectrum.rest
        single = leading[:, first : first + len(values)] ** 2
        left = max(float(self.spectrum.values[leading.shape[1] :].sum()), 1e-300)
        return np.hstack([single, rest[:, None] * (values[single.shape[1] :] / left)])

    def product(self, weights: FloatArray) -> FloatArray:
        """Return mean(weights x_i^2 x_j^2). Shape: weights (N,) -> (m, g)."""
        return np.asarray((self.squares * weights[:, None]).T @ self.squares_beyond / len(weights))

    @cached_property
    def gaps(self) -> FloatArray:
        """Return lambda_i - lambda_j of the records' own spectrum. Shape: as `observed_gaps`."""
        return self.observed_gaps(self.values[:, None] - self.beyond.values, np.ones(len(self.spectrum.rest)))

    def observed_gaps(self, gaps: FloatArray, retained: FloatArray) -> FloatArray:
        """Return gaps of n records: chance separates similar eigenvalues, also in a public sample. The gap is
        the root of (gap + a)^2 + (2 c)^2. The variance of a is that of the difference of the variances along
        i and j, that of c is that of their covariance. Where they matter, many are drawn. Where clipping,
        which weights points by `retained`, reverses i and j, the gap is almost 0.
        Shape: (m, g), (N,) -> (DRAWS or 1, m, g)."""
        difference_variance, covariance_variance = self._chance(retained)
        chance, square = (difference_variance + covariance_variance) / self.records, gaps**2
        least = 1e-9 * self.spectrum.values[0]
        reversed_order = (gaps < 0) & (square > chance)
        square = np.where(gaps > 0, square, 0.0)
        if self.spectrum.sampled is not None:
            square = square**2 / np.maximum(
                square + (difference_variance + covariance_variance) / self.spectrum.sampled, 1e-300
            )
        if (chance <= CERTAIN * square).all():
            return np.asarray(np.sqrt(square + chance))[None]
        a, c = public_normals(b"eigenveil/gaps/v1", (2, DRAWS, *gaps.shape))
        moved = np.sqrt(square) + a * np.sqrt(difference_variance / self.records)
        drawn = np.sqrt(moved**2 + c**2 * covariance_variance / self.records)
        return np.asarray(np.where(reversed_order, least, np.maximum(drawn, least)))

    @property
    def clear(self) -> bool:
        """Return True if the sample and n records separate the last wanted direction from the next one."""
        if self.k == len(self.spectrum.values):
            return True
        difference_variance, covariance_variance = self._chance(np.ones(len(self.spectrum.rest)))
        chance = (difference_variance + covariance_variance)[-1, 0] / min(
            self.records, self.spectrum.sampled or self.records
        )
        gap = float(self.values[-1] - self.beyond.values[0])
        return bool(chance <= UNCLEAR * gap**2)

    def _chance(self, retained: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return n Var(a) and n Var(2 c) of points with weights `retained`. Shape: (m, g) each."""
        weights = retained**2
        both = self.product(weights)
        fourth = (weights[:, None] * self.squares**2).mean(axis=0)
        fourth_beyond = (weights[:, None] * self.squares_beyond**2).mean(axis=0)
        return np.maximum(fourth[:, None] + fourth_beyond - 2 * both, 0.0), 4 * both


def clipping_bias(assumed: AssumedRecords, retained: FloatArray, gaps: FloatArray) -> FloatArray:
    """Return variances of the tilt angles from clipping, for points with weights s = `retained`. A direction
    tilts by mean(s x_i x_j) / gap' among the clipped records and by mean(x_i x_j) / gap among the records.
    The difference has a variance over n and, for skewed records, a mean.
    Shape: retained (N,), gaps of the clipped records (r, m, g) -> (r, m, g)."""
    true = assumed.gaps
    square = assumed.product(retained**2) / gaps**2 - 2 * assumed.product(retained) / (gaps * true)
    square = square + assumed.product(np.ones_like(retained)) / true**2
    return np.asarray(
        np.maximum(square, 0.0) / assumed.records + _mean_clipping_bias(assumed, retained) / gaps**2
    )


def _mean_clipping_bias(assumed: AssumedRecords, retained: FloatArray) -> FloatArray:
    """Return the square of mean(s x_i x_j), minus its expectation by chance in a sample. Shape: (m, g)."""
    out = np.zeros((len(assumed.values), len(assumed.beyond.values)))
    if assumed.spectrum.sampled is None:
        return out
    leading = assumed.spectrum.leading
    x, y = leading[:, assumed.first : assumed.k], leading[:, assumed.k :]
    weighted = x * (retained - retained.mean())[:, None]
    chance = (weighted**2).T @ y**2 / len(x) ** 2
    out[: x.shape[1], : y.shape[1]] = np.maximum((weighted.T @ y / len(x)) ** 2 - chance, 0.0)
    return out
