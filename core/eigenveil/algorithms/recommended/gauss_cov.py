"""gauss-cov, the noised covariance of clipped rows and its eigenvectors, and its steps for other algorithms.

Source: Analyze Gauss (Dwork, Talwar, Thakurta, Zhang 2014) and Dong, Liang, Yi 2022, with symmetric noise
[P3] and a private clip radius; with Laplace noise at delta = 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from eigenveil.algorithms.shared.clip_radius import NormHistogram, choose_radius
from eigenveil.algorithms.shared.preparation import (
    LocationEstimate,
    box,
    cost_of_share,
    effective_mu,
    has_public_radius,
    locate,
    noise_distribution,
    noise_scale_ratio,
    public_radius,
    query_at_share,
    row_norms,
    row_radius,
    shares,
)
from eigenveil.algorithms.shared.stated_error import (
    centre_sine,
    centre_warning,
    clipping_bias,
    clipping_bias_factor,
    gaps_of,
    has_known_clipping,
    rounding_error,
    typical_sine,
)
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import leading_eigenpairs, symmetric
from eigenveil.protocol.estimate import Estimate, MatrixClipping, MatrixNoise, Steps, StepsTo
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseDistribution
from eigenveil.queries import Gram
from eigenveil.study.algorithm import Algorithm, CustomAlgorithm
from eigenveil.study.grid import S
from eigenveil.study.radius import quantile, stated_norm

CLIPPED = 0.9
DRAG = 0.6  # measured on normal and heavy-tailed records, independent columns and scaled rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowClip:
    """Clip radius of located rows in grid units, and its effects.

    `retained` is the share of the squared norms left by clipping. `clipping_bias_factor` is as in
    `stated_error`. `drag` is the bias against records of large norm, `left` the remaining share of budget.
    `lost`: the variance of each column that clipping may have removed unseen. Shape: lost (d,)."""

    start: LocationEstimate
    radius: int
    retained: float
    clipping_bias_factor: float
    drag: float
    left: float
    lost: FloatArray

    @property
    def plan(self) -> Plan:
        return self.start.plan

    @property
    def unit(self) -> float:
        """Return the integers of a Gram matrix per covariance of 1; restores the clipped part on average."""
        return S**2 * self.start.records * self.retained

    def restored(self, values: FloatArray) -> FloatArray:
        """Return variances with the clipped part of each restored, where `unit` restored the average.

        A record's square grows with x_i^2 as l_i^2 for independent columns, and as l_i if whole records are
        scaled: DRAG interpolates between the two. Shape: values (d,), falling -> (d,)."""
        squares = float((values**2).sum())
        ahead = np.maximum(values * (float(values.sum()) / squares) - 1, 0.0) if squares > 0 else values
        left = np.maximum(self.retained - DRAG * self.drag * ahead, self.retained / 2)
        return np.asarray(values * self.retained / left)


def noise_ratio(plan: Plan, *, flat: bool = False) -> float:
    """Return the noise of a Gram matrix off its diagonal relative to symmetric Gaussian noise."""
    centre = np.zeros(plan.study.dimension, dtype=np.int64)
    return noise_scale_ratio(plan, Gram(centre=centre, radius=S, flat=flat))


def clip_radius(start: LocationEstimate, ratio: float) -> StepsTo[RowClip]:
    """Return the clip by the study's rule for one Gram matrix of this `noise_ratio` at the whole rest.

    Privacy: [P7] post-processing; a public radius needs no query.
    Cost: 5 % of rho, or 8 % of epsilon."""
    plan = start.plan
    if has_public_radius(plan):
        return public_clip(start)
    share = shares(plan).radius
    left = start.left - share
    norms = yield from row_norms(
        start.centre, cost_of_share(plan, share), noise_distribution(plan), stated_norm(plan.study.radius)
    )
    return clip_to(start, balanced(plan, norms, left, ratio), norms, left)


def public_clip(start: LocationEstimate) -> RowClip:
    """Return the clip at the largest norm that a row can have."""
    radius = public_radius(start.plan, start.centre)
    return RowClip(
        start=start,
        radius=radius,
        retained=1.0,
        clipping_bias_factor=0.0,
        drag=0.0,
        left=start.left,
        lost=np.zeros(start.centre.size),
    )


def balanced(plan: Plan, norms: NormHistogram, share: float, ratio: float) -> int:
    """Return the radius, in grid units, by the study's rule for a Gram matrix at a share of the budget."""
    d = plan.study.dimension
    noise = 8 * math.sqrt(d) / effective_mu(plan, cost_of_share(plan, share)) * ratio
    radius = choose_radius(norms, quantile(plan.study.radius), noise, power=2, quadratic=True)
    return row_radius(radius, d)


