"""Released covariance of some columns in chosen units, with standard errors from the privacy noise. To first
order a function f changes by the sum of W_ij E_ij, where W is its derivative and E the noise. The sd of every
entry of E is known, so the standard error is deterministic algebra."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.derived.clipping import MOST_LOSS, NOT_STATED, ColumnLoss, IntervalTrust
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, single_blas_thread
from eigenveil.protocol.estimate import MatrixNoise, PlainResult
from eigenveil.study.scaling import named

LEVEL = 0.95
MOSTLY_NOISE = 0.5  # share of an answer's numbers that may be noise alone before a note says so


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IntervalEstimate(PlainResult):
    """Values with standard errors. An interval holds the exact answer with probability about `level`.

    Intervals are limited to `least` and `most`, the range of possible answers.

    `noise`, if given, are the errors without what clipping may have removed unseen.

    Shape: values, errors and noise have the same shape.
    Raises RequestError: code `bad-argument`, the level is not between 0 and 1."""

    values: FloatArray
    errors: FloatArray
    level: float = LEVEL
    least: float = -math.inf
    most: float = math.inf
    noise: FloatArray | None = None

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise RequestError(
                Code.BAD_ARGUMENT, f"level must lie between 0 and 1, such as 0.95; got {self.level}"
            )

    @property
    def half_width(self) -> FloatArray:
        """Half of each interval's length."""
        return np.asarray(NormalDist().inv_cdf((1 + self.level) / 2) * self.errors)

    @property
    def low(self) -> FloatArray:
        """Lower ends of the intervals."""
        return np.asarray(np.clip(self.values - self.half_width, self.least, self.most))

    @property
    def high(self) -> FloatArray:
        """Upper ends of the intervals."""
        return np.asarray(np.clip(self.values + self.half_width, self.least, self.most))

    @property
    def is_noise(self) -> NDArray[np.bool_]:
        """True where noise alone explains the value: 0 is in its interval. Boolean, of the same shape."""
        if self.noise is not None:
            return replace(self, errors=self.noise, noise=None).is_noise
        return np.asarray((self.low <= 0) & (self.high >= 0))

    def to_dict(self) -> dict[str, Any]:
        """Return lists and numbers: values, errors, ends of the intervals and their level."""
        ends = {"low": self.low.tolist(), "high": self.high.tolist()}
        return {"values": self.values.tolist(), "errors": self.errors.tolist(), "level": self.level} | ends


def noise_note(name: str, numbers: IntervalEstimate, long_interval: float) -> tuple[str, ...]:
    """Return a note if most intervals hold 0 and are longer than `long_interval`; else nothing."""
    unknown = numbers.is_noise & (2 * numbers.half_width > long_interval)
    share = float(unknown.mean()) if unknown.size else 0.0
    sentence = (
        f"mostly noise: the privacy noise hides {share:.0%} of the {name}; use fewer columns, more records "
        "or a larger epsilon"
    )
    return (sentence,) if share > MOSTLY_NOISE else ()


