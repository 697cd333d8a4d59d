"""dp-pca: recentred noisy power iteration on the full data, with averaging of the tail.

It keeps the idea of Liu, Kong, Jain, Oh 2022 (recentre, and clip to the range of the gradients rather than
to their norm), with private radii by balance and nothing to tune. Shares and constants were measured
on synthetic and clinical tables (benchmarks/accuracy.py).
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from eigenveil.algorithms.shared.clip_radius import Balance, Grid, choose, read_histogram
from eigenveil.algorithms.shared.gradient_query import Slope
from eigenveil.algorithms.shared.preparation import (
    COUNT_SHARE,
    Centred,
    drawn_mu,
    locate,
    part,
    row_radius,
    signal,
)
from eigenveil.algorithms.shared.stated_error import centre_sine, centre_warning, even_gaps
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, fix_signs, orthonormal, sin_angle, start_directions
from eigenveil.protocol.estimate import Estimate, Steps
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import PricedQuery
from eigenveil.protocol.release import Release
from eigenveil.queries import SquaredNormSum
from eigenveil.study.grid import S
from eigenveil.study.radius import quantile

RADIUS_SHARE, VARIANCE_SHARE = 0.08, 0.04
REFRESHES = 3  # of the clip radius
ROUNDS, MANY_ROUNDS = 40, 100
STRONG = 2000.0  # signal from which on small gaps are worth more rounds and spare directions
SPARE = 2
TAIL = 0.3  # the pull and the averaging begin after this share of the rounds
FLOOR = 1e-4  # smallest scale of a direction, relative to the largest
# Largest scale: far beyond any mean of records, but not beyond any noise about a count that was released as
# none. The next query's `shift` must stay within its limit.
CEILING = 2.0**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How many rounds, directions and how much budget each, from public numbers and the noised count."""

    rounds: int
    directions: int
    round_price: int
    radius_price: int

    @property
    def tail(self) -> int:
        """The first round of the tail."""
        return math.floor(TAIL * self.rounds)

    @property
    def refreshes(self) -> tuple[int, ...]:
        """Rounds that begin with a new clip radius. More of them cost more than they give (measured)."""
        return (0, 2, self.tail)


def schedule(plan: Plan, start: Centred) -> Schedule:
    d, k = plan.study.dimension, plan.study.components
    strength = signal(plan, start.records)
    rounds = MANY_ROUNDS if strength >= STRONG else ROUNDS
    left = 1 - COUNT_SHARE - start.mean_share - RADIUS_SHARE - VARIANCE_SHARE
    return Schedule(
        rounds=rounds,
        directions=min(k + SPARE, d) if strength >= STRONG and k > 1 else k,
        round_price=part(plan.micro_rho, left / rounds),
        radius_price=part(plan.micro_rho, RADIUS_SHARE / REFRESHES),
    )


def dp_pca(plan: Plan) -> Steps:
    """Count, mean, 40 or 100 gradients with three private radii, explained variances.

    Neighbours: as the study says.
    Privacy: [P7]; the questions are priced and answered behind the barrier.
    Cost: the whole budget, d k integers a round from every site.
    """
    study = plan.study
    start = yield from locate(plan)
    times = schedule(plan, start)
    tail = yield from iterate(plan, start, times)
    components = tail.components(study.components)
    variances, total, scale = yield from read_variances(plan, start, components)
    stated = quantile(study.radius) is None
    centre = centre_sine(start, even_gaps(variances, total, study.dimension) - scale)
    return Estimate(
        components=components.T,
        explained_variance=variances,
        mean=start.mean,
        records=start.records,
        total_variance=total,
        noise_scale=scale,
        sin_error=min(1.0, math.hypot(tail.error(study.components), centre)) if stated else None,
        warnings=centre_warning(centre) + (gap_warning(tail, variances, total, scale) if stated else ()),
    )


def gap_warning(tail: Tail, variances: FloatArray, total: float, scale: float) -> tuple[str, ...]:
    """A sentence if the releases do not tell the last component from the next direction.

    The tail's halves begin alike and keep what the rounds have not yet turned away. Where variances nearly
    coincide they agree on a mixture, and their disagreement is not the error: at n = 20,000, d = 6, k = 2
    and epsilon = 1, with a next variance of 0.99 times the last, it said 0.02 and 0.4 was measured.
    """
    d, k = len(tail.basis), len(variances)
    left = total - float(variances.sum())  # the next direction has at most all of it
    if k == d or left < float(variances[-1]) - 2 * scale:
        return ()
    gap, noise = tail.gap(k)
    if gap > 2 * noise:
        return ()
    sentence = (
        f"component {k} and the next direction vary alike, as far as the noise tells: the true error can be "
        "many times the predicted one; ask for one component fewer or more"
    )
    if math.isnan(gap):
        sentence = (
            f"the predicted error assumes that component {k} varies clearly more than the next direction, "
            "which was not measured: where the two are close, the true error is many times as large; "
            "gauss-cov, or one component more, would tell"
        )
    return (sentence,)