def clip_to(start: LocationEstimate, radius: int, norms: NormHistogram, left: float) -> RowClip:
    """Return the clip for a radius in grid units, with its effects by a histogram of norms."""
    at = radius / S
    return RowClip(
        start=start,
        radius=radius,
        retained=norms.retained(at),
        clipping_bias_factor=clipping_bias_factor(norms, at, start.records),
        drag=norms.drag(at),
        left=left,
        lost=norms.largest_loss(at, largest_values(start)) / start.records,
    )


def largest_values(start: LocationEstimate) -> FloatArray:
    """Return the largest distance of a value from the centre in each column. Shape: (d,)."""
    return np.asarray((box(start.plan.study) + np.abs(start.centre)) / S)


def prepared(plan: Plan, ratio: float) -> StepsTo[RowClip]:
    """Locate the records, then return the clip for one Gram matrix of this `noise_ratio`."""
    return (yield from clip_radius((yield from locate(plan)), ratio))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GaussCovariance:
    """Noised covariance matrix of clipped rows; `scale` is sqrt 2 times the sd of an entry off its diagonal.

    Symmetric noise has sd `scale` on the diagonal; with `even` the sd is the same everywhere [P3].
    Shape: matrix (d, d)."""

    clip: RowClip
    matrix: FloatArray
    scale: float
    even: bool = False

    @property
    def trace(self) -> float:
        """Return the noised total variance, at least 0."""
        return max(float(np.trace(self.matrix)), 0.0)


def covariance(clip: RowClip, share: float, *, flat: bool = False) -> StepsTo[GaussCovariance]:
    """Return one Gram matrix about the centre, divided by the noised count.

    Privacy: [P7] post-processing of one `Gram` query.
    Cost: `share` of the budget, d (d + 1) / 2 integers from every site."""
    plan, unit, centre = clip.plan, clip.unit, clip.start.centre
    release = yield query_at_share(plan, Gram(centre=centre, radius=clip.radius, flat=flat), share)
    even = flat or noise_distribution(plan) is NoiseDistribution.LAPLACE  # same sd off the diagonal as on it
    matrix = symmetric(release.values, plan.study.dimension)
    matrix /= unit
    if clip.start.offset.any():
        for row, value in zip(matrix, clip.start.offset, strict=True):
            row -= value * clip.start.offset  # by rows: an outer product would be as large as the matrix
    scale = release.sigma / unit * (math.sqrt(2) if even else 1.0)
    return GaussCovariance(clip=clip, matrix=matrix, scale=scale, even=even)


def matrix_noise(noised: GaussCovariance) -> MatrixNoise | None:
    """Return the error model of that matrix [P7]; None where it is not about the records' mean."""
    start = noised.clip.start
    if not start.plan.study.centring:
        return None
    off_diagonal = noised.scale / math.sqrt(2)
    return MatrixNoise(
        distribution=noise_distribution(start.plan),
        diagonal=off_diagonal if noised.even else noised.scale,
        off_diagonal=off_diagonal,
        count=start.relative_count_noise,
        centre=start.squared_mean_error,
        retained_share=min(noised.clip.retained, 1.0),
    )


# Revisions from which a result states what clipping may hide.
CLIPPING_STATED: dict[Algorithm | CustomAlgorithm, int] = {
    Algorithm.GAUSS_COV: 3,
    Algorithm.ANALYZE_GAUSS: 3,
    Algorithm.REFINED_COV: 3,
    Algorithm.AUTO: 2,
}


