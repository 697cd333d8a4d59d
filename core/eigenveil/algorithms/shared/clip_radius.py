"""Clip radius from one noised histogram of norms on a public logarithmic grid.

The balance rule minimises noise plus clipped mass per unit of remaining signal. The quantile rule leaves a
stated share of the records unclipped. Both are post-processing of a release."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.protocol.rounds import Release
from eigenveil.queries.limits import BINS, PER_OCTAVE

FINE = 4  # a bin's mass is spread evenly over this many logarithmic steps
# A bin is significant from 3 sd of noise on, or from 2 sd beside a significant one.
SIGNIFICANT, SIGNIFICANT_BESIDE = 3.0, 2.0
UNSEEN = 2.0  # sd of noise by which more records may lie beyond a radius than were counted
TAIL_BINS = 12  # by which the records of the open end bin may lie beyond the grid
# A tail is long from this share of a bin's count in the next longer one on, above the upper quartile. Of the
# norms of a record's parts, t2 records had .80 to .83, independent t2 columns .66 to .77, normal records .29
# to .58. Both chosen on stated errors for seeds 0 to 23 of `python -m benchmarks.stated_error`.
LONG_TAIL = 0.78


@dataclass(frozen=True, slots=True, kw_only=True)
class NormGrid:
    """Bins of norms from `top` down: bin j is (top 2^-((j+1)/4), top 2^-(j/4)]; the end bins are open."""

    top: float

    def edges(self, unit: float) -> IntArray:
        """Return the inner edges, rising, in integers of `unit` a norm of 1. Shape: (BINS - 1,)."""
        inner = self.top * unit * 2.0 ** (-np.arange(BINS - 1, 0, -1) / PER_OCTAVE)
        whole, least = np.rint(inner).astype(np.int64), np.arange(1, BINS)
        # Near the grid's resolution equal edges are separated, so that bins stay well defined.
        return frozen(np.maximum.accumulate(np.maximum(whole - least, 0)) + least)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NormHistogram:
    """Noised histogram, largest norms first, with insignificant bins (noise sd `sigma`) set to 0; `noised`
    has all bins as released. Shape: counts and noised (BINS,), or TAIL_BINS more with a tail."""

    grid: NormGrid
    counts: FloatArray
    sigma: float = 0.0
    noised: FloatArray | None = None

    @property
    def largest(self) -> float:
        """Return the upper edge of the highest significant bin; the grid's top if there is none."""
        filled = np.flatnonzero(self.counts)
        return self.grid.top * math.exp2(-(int(filled[0]) if filled.size else 0) / PER_OCTAVE)

    def retained(self, radius: float, power: int = 2) -> float:
        """Return the estimated share of the sum of norms^power left by clipping to `radius`, in (0, 1]."""
        norms, counts = _fine(self)
        total = float((counts * norms**power).sum())
        return float((counts * np.minimum(norms, radius) ** power).sum()) / total if total > 0 else 1.0

    def of_mean_square(self, square: float) -> NormHistogram:
        """Return the histogram rescaled to this mean square."""
        norms, counts = _fine(self)
        total = float((counts * norms**2).sum())
        if total <= 0 or square <= 0:
            return self
        longer = math.sqrt(square * float(counts.sum()) / total)
        return replace(self, grid=NormGrid(top=self.grid.top * longer))

    def unevenness(self, radius: float, power: int = 2) -> float:
        """Return the mean squared change of a record's part of the sum of norms^power by clipping. In units
        of a mean record."""
        shares, sizes, retained = self._clipped(radius, power)
        return float(shares @ ((retained / self.retained(radius, power) - 1) * sizes) ** 2)

    def drag(self, radius: float) -> float:
        """Return the covariance of a record's clipped share with its square, in units of the mean square."""
        shares, squares, retained = self._clipped(radius)
        return float(shares @ ((1 - retained) * (squares - 1)))

    def _clipped(self, radius: float, power: int = 2) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return shares of records, their norms^power relative to the mean, and the rest after clipping."""
        norms, counts = _fine(self)
        if self.empty:
            return counts, norms, np.ones_like(norms)
        shares = counts / counts.sum()
        return shares, norms**power / float(shares @ norms**power), np.minimum(1.0, radius / norms) ** power

    def hidden_share(self, radius: float) -> float:
        """Return the share of the sum of norms that noise may hide beyond `radius`: sd many records."""
        norms, counts = _fine(self)
        return self.sigma * radius / max(float((counts * norms).sum()), self.sigma * radius, 1e-300)

    def fall(self) -> float:
        """Return the share of a bin's count in the next longer bin, on average above the upper quartile; 0 if
        no bin lies above it."""
        above = np.cumsum(self.counts)
        quartile = int(np.searchsorted(above, above[-1] / 4))
        beyond = self.counts[:quartile]
        if not beyond.any():
            return 0.0
        bins = float(beyond @ np.arange(quartile - 1, -1, -1)) / float(beyond.sum())
        return bins / (1 + bins)

    def with_tail(self) -> NormHistogram:
        """Return the histogram with the records of its open end bin spread evenly over TAIL_BINS more."""
        counts = np.append(np.zeros(TAIL_BINS), self.counts)
        counts[: TAIL_BINS + 1] = self.counts[0] / (TAIL_BINS + 1)
        grid = NormGrid(top=self.grid.top * 2.0 ** (TAIL_BINS / PER_OCTAVE))
        return replace(self, grid=grid, counts=counts, noised=None)

    def largest_loss(self, radius: float, reach: FloatArray) -> FloatArray:
        """Return an upper limit of each column's sum of squares that clipping to `radius` removes: all the
        records beyond it may lie along one column, and UNSEEN sd of noise more of them than were counted. A
        record of norm N > R loses z_i^2 (1 - R^2 / N^2), and z_i^2 is at most N^2 and reach_i^2. Shape: reach
        (d,), the largest |z_i| -> (d,)."""
        tops = self.grid.top * 2.0 ** (-np.arange(BINS) / PER_OCTAVE)
        beyond = np.maximum(1 - (radius / tops) ** 2, 0.0)
        losses = np.minimum(tops**2, reach[:, None] ** 2) * beyond
        counted = self.counts if self.noised is None else self.noised
        seen = np.maximum(losses @ counted, 0.0)
        return np.asarray(seen + UNSEEN * self.sigma * np.linalg.norm(losses, axis=1))

    @property
    def empty(self) -> bool:
        """True if no bin is significant."""
        return not self.counts.any()


def _fine(histogram: NormHistogram) -> tuple[FloatArray, FloatArray]:
    """Return norms in the middle of FINE logarithmic steps a bin, with the counts spread over them."""
    halves = np.arange(histogram.counts.size * FINE) + 0.5
    norms: FloatArray = histogram.grid.top * 2.0 ** (-halves / (PER_OCTAVE * FINE))
    return norms, np.repeat(histogram.counts / FINE, FINE)


def read_histogram(release: Release, grid: NormGrid) -> NormHistogram:
    noised = release.values[::-1].astype(np.float64)
    counts = _cleaned(noised, release.sigma)
    return NormHistogram(grid=grid, counts=counts, sigma=release.sigma, noised=noised)


def _cleaned(counts: FloatArray, sigma: float) -> FloatArray:
    """Return counts with insignificant bins set to 0. One false top bin would inflate the radius."""
    significant = counts >= SIGNIFICANT * sigma
    while True:
        beside = np.r_[significant[1:], False] | np.r_[False, significant[:-1]]
        more = significant | (beside & (counts >= SIGNIFICANT_BESIDE * sigma))
        if (more == significant).all():
            return np.where(significant, counts, 0.0)
        significant = more


def choose_radius(
    histogram: NormHistogram,
    quantile: float | None,
    noise: float,
    *,
    power: int,
    quadratic: bool,
    fallback: float | None = None,
) -> float:
    """Return the clip radius t by the study's rule: a quantile if one is stated, else balance.

    The balance is of `noise` t^power against the clipped mass; `quadratic` adds the two as independent
    errors, otherwise as biases. If no bin is significant: `fallback`, else the grid's top."""
    if histogram.empty:
        return histogram.grid.top if fallback is None else fallback
    if quantile is not None:
        return _quantile(histogram, quantile)
    return _balance(histogram, noise, power, quadratic)