# Clipping bias of an entry, as a multiple of the lost share, relative to its columns' spread: 0.2 to 0.7 on
# clinical tables, up to 1.8 on tables of columns with few ones. It is an assumption, and notes say so if less
# than LEAST_RETAINED of the norm was retained.
CLIPPING_BIAS, LEAST_RETAINED = 1.0, 0.9995
DOMINATED = 3.0  # a variance below so many sds of its noise may be noise alone


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisedCovariance:
    """Noised covariance of columns, with its error model.

    `records` is the noised count. `mean_noise_variance` is the variance of the mean's noise in each column,
    in the units of `values`. `loss` is what clipping may have removed; None if the release does not state it.
    `repaired` is the increase of the least variance by `positive_definite`.

    Shape: values (m, m), the noised covariance of `columns` divided by `scale`; scale and mean (m,) in the
    columns' own units; divided (m,), the additional divisors of the release."""

    columns: tuple[str, ...]
    values: FloatArray
    scale: FloatArray
    mean: FloatArray
    records: float
    noise: MatrixNoise
    mean_noise_variance: float
    divided: FloatArray
    loss: ColumnLoss | None
    repaired: float = 0.0

    def of(self, names: Sequence[str]) -> NoisedCovariance:
        """Return the covariance of these columns, in this order. Raises RequestError: a name is unknown or
        repeated."""
        at = self.places(names)
        return replace(
            self,
            columns=tuple(names),
            values=self.values[np.ix_(at, at)],
            scale=self.scale[at],
            mean=self.mean[at],
            divided=self.divided[at],
            loss=None if self.loss is None else self.loss.of(at),
        )

    def places(self, names: Sequence[str]) -> list[int]:
        """Return the places of these columns. Raises RequestError: a name is unknown or repeated."""
        at = [self._column_index(name) for name in names]
        if len(set(at)) < len(at):
            raise RequestError(Code.BAD_ARGUMENT, f"a column is named twice: {', '.join(names)}")
        return at

    def _column_index(self, name: str) -> int:
        if name in self.columns:
            return self.columns.index(name)
        similar = difflib.get_close_matches(name, self.columns, n=3) or list(self.columns[:8])
        raise RequestError(
            Code.BAD_ARGUMENT, f"the release has no column {name!r}; similar columns: {', '.join(similar)}"
        )

    def positive_definite(self) -> NoisedCovariance:
        """Return the nearest matrix whose eigenvalues are at least the noise: an invertible covariance. A
        variance below its own sd is noise. Of the floors tried, this one gives the shortest intervals with
        full coverage (benchmarks/derived.py)."""
        values, vectors = eigenpairs(self.values)
        least = self.noise.off_diagonal
        if values[-1] >= least:
            return self
        lifted = np.asarray((vectors * np.maximum(values, least)) @ vectors.T)
        return replace(self, values=lifted, repaired=float(least - values[-1]))

    def errors(self, derivatives: FloatArray) -> FloatArray:
        """Return the sd of sum_ij W_ij E_ij for the errors E of this matrix. Shape: derivatives (..., m, m)
        -> (...)."""
        entry_weights = 2 * self.entry_errors**2  # an entry off the diagonal occurs twice with one error
        np.fill_diagonal(entry_weights, np.diag(entry_weights) / 2)
        common = (derivatives * self.values).sum(axis=(-2, -1)) * self.common_error
        return np.asarray(np.sqrt((derivatives**2 * entry_weights).sum(axis=(-2, -1)) + common**2))

    @property
    def entry_errors(self) -> FloatArray:
        """Sd of each entry: the noise, the square of the mean's noise, and the clipping bias. Shape: (m, m),
        symmetric."""
        here = np.eye(len(self.columns))
        noise = np.where(here, self.noise.diagonal, self.noise.off_diagonal)
        sizes = np.sqrt(np.maximum(np.diag(self.values), 0.0))
        bias = np.full((len(sizes), len(sizes)), CLIPPING_BIAS * (1 - self.noise.retained_share))
        # By Cauchy & Schwarz an entry loses at most the root of both columns' losses.
        if self.loss is not None:
            column_bias = self.loss.bias(self._variances)
            bias = np.hypot(bias, np.sqrt(np.outer(column_bias, column_bias)))
        clipping_bias = bias * np.outer(sizes, sizes) * (1 + (math.sqrt(2) - 1) * here)
        return np.asarray(np.sqrt(noise**2 + self.mean_noise_variance**2 * (1 + 2 * here) + clipping_bias**2))

    @property
    def noise_only(self) -> NoisedCovariance:
        """This matrix, with errors by noise alone: as if no record had been clipped."""
        return replace(self, loss=None, noise=replace(self.noise, retained_share=1.0))

    @property
    def noise_dominated(self) -> NDArray[np.bool_]:
        """True for each column whose variance may be noise alone. Shape: (m,)."""
        return np.asarray(np.diag(self.values) < DOMINATED * self.noise.diagonal)

    @property
    def _variances(self) -> FloatArray:
        """Variances, at least the noise. Shape: (m,)."""
        return np.maximum(np.diag(self.values), self.noise.off_diagonal)

    @property
    def intervals(self) -> IntervalTrust:
        """Trust in intervals from this matrix."""
        if self.loss is None or self.loss.exposed(self._variances).any():
            return IntervalTrust.UNKNOWN
        return IntervalTrust.TRUSTED

    @property
    def common_error(self) -> float:
        """Common relative error of all entries, from the count, the average correction of clipping, and what
        it may lack."""
        unseen = 0.0 if self.loss is None else self.loss.common
        return math.hypot(self.noise.count, 1 - self.noise.retained_share, unseen)

    @property
    def mean_errors(self) -> FloatArray:
        """Sd of each mean, in the units of `values`: its noise and its clipping bias. Shape: (m,)."""
        bias = np.zeros(len(self.columns)) if self.loss is None else self.loss.mean_bias(self._variances)
        return np.asarray(np.hypot(math.sqrt(self.mean_noise_variance), bias))

    def notes(self) -> tuple[str, ...]:
        """Return the caveats of every answer from this matrix."""
        sentences = []
        if self.repaired:
            sentences.append(
                "noise left these columns without a proper covariance: variances below the noise were raised "
                "to it, and the errors are those of the repaired matrix"
            )
        if names := [self.columns[i] for i in np.flatnonzero(self.noise_dominated)]:
            sentences.append(
                f"the variance of {', '.join(names)} may be noise alone: their correlations are unknown, and "
                "values divided by their standard deviations are unreliable"
            )
        return (*sentences, *self._clipping_notes())

    def _clipping_notes(self) -> tuple[str, ...]:
        sentences = []
        if self.noise.retained_share < LEAST_RETAINED:
            sentences.append(
                f"clipping kept about {self.noise.retained_share:.2%} of the records' squared norm; the "
                "errors include an assumed bias"
            )
        if self.loss is None:
            sentences.append(NOT_STATED)
        elif (exposed := self.loss.exposed(self._variances)).any():
            names = named([self.columns[i] for i in np.flatnonzero(exposed)])
            sentences.append(
                f"clipping may have removed much of the variance of {names}, as of columns with few ones or "
                f"outliers, so whether intervals hold is unknown; {self._remedy(exposed)}"
            )
        if self.loss is not None and self.loss.contradicted.any():
            names = named([self.columns[i] for i in np.flatnonzero(self.loss.contradicted)])
            sentences.append(
                f"mean and variance of the two-valued {names} contradict each other: clipping changed one of "
                "them or both"
            )
        return tuple(sentences)

    def _remedy(self, exposed: NDArray[np.bool_]) -> str:
        """Return the advice for exposed columns: no clipping, if their variances, and what a trusted answer
        may have lost, would exceed the noise."""
        assert self.loss is not None
        noise = DOMINATED * self.noise.diagonal * self.loss.noise_growth
        largest = (1 + MOST_LOSS) * self._variances[exposed]
        if self.noise.divisors:
            return 'use narrower bounds, scaling = "bounds", or leave them out'
        if (largest > noise).all():
            return 'use a study with radius = "none", which clips nothing, or leave them out'
        without = "" if exposed.all() else "leave them out, or "
        return f"{without}use narrower bounds, more records or a larger epsilon"