def matrix_clipping(noised: GaussCovariance) -> MatrixClipping | None:
    """Return the limits of clipping of that matrix [P7]; None from an earlier revision, and where the matrix
    has no error model."""
    clip, plan = noised.clip, noised.clip.plan
    least = CLIPPING_STATED.get(plan.algorithm)
    if not plan.study.centring or least is None or plan.revision < least:
        return None
    return MatrixClipping(
        lost=tuple(clip.lost.tolist()),
        outside=(0.0,) * clip.lost.size,
        radius=clip.radius / S,
        largest=public_radius(plan, clip.start.centre) / S,
    )


def combine_matrices(one: GaussCovariance, other: GaussCovariance) -> GaussCovariance:
    """Return the inverse-variance average of two noised matrices of the same records."""
    part = other.scale**2 / (one.scale**2 + other.scale**2)
    matrix = part * one.matrix + (1 - part) * other.matrix
    return replace(one, matrix=matrix, scale=math.sqrt(part) * one.scale)


def stated_error(clip: RowClip, values: FloatArray, scale: float) -> float | None:
    """Return the first-order sine by which noise, clipping, rounding and the centre's error rotate the top-k
    subspace.

    None for a fixed quantile, whose clipping bias is large and hardly known. A tilt has variance
    scale^2 / 2 / (l_i - l_j)^2 plus that of clipping. Shape: values (d,), falling."""
    if not has_known_clipping(clip.plan):
        return None
    gaps = gaps_of(values, clip.plan.study.components)
    tilts = scale**2 / 2 / gaps**2 + clipping_bias(clip.clipping_bias_factor, values, gaps)
    centre, rounding = centre_sine(clip.start, gaps), rounding_error(clip.start, values, gaps)
    return min(1.0, math.hypot(typical_sine(tilts), centre, rounding))


def matrix_warnings(clip: RowClip, gaps: FloatArray) -> tuple[str, ...]:
    """Return the warnings for components with these gaps, and if clipping removed much. Variances are then
    extrapolated. Shape: gaps (k, d - k), as in `centre_sine`."""
    sentence = (
        f"clipping left about {clip.retained:.0%} of the records' squared norm, so variances are scaled up "
        "by an average that may not hold for every direction; use more records or a larger epsilon"
    )
    clipped = (sentence,) if clip.retained < CLIPPED else ()
    return clipped + centre_warning(centre_sine(clip.start, gaps))


def gauss_cov(plan: Plan) -> Steps:
    """Run gauss-cov: count, mean, radius, one Gram matrix.
    Privacy: [P7]; each query is charged and answered behind the barrier.
    Cost: the whole budget, d (d + 1) / 2 integers from every site, 7 rounds (6 without clipping)."""
    clip = yield from prepared(plan, noise_ratio(plan))
    noised = yield from covariance(clip, clip.left)
    return matrix_estimate(noised, debiased_eigenvalues)


def matrix_estimate(
    noised: GaussCovariance, variances: Callable[[FloatArray, float], FloatArray]
) -> Estimate:
    """Return the leading components of a noised matrix, with variances `variances(eigenvalues, scale)`."""
    clip, k = noised.clip, noised.clip.plan.study.components
    values, vectors = leading_eigenpairs(noised.matrix, k)
    return Estimate(
        components=vectors.T,
        explained_variance=clip.restored(variances(values, noised.scale))[:k],
        mean=clip.start.mean,
        records=clip.start.records,
        total_variance=noised.trace,
        noise_scale=noised.scale,
        sin_error=stated_error(clip, values, noised.scale),
        covariance=noised.matrix,
        noise=matrix_noise(noised),
        clipping=matrix_clipping(noised),
        warnings=matrix_warnings(clip, gaps_of(values, k)),
    )


def debiased_eigenvalues(values: FloatArray, scale: float) -> FloatArray:
    """Return eigenvalues corrected for the bias of noise. Shape: (d,), falling -> (d,).

    A direction of variance b + t above a level b appears at b + t + d s^2 / t under symmetric noise of
    off-diagonal sd s = scale / sqrt 2 (Benaych-Georges & Nadakuditi 2011). This solves for t, with the
    median as b. Inside the noise there is no solution; half of the excess is used."""
    level = float(np.median(values))
    above = np.maximum(values - level, 0.0)
    hidden = np.sqrt(np.maximum(above**2 - 2 * len(values) * scale**2, 0.0))
    return np.maximum(np.minimum(values, level + (above + hidden) / 2), 0.0)
