"""Middle and standard deviation of every column, by two queries (core/decisions/0025).

The first locates the records roughly; the second sums their values and squares in a frame about there. Later
queries depend on these results to the last bit on every machine. So this module uses only integers and the
operations that IEEE 754 rounds exactly (+ - * / and the square root)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from eigenveil.algorithms.shared.clip_radius import UNSEEN
from eigenveil.algorithms.shared.preparation import (
    LEAST_COUNT,
    cost_of_share,
    effective_mu,
    noise_distribution,
    query_at_share,
    shares,
)
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.protocol.estimate import StepsTo
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseDistribution
from eigenveil.protocol.rounds import Release
from eigenveil.queries import ColumnHistograms, ColumnMoments, Frame
from eigenveil.queries.columns import (
    BIN,
    BINS,
    FRAME_BITS,
    HALF,
    LEAST_FACTOR,
    MAX_MOMENTS_RADIUS,
    MOST_FACTOR,
    SQUARE_BITS,
    VALUE_BITS,
    least_moments_radius,
)
from eigenveil.queries.limits import WEIGHT
from eigenveil.study.grid import S
from eigenveil.study.study import Study

SPREADS = 7  # standard deviations from a column's middle to the end of the grid
SHELLS = (0, 1, 2, 3, 4, 5, 7, 9, 12, 17, 24, 33, 46, BINS)  # distances from the middle, half an octave each
SEEN = 2.0  # sd of noise from which a shell is significant and a variance is resolved
ALONE = 4.0  # sd of noise from which a single bin is significant
ENOUGH = 10.0  # records, in sd of a bin; with fewer the bounds are used for all columns
NARROWEST = 1 / 16  # the variance, in square bins, of a column in one bin
# Of a value 1 sd from the middle, in `ColumnMoments`.
SQUARE, VALUE = (S / SPREADS) ** 2 / 2**SQUARE_BITS, S / SPREADS / 2**VALUE_BITS
LEAST_LENGTH, MOST_LENGTH = 2.2, 25.0  # a clip radius, in norms of a typical vector
AIM = 0.01  # relative noise of a variance that a larger radius may cause
SURE = 0.25  # squared relative error of the first estimate of a variance
WIDE = 100  # standard deviations from the middle of a column's bounds to one of them
NAMED = 5  # columns named in a message
FINEST = 1 / 64  # of the first estimate of a variance: the resolution of rounded squares
BIAS = 0.03  # relative clipping bias of a variance; all three were measured on clinical tables


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnScales:
    """Columns in a frame that ends SPREADS standard deviations from each one's middle.

    Shape: resolved (d,), True if a column's spread exceeds the noise; noise (d,), the noise of its variance
    relative to the first estimate; outside and lost (d,), the estimated and the largest mean square that the
    ends of the frame cut off, in units of the frame."""

    frame: Frame
    resolved: NDArray[np.bool_]
    noise: FloatArray
    outside: FloatArray
    lost: FloatArray

    @property
    def spreads(self) -> FloatArray:
        """Return the standard deviations, in grid steps. Shape: (d,)."""
        return np.asarray(float(S * 2**FRAME_BITS) / SPREADS / self.frame.factors)

    @property
    def errors(self) -> FloatArray:
        """Return the approximate relative error of each variance. Shape: (d,)."""
        return np.where(self.resolved, np.hypot(BIAS, 2 * self.noise), 1.0)


def column_scales(plan: Plan) -> StepsTo[ColumnScales]:
    """Return the middle and spread of every column.
    Privacy: [P7], [P29]; both queries are charged and answered behind the barrier.
    Cost: 10 % of rho, or 25 % of epsilon; two rounds, 67 integers a column from every site."""
    d, (histograms, moments) = plan.study.dimension, shares(plan).scales
    look = _first_look((yield query_at_share(plan, ColumnHistograms(columns=d), histograms)), d)
    query = ColumnMoments(columns=d, radius=moments_radius(plan, look.records))
    release = yield replace(query_at_share(plan, query, moments), frame=_frame(look.middles, look.spreads))
    return _measured(release, look)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _FirstLook:
    """First estimate, from histograms. Shape: middles (d,) and spreads (d,) in grid steps, counts (d, BINS)
    with noise of sd `sigma`."""

    records: float
    middles: IntArray
    spreads: FloatArray
    counts: IntArray
    sigma: float

    def cut_off(self, frame: Frame) -> tuple[FloatArray, FloatArray]:
        """Return an estimate and an upper limit, by UNSEEN sd, of the mean square that the ends of `frame`
        cut off from each column, in units of the frame. Shape: (d,), (d,)."""
        steps = float(S * 2**FRAME_BITS) / frame.factors[:, None]  # from its middle to an end
        distance = np.abs((np.arange(BINS) - HALF) * BIN - frame.middles[:, None])
        near, far = np.maximum(distance - BIN / 2, 0.0), distance + BIN / 2
        seen, most = (np.maximum((one / steps) ** 2 - 1, 0.0) for one in (near, far))
        outside = np.maximum((self.counts * seen).sum(axis=1), 0.0)
        hidden = UNSEEN * self.sigma * np.linalg.norm(most, axis=1)
        return outside / self.records, (outside + hidden) / self.records


def _first_look(release: Release, d: int) -> _FirstLook:
    """Return medians, and second moments about them over significant shells and bins.

    A shell has all bins at about one distance from the median; a single bin can be significant alone, such as
    the few ones in a column of zeros. The spread is overestimated by one sd: too small a spread would give a
    column too much weight and cut off its far values. If only the median's bin is significant, or none, the
    frame covers the bounds, and the second query measures the spread."""
    counts = release.values.reshape(d, BINS)
    records = max(int(counts.sum()) / d, LEAST_COUNT)
    middle = _medians(counts, records)
    distance = np.abs(np.arange(BINS) - middle[:, None])
    moment, significant_count, weight = np.zeros(d), np.zeros(d), np.ones(d)
    beyond = np.zeros(d, dtype=np.bool_)
    for low, high in pairwise(SHELLS):
        shell = (distance >= low) & (distance < high)
        counted = np.where(shell, counts, 0)
        stands = counted.sum(axis=1) > SEEN * release.sigma * np.sqrt(shell.sum(axis=1).astype(np.float64))
        counted = np.where(stands[:, None], counted, np.where(counted > ALONE * release.sigma, counted, 0))
        stands = stands | counted.any(axis=1)
        beyond |= stands & (low > 0)
        moment += np.where(stands, (counted * distance**2).sum(axis=1), 0)
        significant_count += np.where(stands, counted.sum(axis=1), 0)
        weight += np.where(stands, (shell * distance**4).sum(axis=1), 0)
    square = np.maximum(moment, 0.0) / records + release.sigma * np.sqrt(weight) / records
    enough = records > ENOUGH * release.sigma
    seen = enough & beyond & (significant_count > records / 2)
    spreads = np.sqrt(np.maximum(square, NARROWEST)) * BIN
    middles = np.where(enough, (middle - HALF) * BIN, 0).astype(np.int64)
    return _FirstLook(
        records=records,
        middles=middles,
        spreads=np.where(seen, spreads, (S + np.abs(middles)) / SPREADS),
        counts=counts,
        sigma=release.sigma,
    )


def _medians(counts: IntArray, records: float) -> IntArray:
    """Return the bin of each column's median; every column's total is taken to be `records`. Shape: (d, BINS)
    -> (d,)."""
    total = counts.cumsum(axis=1)
    over = (total[:, -1:] - records) * ((np.arange(BINS) + 1) / BINS)
    return np.asarray(np.abs(total - over - counts / 2 - records / 2).argmin(axis=1))


def _frame(middles: IntArray, spreads: FloatArray) -> Frame:
    factors = np.rint(float(S * 2**FRAME_BITS) / SPREADS / spreads)
    return Frame(middles=middles, factors=np.clip(factors, LEAST_FACTOR, MOST_FACTOR).astype(np.int64))


def moments_radius(plan: Plan, records: float) -> int:
    """Return the clip radius of the second query: larger with more records. For d columns of standard
    deviation 1, the norm of a vector of squares and values is about 2 sqrt(d)."""
    d = plan.study.dimension
    typical = 2 * math.sqrt(d) * SQUARE
    length = AIM * records / (2 * math.sqrt(d) * _relative_noise(plan))
    radius: int = round(min(max(length, LEAST_LENGTH), MOST_LENGTH) * typical)
    return min(max(radius, least_moments_radius(d)), MAX_MOMENTS_RADIUS)


def predicted_scale_error(plan: Plan) -> float:
    """Return the predicted relative error of the columns' variances, from public numbers alone."""
    records = float(plan.study.expected_records)
    noise = moments_radius(plan, records) * _relative_noise(plan) / (records * SQUARE)
    return math.hypot(BIAS, 2 * noise)


