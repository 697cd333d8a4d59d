"""dp-pca: recentred noisy power iteration on the full data, with averaging of the tail.

From Liu, Kong, Jain, Oh 2022: recentre the gradients and clip to their range instead of their norm. Shares
and constants were measured on synthetic and clinical tables (benchmarks/accuracy.py)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from eigenveil.algorithms.shared.clip_radius import NormGrid, choose_radius, read_histogram
from eigenveil.algorithms.shared.preparation import (
    LocationEstimate,
    effective_mu,
    locate,
    row_radius,
    share_of,
    signal_to_noise,
)
from eigenveil.algorithms.shared.query_builders import GradientQueryBuilder
from eigenveil.algorithms.shared.stated_error import centre_sine, centre_warning, even_gaps
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, fix_signs, orthonormal, sin_angle, start_directions
from eigenveil.protocol.estimate import Estimate, Steps, StepsTo
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import PricedQuery
from eigenveil.queries import SquaredNormSum
from eigenveil.study.grid import S
from eigenveil.study.radius import quantile

RADIUS_SHARE, VARIANCE_SHARE = 0.08, 0.04
REFRESHES = 3  # of the clip radius
ROUNDS, MANY_ROUNDS = 40, 100
STRONG = 2000.0  # signal from which more rounds and spare directions pay for small gaps
SPARE_DIRECTIONS = 2
TAIL = 0.3  # the pull and the averaging begin after this share of the rounds
FLOOR = 1e-4  # smallest scale of a direction, relative to the largest
# Largest scale: far beyond any mean of records, but noise over a released count of 0 can exceed it. The next
# query's `shift` must stay within its limit.
CEILING = 2.0**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Number of rounds and directions, and the cost of each, from public numbers and the noised count."""

    rounds: int
    directions: int
    round_cost: int
    radius_cost: int

    @property
    def tail(self) -> int:
        """Return the first round of the tail."""
        return math.floor(TAIL * self.rounds)

    @property
    def refreshes(self) -> tuple[int, ...]:
        """Return the rounds that begin with a new clip radius. More of them do not pay (measured)."""
        return (0, 2, self.tail)


def schedule(start: LocationEstimate) -> Schedule:
    plan = start.plan
    d, k = plan.study.dimension, plan.study.components
    strength = signal_to_noise(start)
    rounds = MANY_ROUNDS if strength >= STRONG else ROUNDS
    left = start.left - RADIUS_SHARE - VARIANCE_SHARE
    return Schedule(
        rounds=rounds,
        directions=min(k + SPARE_DIRECTIONS, d) if strength >= STRONG and k > 1 else k,
        round_cost=share_of(plan.micro_rho, left / rounds),
        radius_cost=share_of(plan.micro_rho, RADIUS_SHARE / REFRESHES),
    )


def dp_pca(plan: Plan) -> Steps:
    """Run dp-pca: count, mean, 40 or 100 gradients with three private radii, explained variances.
    Privacy: [P7]; each query is charged and answered behind the barrier.
    Cost: the whole budget, d k integers a round from every site."""
    study = plan.study
    start = yield from locate(plan)
    tail = yield from iterate(start, schedule(start))
    components = tail.components(study.components)
    variances, total, scale = yield from read_variances(start, components)
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
    """Return a warning if the releases do not separate the last component from the next direction.

    Both halves of the tail start alike and share the directions not yet rotated away. If variances nearly
    coincide, the halves agree on a mixture, and their difference understates the error: at n = 20,000, d = 6,
    k = 2, epsilon = 1 and a next variance of 0.99 times the last, 0.02 was stated and 0.4 measured."""
    d, k = len(tail.basis), len(variances)
    left = total - float(variances.sum())  # upper limit of the next direction's variance
    if k == d or left < float(variances[-1]) - 2 * scale:
        return ()
    gap, noise = tail.gap(k)
    if math.isnan(gap):
        unmeasured = (
            f"the predicted error assumes that component {k} varies clearly more than the next direction, "
            "which was not measured: if the two are close, the true error is many times as large; "
            "use gauss-cov or one component more to measure it"
        )
        return (unmeasured,)
    sentence = (
        f"component {k} and the next direction have about equal variances, up to the noise: the true error "
        "can be many times the predicted one; use one component fewer or more"
    )
    return () if gap > 2 * noise else (sentence,)


