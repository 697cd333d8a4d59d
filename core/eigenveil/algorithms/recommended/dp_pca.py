"""dp-pca: recentred noisy power iteration on the full data, with averaging of the tail.

From Liu, Kong, Jain, Oh 2022: recentre the gradients and clip to their range instead of their norm. Shares
and constants were measured on synthetic and clinical tables (benchmarks/accuracy/targets.py)."""

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
from eigenveil.algorithms.shared.stated_error import (
    centre_sine,
    centre_warning,
    clipping_bias,
    even_gaps,
    product_bias_factor,
    rounding_error,
    separation_warning,
    typical_sine,
)
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, fix_signs, orthonormal, sin_angle, start_directions
from eigenveil.protocol.estimate import Estimate, Steps, StepsTo
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import PricedQuery
from eigenveil.queries import SquaredNormSum
from eigenveil.study.algorithm import Algorithm
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
    times = schedule(start)
    tail = yield from iterate(start, times)
    k, components = study.components, tail.components(study.components)
    stated = quantile(study.radius) is None
    if plan.algorithm is Algorithm.DP_PCA and plan.revision >= 3 and k < study.dimension:
        gradient, total, scale = yield from read_gradient(start, np.hstack([components, tail.drift(k)]))
        variances = along(components, gradient[:, :k])
        least = float(variances.min())
        following, noise = next_variance(components, tail.drift(k), gradient[:, k:], scale, least)
        clipped = clipping_sine(tail, variances, even_gaps(variances, total, study.dimension), scale)
        turned = math.hypot(tail_sine(tail, times, k, least, following + noise), clipped)
        warnings = separation_warning(np.sort(variances)[::-1], following, noise)
    else:
        variances, total, scale = yield from read_variances(start, components)
        turned, warnings = tail.error(k), gap_warning(tail, variances, total, scale)
    gaps = even_gaps(variances, total, study.dimension)
    centre = centre_sine(start, gaps - scale)
    rounding = rounding_error(start, np.append(variances, variances[0] - gaps[0]), gaps)
    return Estimate(
        components=components.T,
        explained_variance=variances,
        mean=start.mean,
        records=start.records,
        total_variance=total,
        noise_scale=scale,
        sin_error=min(1.0, math.hypot(turned, centre, rounding)) if stated else None,
        warnings=centre_warning(centre) + (warnings if stated else ()),
    )


# Factor of the halves' error: its medians were above the true ones (`python -m benchmarks.stated_error` on
# seeds 0 to 11).
HALVES = 0.85


def tail_sine(tail: Tail, times: Schedule, k: int, least: float, following: float) -> float:
    """Return the stated error of a tail's k directions, of variances of at least `least`. What its halves
    have in common does not show in their difference: the start's part along the direction of the `following`
    variance, which a round reduces by the ratio of both."""
    ratio = min(1.0, following / max(least, 1e-300))
    shared = float(np.mean(ratio ** np.arange(times.tail + 1, times.rounds + 1)))
    return min(1.0, math.hypot(HALVES * tail.error(k), math.sin(math.atan(shared))))


def clipping_sine(tail: Tail, variances: FloatArray, gaps: FloatArray, scale: float) -> float:
    """Return the sine by which clipping of a tail's gradients turns directions of these variances and gaps,
    of which none is known below the noise `scale`. Shape: variances (k,), gaps (k, d - k)."""
    known = np.maximum(gaps, max(scale, 1e-300))
    tilts = clipping_bias(tail.clipping_bias, np.append(variances, variances[0] - gaps[0]), known)
    return math.sin(math.atan(typical_sine(tilts)))


SHARP = 0.25  # noise of the next variance, of the least wanted one, from which the drift's own is taken


