"""Variance that clipping may have removed from columns of a released covariance, and trust in intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from eigenveil.numerics.encoding import FloatArray
from eigenveil.protocol.estimate import MatrixClipping

# The sd of a column's relative bias is LOSS_BIAS times its largest relative loss to the power LOSS_POWER:
# small possible losses are rarely real. Beyond MOST_LOSS the error is unknown. Chosen on other tables than
# those of `python -m benchmarks.interval_families`.
LOSS_BIAS, LOSS_POWER, MOST_LOSS = 0.15, 2.0, 1.5
# The sd of the relative loss that all columns have in common, as a share of a typical column's limit in the
# total variance: long tails of whole records reach it.
COMMON_LOSS = 1.0
# The sd of a mean's bias: records clipped to norm R take at most a column's lost variance over 2 R from its
# mean, and do so for columns of few ones; the mean has a radius of its own, often a smaller one.
MEAN_LOSS = 1 / 2
MOST_OUTSIDE = 0.25  # share of a column's variance cut off at the ends of its frame; above, it is unknown
CONTRADICTED = 3.0  # sd of noise between a two-valued column's variance and that of its mean
CONFIRMED = 0.25  # share of the variance within which the two agree well enough to limit the loss
NOT_STATED = (
    "this release does not state what clipping may have removed from a column, so whether the intervals hold "
    "is unknown; a new study of gauss-cov, analyze-gauss or refined-cov states it, and one with "
    'radius = "none" clips nothing'
)


class IntervalTrust(StrEnum):
    """Trust in the intervals of an answer: `trusted`, they hold as often as their level says or more often;
    `unknown`, clipping may have removed more than they include."""

    TRUSTED = "trusted"
    UNKNOWN = "unknown"

    @property
    def sentence(self) -> str:
        """The line of a table or a page."""
        return f"Intervals: {self}."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnLoss:
    """Variance that clipping may have removed from each column, in the units of the covariance.

    `lost` is the most that clipping rows removed, `outside` an estimate of what the ends of a column's frame
    cut off. `contradicted` is True for a two-valued column whose variance and mean disagree. `common` is the
    sd of the relative loss of all columns alike. `radius` is that of the rows, and `noise_growth` the factor
    of the noise if none was clipped. Shape: lost, outside and contradicted (m,)."""

    lost: FloatArray
    outside: FloatArray
    contradicted: NDArray[np.bool_]
    common: float
    radius: float
    noise_growth: float

    @classmethod
    def none(cls, m: int) -> Self:
        """Return the loss of m columns without clipping."""
        return cls(
            lost=np.zeros(m),
            outside=np.zeros(m),
            contradicted=np.zeros(m, dtype=np.bool_),
            common=0.0,
            radius=1.0,
            noise_growth=1.0,
        )

    @classmethod
    def stated(cls, data: Mapping[str, Any], trace: float) -> Self:
        """Return the loss that a result of this total variance states as plain values."""
        stated = MatrixClipping.from_dict(data)
        return replace(
            cls.none(len(stated.lost)),
            lost=np.array(stated.lost),
            outside=np.array(stated.outside),
            common=COMMON_LOSS * float(np.median(stated.lost)) / max(trace, 1e-300),
            radius=stated.radius,
            noise_growth=(stated.largest / stated.radius) ** 2,
        )

    def of(self, at: Sequence[int]) -> ColumnLoss:
        """Return the loss of the columns at these places."""
        return replace(self, lost=self.lost[at], outside=self.outside[at], contradicted=self.contradicted[at])

    def bias(self, variances: FloatArray) -> FloatArray:
        """Return the sd of each variance's relative bias; it grows until as much may be lost as is left.
        Shape: variances (m,) -> (m,)."""
        lost = np.minimum(self.lost / variances, 1.0)
        outside = np.minimum(self.outside / variances, MOST_OUTSIDE)
        return np.asarray(LOSS_BIAS * lost**LOSS_POWER + outside)

    def mean_bias(self, variances: FloatArray) -> FloatArray:
        """Return the sd of the bias of each mean, in the root of the units, up to the same limit. Shape:
        variances (m,) -> (m,)."""
        return np.asarray(MEAN_LOSS * np.minimum(self.lost, variances) / self.radius)

    def exposed(self, variances: FloatArray) -> NDArray[np.bool_]:
        """Return True for each column of which clipping may have removed too much. Shape: variances (m,)."""
        lost, outside = self.lost > MOST_LOSS * variances, self.outside > MOST_OUTSIDE * variances
        return np.asarray(lost | outside | self.contradicted)

    def checked(self, at: int, *, variance: float, expected: float, error: float, bias: float) -> ColumnLoss:
        """Return the loss after comparing the variance of the two-valued column `at` with the one that its
        mean gives. `error` is the sd of their difference by noise, `bias` by what clipping may have changed
        in the mean. Further apart than both explain, they contradict each other; close together they limit
        the loss: the mean loses few ones at a smaller radius than the matrix does."""
        difference = abs(variance - expected)
        contradicted, lost, outside = self.contradicted.copy(), self.lost.copy(), self.outside.copy()
        contradicted[at] = difference > CONTRADICTED * math.hypot(error, bias)
        if difference + 2 * error < CONFIRMED * variance:
            lost[at], outside[at] = (min(one[at], difference + 2 * error) for one in (lost, outside))
        return replace(self, lost=lost, outside=outside, contradicted=contradicted)


def two_valued_variance(mean: float, low: float, high: float) -> float:
    """Return the variance of a column with that mean whose values are `low` and `high`."""
    return max((mean - low) * (high - mean), 0.0)
