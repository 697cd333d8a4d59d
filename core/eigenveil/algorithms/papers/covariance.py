"""Covariance algorithms of Dong, Liang, Yi 2022, and the published ones that they are compared with.

Count, mean and radius are as in `gauss-cov`. Both searches of `adaptive-cov` use the sparse vector technique
on a public logarithmic grid with a public floor; only an index on that grid is released."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from eigenveil.accounting.zcdp import mu
from eigenveil.algorithms.recommended.gauss_cov import (
    RowClip,
    clip_radius,
    clip_to,
    covariance,
    debiased_eigenvalues,
    matrix_estimate,
    matrix_warnings,
    noise_ratio,
    prepared,
    stated_error,
)
from eigenveil.algorithms.shared.clip_radius import NormGrid
from eigenveil.algorithms.shared.preparation import (
    LocationEstimate,
    cost_of_share,
    locate,
    noise_distribution,
    public_radius,
    query_at_share,
)
from eigenveil.algorithms.shared.stated_error import (
    centre_sine,
    gaps_of,
    gauss_error,
    has_known_clipping,
    separate_error,
)
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.numerics.linalg import eigenpairs, fix_signs, orthonormal, start_directions
from eigenveil.protocol.estimate import Estimate, Steps, StepsTo
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseDistribution
from eigenveil.queries import VECTOR, Eigenvectors, RadiusSearch, Spectrum, SquaredNormSum
from eigenveil.queries.limits import least_row_radius
from eigenveil.study.grid import S


def separate_cov(plan: Plan) -> Steps:
    """Run separate-cov: count, mean, radius, then half of the rest for the spectrum, half for a Gram matrix.
    Privacy: [P7], [P10]; the spectrum needs a coordinator trusted with exact sums.
    Cost: the whole budget, d (d + 1) integers from every site, 8 rounds (7 without clipping)."""
    return (yield from separate_estimates((yield from prepared(plan, noise_ratio(plan)))))


def separate_estimates(clip: RowClip) -> Steps:
    """Return sum_i values_i v_i v_i^T and its leading components: values and v_i at half of the rest each."""
    k = clip.plan.study.components
    values, _ = yield from spectrum(clip, clip.left / 2)
    noised = yield from covariance(clip, clip.left / 2)
    _, vectors = eigenpairs(noised.matrix)
    return Estimate(
        components=vectors[:, :k].T,
        explained_variance=values[:k],
        mean=clip.start.mean,
        records=clip.start.records,
        total_variance=float(values.sum()),
        noise_scale=noised.scale,
        sin_error=stated_error(clip, values, noised.scale),
        covariance=(vectors * values) @ vectors.T,
        warnings=matrix_warnings(clip, gaps_of(values, k)),
    )


def spectrum(clip: RowClip, share: float) -> StepsTo[tuple[FloatArray, float]]:
    """Return noised eigenvalues of the covariance, sorted and at least 0 (d,), and the sd of their noise."""
    query = Spectrum(centre=clip.start.centre, radius=clip.radius, records=clip.plan.most_records)
    release = yield query_at_share(clip.plan, query, share)
    return np.maximum(np.sort(release.values)[::-1] / clip.unit, 0.0), release.sigma / clip.unit


# Shares of a search and of the total variance: of rho, or of epsilon under basic composition.
BY_RHO, BY_EPSILON = (0.05, 0.01), (0.08, 0.03)
MISTAKEN = 0.1  # probability that noise alone stops a search too early or too late


def adaptive_cov(plan: Plan) -> Steps:
    """Run adaptive-cov: count, mean, private radius, total variance, threshold, then the better method.

    A radius that the study states (a quantile, a norm, or none) replaces both searches.
    Privacy: [P7], [P10], [P12]; searches and spectrum need a coordinator trusted with exact sums.
    Cost: the whole budget, d (d + 1) / 2 integers from every site or twice that, 10 or 11 rounds."""
    start = yield from locate(plan)
    find = _search_radius if plan.study.radius is None else _stated_radius
    clip, trace = yield from find(start)
    gauss, separate = _errors(plan, clip.left, clip.radius / S, trace)
    if gauss <= separate:
        return matrix_estimate((yield from covariance(clip, clip.left)), debiased_eigenvalues)
    return (yield from separate_estimates(clip))


def _shares(plan: Plan) -> tuple[float, float]:
    return BY_RHO if noise_distribution(plan) is NoiseDistribution.GAUSSIAN else BY_EPSILON


def _search_radius(start: LocationEstimate) -> StepsTo[tuple[RowClip, float]]:
    """Return the clip by two sparse vector searches and the noised sum of squared norms (analysis units)."""
    plan, (search, energy) = start.plan, _shares(start.plan)
    left = start.left - 2 * search - energy
    top = public_radius(plan, start.centre)
    edges = NormGrid(top=top / S).edges(S)
    # A limit at which noise on both sides rarely accepts an edge with many records beyond it.
    few = math.ceil(2 / mu(cost_of_share(plan, search)) * math.log(edges.size / MISTAKEN))
    radius = yield from _search(start, edges, frozen(np.full(edges.size, few)), top)
    trace = yield from _energy(start, radius, energy)
    edges = edges[: max(1, int(np.searchsorted(edges, radius)))]
    limits = _record_limits(plan, edges, radius, left, trace)
    tau = yield from _search(start, edges, limits, radius)
    # These norms are about the centre before its last step, which may have been far away.
    return clip_to(start, tau, start.norms.of_mean_square(trace / start.records), left), trace


def _stated_radius(start: LocationEstimate) -> StepsTo[tuple[RowClip, float]]:
    """Return the clip of the stated radius and the noised sum of squared norms."""
    _, energy = _shares(start.plan)
    clip = yield from clip_radius(start, noise_ratio(start.plan))
    trace = yield from _energy(start, clip.radius, energy)
    return replace(clip, left=clip.left - energy), trace


def _energy(start: LocationEstimate, radius: int, share: float) -> StepsTo[float]:
    release = yield query_at_share(start.plan, SquaredNormSum(centre=start.centre, radius=radius), share)
    return max(float(release.values[0]) / S**2, 0.0)


def _search(start: LocationEstimate, edges: IntArray, limits: IntArray, top: int) -> StepsTo[int]:
    """Return the first edge with few enough records beyond, or the public floor; `top` if there is none."""
    query = RadiusSearch(centre=start.centre, edges=edges, limits=limits)
    release = yield query_at_share(start.plan, query, _shares(start.plan)[0])
    return max(int([*edges.tolist(), top][int(release.values[0])]), least_row_radius(start.centre.size))


def _errors(plan: Plan, left: float, radius: float, trace: float) -> tuple[float, float]:
    """Return the predicted Frobenius errors of gauss-cov and separate-cov at the rest of the budget."""
    whole, half = cost_of_share(plan, left), cost_of_share(plan, left / 2)
    return gauss_error(plan, whole, radius), separate_error(plan, half, radius, trace)


def _record_limits(plan: Plan, edges: IntArray, top: int, left: float, trace: float) -> IntArray:
    """Return, for each edge, the records beyond it from which a larger edge is worth its noise. Shape: (b,).

    A threshold t removes at most (u^2 - t^2) more of each record beyond it than a larger u, and u costs
    error(u) - error(t) more, with the error of the better method. All larger edges are compared: where the
    better method changes, the next edge may not be worth it and a later one is."""
    radii = np.append(edges, max(top, int(edges[-1]) + 1)) / S
    errors = np.array([min(_errors(plan, left, radius, trace)) for radius in radii.tolist()])
    steps = ((errors[i + 1 :] - errors[i]) / (radii[i + 1 :] ** 2 - radii[i] ** 2) for i in range(edges.size))
    worth = np.array([step.min() for step in steps])
    return frozen(np.clip(np.rint(worth), 0, plan.most_records).astype(np.int64))


def zero(plan: Plan) -> Steps:
    """Return public directions and no variance; the mean is the middle of the public bounds.

    Neighbours: any.
    Privacy: [P7]; without queries nothing is revealed and nothing charged."""
    d, k = plan.study.dimension, plan.study.components
    yield from ()
    return Estimate(
        components=start_directions(d, k).T,
        explained_variance=np.zeros(k),
        mean=np.zeros(d),
        records=0.0,
        total_variance=0.0,
        noise_scale=0.0,
        sin_error=1.0,
        covariance=np.zeros((d, d)),
        warnings=("no record was read: these directions are public and say nothing about the records",),
    )


def em_cov(plan: Plan) -> Steps:
    """Run em-cov: count, mean, radius, then half of the rest for the spectrum and half for the directions.

    Source: Amin, Dick, Kulesza, Medina, Vassilvitskii 2019, with the full exponent that privacy allows [P13].
    Only `components` directions are sampled; the remaining variance is spread evenly over the others.
    Privacy: [P7], [P10], [P13], [P14]; both need a coordinator trusted with exact sums.
    Cost: the whole epsilon, d (d + 1) integers from every site, 8 rounds (7 without clipping)."""
    d, k = plan.study.dimension, plan.study.components
    # A direction loses about d R^2 k / epsilon of u' C u, where a noised matrix loses 8 sqrt(d) R^2 / mu.
    clip = yield from prepared(plan, math.sqrt(d) * k / 4)
    values, sigma = yield from spectrum(clip, clip.left / 2)
    query = Eigenvectors(centre=clip.start.centre, radius=clip.radius, records=plan.most_records, count=k)
    release = yield query_at_share(plan, query, clip.left / 2)
    # They are orthogonal up to grid rounding; QR keeps the order.
    vectors = fix_signs(orthonormal(release.values.reshape(k, d).T / VECTOR))
    return Estimate(
        components=vectors.T,
        explained_variance=values[:k],
        mean=clip.start.mean,
        records=clip.start.records,
        total_variance=float(values.sum()),
        noise_scale=sigma,
        sin_error=_em_error(clip, values, sigma),
        covariance=_filled(values, vectors),
        warnings=matrix_warnings(clip, gaps_of(values, k)),
    )


def _filled(values: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return sum_i values_i v_i v_i^T, with the mean of the other values in all other directions. Shape:
    values (d,), vectors (d, k) -> (d, d)."""
    d, k = vectors.shape
    rest = float(values[k:].mean()) if k < d else 0.0
    return rest * np.eye(d) + (vectors * (values[:k] - rest)) @ vectors.T