def next_variance(
    components: FloatArray, drift: FloatArray, gradient: FloatArray, scale: float, least: float
) -> tuple[float, float]:
    """Return the variance of the direction next to components of at least a variance `least`, and the noise
    of a difference to one of theirs.

    The `drift` is a mixture of that direction and noise; its `gradient`, the covariance times it, is less of
    one: its squared length by the variance along the drift is a mean of variances that has the larger ones
    weigh more. It is noisier: an entry of the gradient has noise of sd `scale`. Shape: components (d, k),
    drift and gradient (d, 1)."""
    d, k = components.shape
    beside = gradient - components @ (components.T @ gradient)
    own = float(along(drift, gradient)[0])
    square, by = float((beside**2).sum()), max(own, scale)
    noise = (math.sqrt(2 * (d - k)) * scale**2 + 2 * math.sqrt(square) * scale) / by
    if noise > SHARP * least:
        return own, math.sqrt(2) * scale
    return max((square - (d - k) * scale**2) / by, own), math.hypot(scale, noise)


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
    """Sums of the noised gradients of the tail's two halves, in a common basis, and their
    `stated_error.clipping_bias_factor`. Shape: basis (d, m), first and second (d, m)."""

    basis: FloatArray
    first: FloatArray
    second: FloatArray
    clipping_bias: float = 0.0

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

    def drift(self, k: int) -> FloatArray:
        """Return the direction outside of k < d components in which the halves of the tail differ most. Noise
        moves the components along all directions, and a round draws them back by the ratio of variances:
        where that is near 1, hardly, so a direction of nearly their variance shows most. Shape: (d, 1)."""
        kept = self.components(k)
        first, second = (self._ritz(half)[1][:, :k] for half in (self.first, self.second))
        moved = first @ (first.T @ kept) - second @ (second.T @ kept)
        left, _, _ = np.linalg.svd(moved - kept @ (kept.T @ moved), full_matrices=False)
        return fix_signs(orthonormal(np.hstack([kept, left[:, :1]]))[:, k:])

    def _ritz(self, gradients: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the Rayleigh-Ritz values (m,), falling, and vectors (d, m)."""
        q = orthonormal(gradients)
        small = q.T @ gradients @ (self.basis.T @ q)
        stretches, turn = eigenpairs((small + small.T) / 2)
        return stretches, q @ turn


def iterate(start: LocationEstimate, times: Schedule) -> StepsTo[Tail]:
    v, scales = start_directions(start.centre.size, times.directions), np.ones(times.directions)
    radius: float | None = None
    bias_factor, tail = 0.0, None
    for t in range(times.rounds):
        pull = v * np.sqrt(scales) if t >= times.tail else np.zeros_like(v)
        slope = GradientQueryBuilder(centre=start.centre, directions=v / np.sqrt(scales), offset=pull)
        if t in times.refreshes:
            radius, bias_factor = yield from gradient_clip(start, times, slope, radius)
        assert radius is not None  # round 0 refreshes
        gradient = yield from _gradient(start, slope, radius * slope.largest_norm, times.round_cost)
        gradient = gradient * np.sqrt(scales)
        if t >= times.tail:
            tail = tail or Tail(
                basis=v, first=np.zeros_like(v), second=np.zeros_like(v), clipping_bias=bias_factor
            )
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
    return (yield from gradient_clip(start, times, slope, before))[0]


def gradient_clip(
    start: LocationEstimate, times: Schedule, slope: GradientQueryBuilder, before: float | None
) -> StepsTo[tuple[float, float]]:
    """Return a new clip radius, for directions of norm 1, and the `clipping_bias_factor` of its gradients."""
    grid = NormGrid(top=start.norms.largest**2 * slope.largest_norm)
    release = yield PricedQuery(query=slope.norms(grid), micro_rho=times.radius_cost)
    # The relevant noise is that of the averaged tail, not of one round.
    averaged = effective_mu(start.plan, times.round_cost * (times.rounds - times.tail))
    noise, rule = 6 * math.sqrt(slope.offset.size) / averaged, quantile(start.plan.study.radius)
    fallback = None if before is None else before * slope.largest_norm
    histogram = read_histogram(release, grid)
    radius = choose_radius(histogram, rule, noise, power=1, quadratic=False, fallback=fallback)
    return radius / slope.largest_norm, product_bias_factor(histogram.with_tail(), radius, start.records)


def _gradient(
    start: LocationEstimate, slope: GradientQueryBuilder, radius: float, cost: int
) -> StepsTo[FloatArray]:
    """Return the noised mean of x (x . W) about the mean. Shape: (d, m)."""
    query, unit = slope.query(radius)
    release = yield PricedQuery(query=query, micro_rho=cost)
    pulled = release.values.reshape(slope.offset.shape) / (unit * start.records)
    found = slope.exact_offset(query.spec) + pulled
    if not start.offset.any():
        return found
    return np.asarray(found - np.outer(start.offset, start.offset @ slope.directions))


def read_variances(
    start: LocationEstimate, components: FloatArray
) -> StepsTo[tuple[FloatArray, float, float]]:
    """Return the variance along each component, the total, and the noise on an entry of the gradient. Only k
    of its d k noised numbers are used."""
    gradient, total, scale = yield from read_gradient(start, components)
    return along(components, gradient), total, scale


def along(directions: FloatArray, gradient: FloatArray) -> FloatArray:
    """Return the variance along each direction, by its gradient. Shape: (d, m), (d, m) -> (m,)."""
    return np.asarray(np.maximum((directions * gradient).sum(axis=0), 0.0))


def read_gradient(
    start: LocationEstimate, components: FloatArray
) -> StepsTo[tuple[FloatArray, float, float]]:
    """Return the covariance times these directions, the total variance, and the noise of an entry.

    Clipping biases the gradients of the tail, so this is one more, with a radius that hardly clips. Shape:
    (d, m) -> (d, m)."""
    plan = start.plan
    cost = share_of(plan.micro_rho, 0.2 * VARIANCE_SHARE)
    longest = choose_radius(start.norms, None, 1 / effective_mu(plan, cost), power=2, quadratic=True)
    radius = row_radius(longest, plan.study.dimension)
    release = yield PricedQuery(query=SquaredNormSum(centre=start.centre, radius=radius), micro_rho=cost)
    total = float(release.values[0]) / (S**2 * start.records) - float(start.offset @ start.offset)
    total = max(total, 0.0)
    slope = GradientQueryBuilder(centre=start.centre, directions=components, offset=np.zeros_like(components))
    grid = NormGrid(top=start.norms.largest**2)
    histogram = read_histogram((yield PricedQuery(query=slope.norms(grid), micro_rho=cost)), grid)
    cost = share_of(plan.micro_rho, 0.6 * VARIANCE_SHARE)
    noise = 2 * math.sqrt(components.shape[1]) / effective_mu(plan, cost)
    clip = choose_radius(histogram, None, noise, power=1, quadratic=True)
    gradient = yield from _gradient(start, slope, clip, cost)
    return gradient, total, clip / (effective_mu(plan, cost) * start.records)