@dataclass(slots=True)
class Tail:
    """Sums of the noised gradients of the tail's two halves, turned to a common basis.

    Shape: basis (d, m), first and second (d, m).
    """

    basis: FloatArray
    first: FloatArray
    second: FloatArray

    def components(self, k: int) -> FloatArray:
        """The leading k directions of the averaged gradients. Shape: (d, k)."""
        return self._leading(self.first + self.second, k)

    def error(self, k: int) -> float:
        """Estimated sine: 1.2 times half of the halves' chord (measured against exact components)."""
        first, second = self._leading(self.first, k), self._leading(self.second, k)
        return 1.2 * math.sin(math.asin(sin_angle(first.T, second.T)) / 2)

    def gap(self, k: int) -> tuple[float, float]:
        """By how much more the gradients stretch a k-th direction than a next one, and the most that the
        halves differ in a stretch; (nan, nan) without spare directions."""
        if self.basis.shape[1] == k:
            return math.nan, math.nan
        first, second = self._ritz(self.first)[0], self._ritz(self.second)[0]
        both = (first + second) / 2
        return float(both[k - 1] - both[k]), float(np.abs(first - second).max())

    def _leading(self, gradients: FloatArray, k: int) -> FloatArray:
        """Within the gradients' span, the k directions they stretch most."""
        return fix_signs(self._ritz(gradients)[1][:, :k])

    def _ritz(self, gradients: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Rayleigh-Ritz: stretches (m,), falling, and their directions (d, m)."""
        q = orthonormal(gradients)
        small = q.T @ gradients @ (self.basis.T @ q)
        stretches, turn = eigenpairs((small + small.T) / 2)
        return stretches, q @ turn


def iterate(plan: Plan, start: Centred, times: Schedule) -> Generator[PricedQuery, Release, Tail]:
    v, scales = start_directions(plan.study.dimension, times.directions), np.ones(times.directions)
    radius: float | None = None
    tail: Tail | None = None
    for t in range(times.rounds):
        pull = v * np.sqrt(scales) if t >= times.tail else np.zeros_like(v)
        slope = Slope(centre=start.centre, directions=v / np.sqrt(scales), offset=pull)
        if t in times.refreshes:
            radius = yield from gradient_radius(plan, start, times, slope, radius)
        assert radius is not None  # round 0 refreshes
        gradient = yield from _gradient(slope, radius * slope.reach, times.round_price, start.records)
        gradient = gradient * np.sqrt(scales)
        if t >= times.tail:
            tail = tail or Tail(basis=v, first=np.zeros_like(v), second=np.zeros_like(v))
            half = tail.first if t < (times.tail + times.rounds) // 2 else tail.second
            half += gradient @ (v.T @ tail.basis)
        v, scales = _next(gradient)
    assert tail is not None
    return tail


def _next(gradient: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The next directions and the scales of their columns."""
    lengths: FloatArray = np.minimum(np.sqrt((gradient**2).sum(axis=0)), CEILING)
    scales = np.maximum(lengths, max(FLOOR * float(lengths.max()), 1e-12))
    return orthonormal(gradient), scales


def gradient_radius(
    plan: Plan, start: Centred, times: Schedule, slope: Slope, before: float | None
) -> Generator[PricedQuery, Release, float]:
    """A new clip radius, for directions of length 1."""
    grid = Grid(top=start.norms.largest**2 * slope.reach)
    histogram = read_histogram(
        (yield PricedQuery(query=slope.norms(grid), micro_rho=times.radius_price)), grid
    )
    # What matters is the noise left after averaging the tail, not one round's.
    averaged = drawn_mu(plan, times.round_price * (times.rounds - times.tail))
    rule = Balance(power=1, noise=6 * math.sqrt(slope.offset.size) / averaged, quadratic=False)
    fallback = None if before is None else before * slope.reach
    return choose(histogram, quantile(plan.study.radius), rule, fallback) / slope.reach


def _gradient(
    slope: Slope, radius: float, price: int, records: float
) -> Generator[PricedQuery, Release, FloatArray]:
    """The noised mean of x (x . W). Shape: (d, m)."""
    query, unit = slope.query(radius)
    release = yield PricedQuery(query=query, micro_rho=price)
    mean = release.values.reshape(slope.offset.shape) / (unit * records)
    return slope.exact_offset(query.spec) + mean


def read_variances(
    plan: Plan, start: Centred, components: FloatArray
) -> Generator[PricedQuery, Release, tuple[FloatArray, float, float]]:
    """Variance along each component, in total, and the noise on one entry of the averaged gradient.

    The tail's own gradients are shortened by clipping, so the lengths come from one more gradient whose
    radius hardly clips: only k of its d k noised numbers are read.
    """
    energy_price = part(plan.micro_rho, 0.2 * VARIANCE_SHARE)
    rule = Balance(power=2, noise=1 / drawn_mu(plan, energy_price), quadratic=True)
    radius = row_radius(choose(start.norms, None, rule), plan.study.dimension)
    release = yield PricedQuery(
        query=SquaredNormSum(centre=start.centre, radius=radius), micro_rho=energy_price
    )
    total = max(float(release.values[0]) / (S**2 * start.records), 0.0)
    slope = Slope(centre=start.centre, directions=components, offset=np.zeros_like(components))
    grid = Grid(top=start.norms.largest**2)
    price = part(plan.micro_rho, 0.2 * VARIANCE_SHARE)
    histogram = read_histogram((yield PricedQuery(query=slope.norms(grid), micro_rho=price)), grid)
    price = part(plan.micro_rho, 0.6 * VARIANCE_SHARE)
    k = components.shape[1]
    noise = 2 * math.sqrt(k) / drawn_mu(plan, price)
    clip = choose(histogram, None, Balance(power=1, noise=noise, quadratic=True))
    gradient = yield from _gradient(slope, clip, price, start.records)
    lengths = np.maximum((components * gradient).sum(axis=0), 0.0)
    return lengths, total, clip / (drawn_mu(plan, price) * start.records)