def _em_error(clip: RowClip, values: FloatArray, sigma: float) -> float | None:
    """Return the first-order sine, with the effect of the centre's error. u_j^2 of a direction near i is
    about 1 / (2 t n (l_i - l_j)), with exponent t."""
    plan, start = clip.plan, clip.start
    if not has_known_clipping(plan):
        return None
    k = plan.study.components
    epsilon = mu(cost_of_share(plan, clip.left / 2)) / max(1, min(k, len(values) - 1))
    moved = plan.study.changed_records * (clip.radius / S) ** 2
    gaps = gaps_of(values, k)
    sampled = float((1 / gaps).sum()) * moved / (2 * epsilon * start.records * clip.retained)
    return min(1.0, math.hypot(math.sqrt(sampled), centre_sine(start, gaps - sigma)))


def analyze_gauss(plan: Plan) -> Steps:
    """Run analyze-gauss: count, mean, radius, one Gram matrix with flat noise; raw eigenvalues.

    Source: Dwork, Talwar, Thakurta, Zhang 2014: noise of one size on the whole upper triangle, sqrt 2 too
    large off the diagonal [P3].
    Privacy: [P7]; each query is charged and answered behind the barrier.
    Cost: the whole budget, d (d + 1) / 2 integers from every site, 7 rounds (6 without clipping)."""
    clip = yield from prepared(plan, noise_ratio(plan, flat=True))
    noised = yield from covariance(clip, clip.left, flat=True)
    return matrix_estimate(noised, lambda values, _: np.maximum(values, 0.0))
