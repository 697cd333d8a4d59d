"""The middle and the standard deviation of every column, by two questions: where its records lie,
roughly, and then their values and squares about there, as a frame shows them (core/decisions/0025).

What is asked later depends on what is computed here, on every machine to the last bit: integers, and
operations that IEEE 754 rounds in one way only (+ - * / and the square root).
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from eigenveil.algorithms.shared.preparation import FEWEST, drawn_mu, law, price, priced
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseLaw, PricedQuery
from eigenveil.protocol.release import Release
from eigenveil.queries import ColumnHistograms, ColumnMoments, Frame
from eigenveil.queries.columns import (
    BIN,
    BINS,
    FRAME_BITS,
    HALF,
    LEAST_FACTOR,
    MOST_FACTOR,
    MOST_RADIUS,
    SQUARE_BITS,
    VALUE_BITS,
    least_radius,
)
from eigenveil.queries.limits import WEIGHT
from eigenveil.study.grid import S
from eigenveil.study.study import Study

SPREADS = 7  # standard deviations from a column's middle to the end of the grid, where all beyond it lies
SHELLS = (0, 1, 2, 3, 4, 5, 7, 9, 12, 17, 24, 33, 46, BINS)  # distances from the middle, half an octave each
SEEN = 2.0  # a shell counts from so many sd of its noise on, and a variance is resolved
ALONE = 4.0  # sds of noise that a single bin stands out by
ENOUGH = 10.0  # records, in sd of a bin: with fewer no column is looked at, and bounds are kept
NARROWEST = 1 / 16  # the variance, in square bins, of a column in one bin
# Of a value 1 sd from the middle, in `ColumnMoments`.
SQUARE, VALUE = (S / SPREADS) ** 2 / 2**SQUARE_BITS, S / SPREADS / 2**VALUE_BITS
LEAST_LENGTH, MOST_LENGTH = 2.2, 25.0  # a clip radius, in lengths of a typical vector; none is longer
AIM = 0.01  # the noise of a variance, in parts of it, that a longer radius may cost
SURE = 0.25  # the square of how far the first look at a variance is off, in parts of it
WIDE = 100  # standard deviations from the middle of a column's bounds to one of them
NAMED = 5  # columns in a sentence
FINEST = 1 / 64  # of the first look at a variance: less is lost in rounding squares
BIAS = 0.03  # of a variance by clipping; all three were measured on clinical tables


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleShares:
    """What the two questions cost, in shares of rho, or of epsilon where epsilons add up."""

    histograms: float
    moments: float

    @property
    def both(self) -> float:
        return self.histograms + self.moments


BY_RHO, BY_EPSILON = ScaleShares(histograms=0.03, moments=0.07), ScaleShares(histograms=0.10, moments=0.15)


def scale_shares(plan: Plan) -> ScaleShares:
    """The shares under the plan's composition."""
    return BY_RHO if law(plan) is NoiseLaw.GAUSSIAN else BY_EPSILON


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnScales:
    """The columns through a frame that ends SPREADS standard deviations from each one's middle.

    Shape: resolved (d,), whether a column's spread stands out of the noise; noise (d,), what that does to its
    variance, in parts of what the first look said.
    """

    frame: Frame
    resolved: NDArray[np.bool_]
    noise: FloatArray

    @property
    def spreads(self) -> FloatArray:
        """The standard deviations, in grid steps. Shape: (d,)."""
        return np.asarray(float(S * 2**FRAME_BITS) / SPREADS / self.frame.factors)

    @property
    def errors(self) -> FloatArray:
        """About how far each variance is off, in parts of it. Shape: (d,)."""
        return np.where(self.resolved, np.hypot(BIAS, 2 * self.noise), 1.0)


def column_scales(plan: Plan) -> Generator[PricedQuery, Release, ColumnScales]:
    """Where every column's records lie, and how widely.

    Neighbours: as the study says.
    Privacy: [P7], [P29]; both questions are priced and answered behind the barrier.
    Cost: 10 % of rho, or 25 % of epsilon; two rounds, 67 integers a column from every site.
    """
    d, shares = plan.study.dimension, scale_shares(plan)
    look = _look((yield priced(plan, ColumnHistograms(columns=d), shares.histograms)), d)
    query = ColumnMoments(columns=d, radius=moments_radius(plan, look.records))
    release = yield replace(priced(plan, query, shares.moments), frame=look.frame)
    return _measured(release, look)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Look:
    """What the histograms say. Shape: middles (d,) and spreads (d,) in grid steps, seen (d,)."""

    records: float
    middles: IntArray
    spreads: FloatArray
    seen: NDArray[np.bool_]

    @property
    def frame(self) -> Frame:
        return _frame(self.middles, self.spreads)