def _relative_noise(plan: Plan) -> float:
    """Return the noise sd of a number of the second query, relative to its clip radius."""
    moved = float(plan.study.changed_records)
    if noise_distribution(plan) is not NoiseDistribution.GAUSSIAN:  # Laplace noise, for the L1 sensitivity
        moved *= 2 * math.sqrt(plan.study.dimension)
    return moved / effective_mu(plan, cost_of_share(plan, shares(plan).scales[1]))


def _measured(release: Release, look: _FirstLook) -> ColumnScales:
    """Return the second estimate: the variance about the mean, shrunk by its noise."""
    d = look.spreads.size
    unit = WEIGHT * look.records
    square, value = release.values[:d] / (unit * SQUARE), release.values[d:] / (unit * VALUE)
    # Far from the middle of its bin a column has a large square and a small variance, both noised.
    slope = 2 * value * (SQUARE / VALUE)
    noise = np.sqrt(1 + slope * slope) * (release.sigma / (unit * SQUARE))
    known = SURE / (SURE + noise * noise)
    variance = square - value * value
    believed = known * variance + (1 - known)
    spreads = look.spreads * np.sqrt(np.maximum(believed, np.maximum(np.minimum(noise, 1.0), FINEST)))
    middles = np.rint(look.middles + np.clip(known * value, -2, 2) * look.spreads)
    frame = _frame(np.clip(middles, -S, S).astype(np.int64), np.minimum(spreads, float(S)))
    outside, lost = look.cut_off(frame)
    return ColumnScales(
        frame=frame,
        resolved=variance >= np.maximum(SEEN * noise, FINEST),
        noise=noise,
        outside=outside,
        lost=lost,
    )


def scale_warnings(study: Study, scales: ColumnScales) -> tuple[str, ...]:
    """Return warnings about columns with a spread hidden by noise, or with far too wide bounds."""
    names = [column.name for column in study.columns]
    every = list(zip(names, scales.resolved, S / scales.spreads, strict=True))
    hidden = [name for name, seen, _ in every if not seen]
    narrow = [f"{name} (about {times:.0f} times)" for name, seen, times in every if seen and times > WIDE]
    sentences = []
    if hidden:
        sentences.append(
            f"noise hides the spread of these columns: {_some(hidden)}; few records differ from the rest, "
            "or the bounds are far too wide. Their scale is an assumption; use narrower bounds, more records "
            "or a larger epsilon"
        )
    if narrow:
        sentences.append(
            f"half the distance between the bounds is many times the standard deviation of {_some(narrow)}; "
            "use narrower bounds to reduce the effect of noise"
        )
    return tuple(sentences)


def _some(names: list[str]) -> str:
    """Return the names, limited to the first few."""
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