def inverse_of(matrix: FloatArray) -> FloatArray:
    """Return the inverse of a matrix, computed on one thread. Shape: (m, m) -> (m, m)."""
    with single_blas_thread():
        return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


class Units(Enum):
    """Units of the columns. `released`: divided by the release's `scale`; `original`: the columns' own;
    `standard`: divided by their standard deviations, so that a covariance is a correlation."""

    RELEASED = "released"
    ORIGINAL = "original"
    STANDARD = "standard"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScaledCovariance:
    """Scaled covariance T A T of the released A, with a diagonal T that depends on A for standard units.
    Shape: weights (m,), the diagonal of T; values (m, m)."""

    matrix: NoisedCovariance
    weights: FloatArray
    standard: bool

    @classmethod
    def of(cls, matrix: NoisedCovariance, units: Units) -> ScaledCovariance:
        """Return `matrix` in these units."""
        match units:
            case Units.RELEASED:
                weights = 1 / matrix.divided
            case Units.ORIGINAL:
                weights = matrix.scale
            case Units.STANDARD:
                least = matrix.noise.off_diagonal  # a smaller variance is noise
                weights = 1 / np.sqrt(np.maximum(np.diag(matrix.values), least))
        return cls(matrix=matrix, weights=weights, standard=units is Units.STANDARD)

    @property
    def values(self) -> FloatArray:
        """Covariance in these units."""
        return np.asarray(self.weights[:, None] * self.matrix.values * self.weights)

    def derivatives(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return the derivative by A of left_i^T (T A T) right_i. Shape: (b, m), (b, m) -> (b, m, m). With T
        = diag(A)^(-1/2), a relative growth e of a diagonal entry shrinks its row and its column by e / 2.
        This adds - sum_i (x_i (M y)_i + (M x)_i y_i) / (2 A_ii)."""
        one, other = left * self.weights, right * self.weights
        out = np.asarray(one[:, :, None] * other[:, None, :])
        out = (out + out.transpose(0, 2, 1)) / 2
        if self.standard:
            moved = left * (right @ self.values) + (left @ self.values) * right
            at = np.arange(len(self.weights))
            out[:, at, at] -= moved * self.weights**2 / 2
        return out
