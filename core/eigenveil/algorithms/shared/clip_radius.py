"""A clip radius from one noised histogram of norms on a public logarithmic grid.

`balance` weighs the noise that a radius costs against the mass that it cuts off, per unit of signal
kept; a quantile keeps a stated share of the records unclipped. Both read a release only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.protocol.release import Release
from eigenveil.queries.limits import BINS, PER_OCTAVE

FINE = 4  # a bin's mass is spread evenly over this many logarithmic steps
KEEP, NEAR = 3.0, 2.0  # a bin counts from 3 sd of noise on, or from 2 sd beside one that counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Norms from `top` down: bin j holds (top 2^-((j+1)/4), top 2^-(j/4)]; the first and last are open."""

    top: float

    def edges(self, unit: float) -> IntArray:
        """The inner edges, rising, in integers of `unit` a norm of 1. Shape: (BINS - 1,)."""
        inner = self.top * unit * 2.0 ** (-np.arange(BINS - 1, 0, -1) / PER_OCTAVE)
        whole, least = np.rint(inner).astype(np.int64), np.arange(1, BINS)
        # Norms near the grid's own resolution: keep the edges apart, so that bins stay well defined.
        return frozen(np.maximum.accumulate(np.maximum(whole - least, 0)) + least)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Histogram:
    """A noised histogram, largest norms first, bins that are mere noise (of sd `sigma`) set to 0.

    Shape: counts (BINS,).
    """

    grid: Grid
    counts: FloatArray
    sigma: float = 0.0

    @property
    def largest(self) -> float:
        """Upper edge of the highest bin that counts; the grid's top if none does."""
        filled = np.flatnonzero(self.counts)
        first = int(filled[0]) if filled.size else 0
        return self.grid.top * math.exp2(-first / PER_OCTAVE)

    def kept(self, radius: float, power: int = 2) -> float:
        """Estimated share of the records' norms to that power that clipping to `radius` leaves, in (0, 1]."""
        norms, counts = _fine(self)
        total = float((counts * norms**power).sum())
        return float((counts * np.minimum(norms, radius) ** power).sum()) / total if total > 0 else 1.0

    def of_mean_square(self, square: float) -> Histogram:
        """As many norms that are spread alike, and as long that this is their mean square."""
        norms, counts = _fine(self)
        total = float((counts * norms**2).sum())
        if total <= 0 or square <= 0:
            return self
        longer = math.sqrt(square * float(counts.sum()) / total)
        return replace(self, grid=Grid(top=self.grid.top * longer))

    def unevenness(self, radius: float, power: int = 2) -> float:
        """Mean square by which clipping to `radius` changes a record's part of the sum of norms to a power,
        in parts of a mean record."""
        shares, sizes, kept = self._clipped(radius, power)
        return float(shares @ ((kept / self.kept(radius, power) - 1) * sizes) ** 2)

    def drag(self, radius: float) -> float:
        """How clipping to `radius` falls on long records: the covariance of the share that it takes of a
        record's square with that square, in parts of the mean square."""
        shares, squares, kept = self._clipped(radius)
        return float(shares @ ((1 - kept) * (squares - 1)))

    def _clipped(self, radius: float, power: int = 2) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Shares of the records, their norms to a power in parts of the mean, and what clipping leaves of
        each."""
        norms, counts = _fine(self)
        if self.empty:
            return counts, norms, np.ones_like(norms)
        shares = counts / counts.sum()
        mean = float(shares @ norms**power)
        return shares, norms**power / mean, np.minimum(1.0, radius / norms) ** power

    def unseen(self, radius: float) -> float:
        """How much of the sum of norms may lie beyond `radius` in records that the noise hides: as many as
        its sd, and no longer."""
        norms, counts = _fine(self)
        return self.sigma * radius / max(float((counts * norms).sum()), self.sigma * radius, 1e-300)

    @property
    def empty(self) -> bool:
        """Whether no bin rises above the noise."""
        return not self.counts.any()


def _fine(histogram: Histogram) -> tuple[FloatArray, FloatArray]:
    """Norms in the middle of FINE logarithmic steps a bin, and the counts spread evenly over them."""
    halves = np.arange(BINS * FINE) + 0.5
    norms: FloatArray = histogram.grid.top * 2.0 ** (-halves / (PER_OCTAVE * FINE))
    return norms, np.repeat(histogram.counts / FINE, FINE)


def read_histogram(release: Release, grid: Grid) -> Histogram:
    counts = _cleaned(release.values[::-1].astype(np.float64), release.sigma)
    return Histogram(grid=grid, counts=counts, sigma=release.sigma)


def _cleaned(counts: FloatArray, sigma: float) -> FloatArray:
    """Zero out noise. Without the higher bar for lone bins, one false top bin inflates the radius."""
    keep = counts >= KEEP * sigma
    while True:
        beside = np.r_[keep[1:], False] | np.r_[False, keep[:-1]]
        more = keep | (beside & (counts >= NEAR * sigma))
        if (more == keep).all():
            return np.where(keep, counts, 0.0)
        keep = more


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """What a radius t costs: `noise` t^power against the mass cut off.

    `quadratic` adds the two like independent errors, otherwise like biases.
    """

    power: int
    noise: float
    quadratic: bool


def choose(
    histogram: Histogram, quantile: float | None, balance: Balance, fallback: float | None = None
) -> float:
    """The clip radius by the study's rule: a quantile if one is stated, else balance.

    If nothing rises above the noise: `fallback`, else the grid's top.
    """
    if histogram.empty:
        return histogram.grid.top if fallback is None else fallback
    if quantile is not None:
        return _quantile(histogram, quantile)
    return _balance(histogram, balance)


def _quantile(histogram: Histogram, share: float) -> float:
    """The norm below which `share` of the counted records lie, logarithmic inside its bin."""
    above = np.cumsum(histogram.counts)
    wanted = (1 - share) * float(above[-1])
    bin = min(int(np.searchsorted(above, wanted, side="right")), BINS - 1)
    inside = float(histogram.counts[bin])
    part = (wanted - (float(above[bin]) - inside)) / inside if inside > 0 else 0.0
    return histogram.grid.top * math.exp2(-(bin + min(max(part, 0.0), 1.0)) / PER_OCTAVE)


def _balance(histogram: Histogram, balance: Balance) -> float:
    """argmin over t of (noise t^p and lost(t)) / kept(t); dividing by what is kept keeps the rule from
    clipping everybody, which shrinks signal and noise alike."""
    steps = histogram.grid.top * 2.0 ** (-np.arange(BINS * FINE) / (PER_OCTAVE * FINE))
    cut = steps**balance.power
    norms, counts = _fine(histogram)
    mass = counts * norms**balance.power
    above_counts, above_mass = np.cumsum(counts) - counts, np.cumsum(mass) - mass
    lost = above_mass - above_counts * cut
    kept = np.maximum(mass.sum() - lost, math.ulp(0.0))
    noise = balance.noise * cut
    error = np.hypot(noise, lost) if balance.quadratic else noise + lost
    return float(steps[np.argmin(error / kept)])