def _quantile(histogram: NormHistogram, share: float) -> float:
    """Return the norm below which `share` of the counted records lie, interpolated logarithmically."""
    above = np.cumsum(histogram.counts)
    wanted = (1 - share) * float(above[-1])
    bin = min(int(np.searchsorted(above, wanted, side="right")), BINS - 1)
    inside = float(histogram.counts[bin])
    part = (wanted - (float(above[bin]) - inside)) / inside if inside > 0 else 0.0
    return histogram.grid.top * math.exp2(-(bin + min(max(part, 0.0), 1.0)) / PER_OCTAVE)


def _balance(histogram: NormHistogram, noise: float, power: int, quadratic: bool) -> float:
    """Return argmin over t of (noise t^p and clipped mass(t)) / remaining mass(t). The division prevents
    clipping all records, which shrinks signal and noise alike."""
    steps = histogram.grid.top * 2.0 ** (-np.arange(BINS * FINE) / (PER_OCTAVE * FINE))
    cut = steps**power
    norms, counts = _fine(histogram)
    mass = counts * norms**power
    above_counts, above_mass = np.cumsum(counts) - counts, np.cumsum(mass) - mass
    clipped_mass = above_mass - above_counts * cut
    retained = np.maximum(mass.sum() - clipped_mass, math.ulp(0.0))
    error = np.hypot(noise * cut, clipped_mass) if quadratic else noise * cut + clipped_mass
    return float(steps[np.argmin(error / retained)])