def _look(release: Release, d: int) -> _Look:
    """Medians, and second moments about them of what stands out of the noise: a shell of bins as far from the
    median, or one bin of it, as the few ones of a column of zeros are. A spread is taken too large by one sd
    rather than too small: one that is too small makes a column count for more than all others, and ends
    before its far values. Where nothing stands out but the median's own bin, or not even that, a column is
    seen as far as its bounds, and the second question tells how widely it spreads there."""
    counts = release.values.reshape(d, BINS)
    records = max(int(counts.sum()) / d, FEWEST)
    middle = _medians(counts, records)
    distance = np.abs(np.arange(BINS) - middle[:, None])
    moment, kept, weight, beyond = np.zeros(d), np.zeros(d), np.ones(d), np.zeros(d, dtype=np.bool_)
    for low, high in pairwise(SHELLS):
        shell = (distance >= low) & (distance < high)
        held = np.where(shell, counts, 0)
        stands = held.sum(axis=1) > SEEN * release.sigma * np.sqrt(shell.sum(axis=1).astype(np.float64))
        held = np.where(stands[:, None], held, np.where(held > ALONE * release.sigma, held, 0))
        stands = stands | held.any(axis=1)
        beyond |= stands & (low > 0)
        moment += np.where(stands, (held * distance**2).sum(axis=1), 0)
        kept += np.where(stands, held.sum(axis=1), 0)
        weight += np.where(stands, (shell * distance**4).sum(axis=1), 0)
    square = np.maximum(moment, 0.0) / records + release.sigma * np.sqrt(weight) / records
    enough = records > ENOUGH * release.sigma
    seen = enough & beyond & (kept > records / 2)
    spreads = np.sqrt(np.maximum(square, NARROWEST)) * BIN
    middles = np.where(enough, (middle - HALF) * BIN, 0).astype(np.int64)
    return _Look(
        records=records,
        middles=middles,
        spreads=np.where(seen, spreads, (S + np.abs(middles)) / SPREADS),
        seen=seen,
    )


def _medians(counts: IntArray, records: float) -> IntArray:
    """The bin of each column's median; every column's total is taken to be `records`.

    Shape: (d, BINS) -> (d,).
    """
    total = counts.cumsum(axis=1)
    over = (total[:, -1:] - records) * ((np.arange(BINS) + 1) / BINS)
    return np.asarray(np.abs(total - over - counts / 2 - records / 2).argmin(axis=1))


def _frame(middles: IntArray, spreads: FloatArray) -> Frame:
    factors = np.rint(float(S * 2**FRAME_BITS) / SPREADS / spreads)
    return Frame(middles=middles, factors=np.clip(factors, LEAST_FACTOR, MOST_FACTOR).astype(np.int64))


def moments_radius(plan: Plan, records: float) -> int:
    """The clip radius of the second question: the longer, the more records pay for its noise.

    Of d columns of standard deviation 1, a vector of squares and values is about 2 sqrt(d) long.
    """
    d = plan.study.dimension
    typical = 2 * math.sqrt(d) * SQUARE
    length = AIM * records / (2 * math.sqrt(d) * _loudness(plan))
    radius: int = round(min(max(length, LEAST_LENGTH), MOST_LENGTH) * typical)
    return min(max(radius, least_radius(d)), MOST_RADIUS)


def foreseen_error(plan: Plan) -> float:
    """How far the variances of columns will be off, in parts of them, from public numbers alone."""
    records = float(plan.study.expected_records)
    noise = moments_radius(plan, records) * _loudness(plan) / (records * SQUARE)
    return math.hypot(BIAS, 2 * noise)


def _loudness(plan: Plan) -> float:
    """The sd of the noise on a number of the second question, in parts of its clip radius."""
    moved = float(plan.study.max_sites_per_person * plan.study.neighbours.records)
    if law(plan) is not NoiseLaw.GAUSSIAN:  # Laplace noise, against the norm in L1
        moved *= 2 * math.sqrt(plan.study.dimension)
    return moved / drawn_mu(plan, price(plan, scale_shares(plan).moments))


def _measured(release: Release, look: _Look) -> ColumnScales:
    """The second look: the variance about the mean, as far as its noise lets believe it."""
    d = look.spreads.size
    unit = WEIGHT * look.records
    square, value = release.values[:d] / (unit * SQUARE), release.values[d:] / (unit * VALUE)
    # A column far from the middle of its bin has a large square and a small variance: both are noised.
    slope = 2 * value * (SQUARE / VALUE)
    noise = np.sqrt(1 + slope * slope) * (release.sigma / (unit * SQUARE))
    known = SURE / (SURE + noise * noise)
    variance = square - value * value
    believed = known * variance + (1 - known)
    spreads = look.spreads * np.sqrt(np.maximum(believed, np.maximum(np.minimum(noise, 1.0), FINEST)))
    middles = np.rint(look.middles + np.clip(known * value, -2, 2) * look.spreads)
    return ColumnScales(
        frame=_frame(np.clip(middles, -S, S).astype(np.int64), np.minimum(spreads, float(S))),
        resolved=variance >= np.maximum(SEEN * noise, FINEST),
        noise=noise,
    )


def scale_warnings(study: Study, scales: ColumnScales) -> tuple[str, ...]:
    """Sentences about columns whose spread noise hides, or whose bounds are far wider than it."""
    width = S / scales.spreads
    names = [column.name for column in study.columns]
    every = list(zip(names, scales.resolved, width, strict=True))
    hidden = [name for name, told, _ in every if not told]
    narrow = [f"{name} (about {times:.0f} times)" for name, told, times in every if told and times > WIDE]
    said = []
    if hidden:
        said.append(
            f"noise hides how widely these columns spread: {_some(hidden)}; few records differ from the "
            "rest, or the bounds are far too wide: their scale is a guess, and narrower bounds, more records "
            "or a larger epsilon would tell"
        )
    if narrow:
        said.append(
            f"half the distance between the bounds is many times the standard deviation of {_some(narrow)}: "
            "narrow these bounds, and less noise hides what the columns say"
        )
    return tuple(said)


def _some(names: list[str]) -> str:
    """The names, the first few of many."""
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