@dataclass(slots=True)
class Tail:
    """Sums of the noised gradients of the tail's two halves, in a common basis. Shape: basis (d, m), first
    and second (d, m)."""

    basis: FloatArray
    first: FloatArray
    second: FloatArray

    def components(self, k: int) -> FloatArray:
        """Return the leading k directions of the averaged gradients. Shape: (d, k)."""
        return fix_signs(self._ritz(self.first + self.second)[1][:, :k])

    def error(self, k: int) -> float:
        """Return the estimated sine: 1.2 times half of the halves' chord (fitted to exact components)."""
        first, second = (fix_signs(self._ritz(half)[1][:, :k]) for half in (self.first, self.second))
        return 1.2 * math.sin(math.asin(sin_angle(first.T, second.T)) / 2)

    def gap(self, k: int) -> tuple[float, float]:
        """Return the gap between the k-th and the next eigenvalue of the gradients, and its noise. The noise
        is the largest difference of the halves; (nan, nan) without spare directions."""
        if self.basis.shape[1] == k:
            return math.nan, math.nan
        first, second = self._ritz(self.first)[0], self._ritz(self.second)[0]
        both = (first + second) / 2
        return float(both[k - 1] - both[k]), float(np.abs(first - second).max())

    def _ritz(self, gradients: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the Rayleigh-Ritz values (m,), falling, and vectors (d, m)."""
        q = orthonormal(gradients)
        small = q.T @ gradients @ (self.basis.T @ q)
        stretches, turn = eigenpairs((small + small.T) / 2)
        return stretches, q @ turn


def iterate(start: LocationEstimate, times: Schedule) -> StepsTo[Tail]:
    v, scales = start_directions(start.centre.size, times.directions), np.ones(times.directions)
    radius: float | None = None
    tail: Tail | None = None
    for t in range(times.rounds):
        pull = v * np.sqrt(scales) if t >= times.tail else np.zeros_like(v)
        slope = GradientQueryBuilder(centre=start.centre, directions=v / np.sqrt(scales), offset=pull)
        if t in times.refreshes:
            radius = yield from gradient_radius(start, times, slope, radius)
        assert radius is not None  # round 0 refreshes
        gradient = yield from _gradient(slope, radius * slope.largest_norm, times.round_cost, start.records)
        gradient = gradient * np.sqrt(scales)
        if t >= times.tail:
            tail = tail or Tail(basis=v, first=np.zeros_like(v), second=np.zeros_like(v))
            half = tail.first if t < (times.tail + times.rounds) // 2 else tail.second
            half += gradient @ (v.T @ tail.basis)
        v, scales = _next(gradient)
    assert tail is not None
    return tail


def _next(gradient: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the next directions and the scales of their columns."""
    lengths: FloatArray = np.minimum(np.sqrt((gradient**2).sum(axis=0)), CEILING)
    return orthonormal(gradient), np.maximum(lengths, max(FLOOR * float(lengths.max()), 1e-12))


def gradient_radius(
    start: LocationEstimate, times: Schedule, slope: GradientQueryBuilder, before: float | None
) -> StepsTo[float]:
    """Return a new clip radius, for directions of norm 1."""
    grid = NormGrid(top=start.norms.largest**2 * slope.largest_norm)
    release = yield PricedQuery(query=slope.norms(grid), micro_rho=times.radius_cost)
    # The relevant noise is that of the averaged tail, not of one round.
    averaged = effective_mu(start.plan, times.round_cost * (times.rounds - times.tail))
    noise, rule = 6 * math.sqrt(slope.offset.size) / averaged, quantile(start.plan.study.radius)
    fallback = None if before is None else before * slope.largest_norm
    histogram = read_histogram(release, grid)
    radius = choose_radius(histogram, rule, noise, power=1, quadratic=False, fallback=fallback)
    return radius / slope.largest_norm


def _gradient(slope: GradientQueryBuilder, radius: float, cost: int, records: float) -> StepsTo[FloatArray]:
    """Return the noised mean of x (x . W). Shape: (d, m)."""
    query, unit = slope.query(radius)
    release = yield PricedQuery(query=query, micro_rho=cost)
    return slope.exact_offset(query.spec) + release.values.reshape(slope.offset.shape) / (unit * records)


def read_variances(
    start: LocationEstimate, components: FloatArray
) -> StepsTo[tuple[FloatArray, float, float]]:
    """Return the variance along each component, the total, and the noise on an entry of the gradient.

    Clipping biases the gradients of the tail, so the variances come from one more gradient with a radius that
    hardly clips. Only k of its d k noised numbers are used."""
    plan = start.plan
    cost = share_of(plan.micro_rho, 0.2 * VARIANCE_SHARE)
    longest = choose_radius(start.norms, None, 1 / effective_mu(plan, cost), power=2, quadratic=True)
    radius = row_radius(longest, plan.study.dimension)
    release = yield PricedQuery(query=SquaredNormSum(centre=start.centre, radius=radius), micro_rho=cost)
    total = max(float(release.values[0]) / (S**2 * start.records), 0.0)
    slope = GradientQueryBuilder(centre=start.centre, directions=components, offset=np.zeros_like(components))
    grid = NormGrid(top=start.norms.largest**2)
    histogram = read_histogram((yield PricedQuery(query=slope.norms(grid), micro_rho=cost)), grid)
    cost = share_of(plan.micro_rho, 0.6 * VARIANCE_SHARE)
    noise = 2 * math.sqrt(components.shape[1]) / effective_mu(plan, cost)
    clip = choose_radius(histogram, None, noise, power=1, quadratic=True)
    gradient = yield from _gradient(slope, clip, cost, start.records)
    lengths = np.maximum((components * gradient).sum(axis=0), 0.0)
    return lengths, total, clip / (effective_mu(plan, cost) * start.records)
