"""Published covariance and power methods, as references: em-cov, analyze-gauss and noisy-power.

Count, mean and radius are as in `gauss-cov`. The source of each method is in the docstring of its function.
"""

from __future__ import annotations

import math

import numpy as np

from eigenveil.accounting.zcdp import mu
from eigenveil.algorithms.papers.covariance import spectrum
from eigenveil.algorithms.recommended.gauss_cov import (
    RowClip,
    clip_warning,
    covariance,
    matrix_estimate,
    matrix_warnings,
    noise_ratio,
    prepared,
)
from eigenveil.algorithms.shared.preparation import (
    LocationEstimate,
    cost_of_share,
    effective_mu,
    query_at_share,
)
from eigenveil.algorithms.shared.query_builders import GradientQueryBuilder
from eigenveil.algorithms.shared.stated_error import (
    centre_sine,
    centre_warning,
    even_gaps,
    gaps_of,
    has_known_clipping,
)
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import fix_signs, orthonormal, rotated_eigenpairs, start_directions
from eigenveil.protocol.estimate import Estimate, Steps, StepsTo
from eigenveil.protocol.plan import Plan
from eigenveil.queries import VECTOR, Eigenvectors, SquaredNormSum
from eigenveil.study.grid import S


def em_cov(plan: Plan) -> Steps:
    """Run em-cov: count, mean, radius, then half of the rest for the spectrum and half for the directions.

    Eigenvectors by the exponential mechanism, one by one, and noised eigenvalues. Source: Amin, Dick,
    Kulesza, Medina, Vassilvitskii 2019 (Differentially private covariance estimation), with the full exponent
    that privacy allows instead of half or a quarter [P13]. Only `components` directions are sampled; the
    remaining variance is spread evenly over the other directions.

    Neighbours: as in the study.
    Privacy: [P7], [P10], [P13], [P14]; both need a coordinator trusted with exact sums.
    Cost: the whole epsilon, d (d + 1) integers from every site, 8 rounds (7 without clipping).
    """
    d, k = plan.study.dimension, plan.study.components
    # A direction loses about d R^2 k / epsilon of u' C u, where a noised matrix loses 8 sqrt(d) R^2 / mu.
    start, clip = yield from prepared(plan, math.sqrt(d) * k / 4)
    values, sigma = yield from spectrum(plan, start, clip, clip.left / 2)
    query = Eigenvectors(centre=start.centre, radius=clip.radius, records=plan.most_records, count=k)
    release = yield query_at_share(plan, query, clip.left / 2)
    # They are orthogonal up to grid rounding; QR keeps the order.
    vectors = fix_signs(orthonormal(release.values.reshape(k, d).T / VECTOR))
    return Estimate(
        components=vectors.T,
        explained_variance=values[:k],
        mean=start.mean,
        records=start.records,
        total_variance=float(values.sum()),
        noise_scale=sigma,
        sin_error=_error(plan, start, clip, values, sigma),
        covariance=_filled(values, vectors),
        warnings=matrix_warnings(plan, start, clip, values),
    )


def _filled(values: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return sum_i values_i v_i v_i^T, with the mean of the other values in all other directions.

    Shape: values (d,), vectors (d, k) -> (d, d).
    """
    d, k = vectors.shape
    rest = float(values[k:].mean()) if k < d else 0.0
    return rest * np.eye(d) + (vectors * (values[:k] - rest)) @ vectors.T


def _error(
    plan: Plan, start: LocationEstimate, clip: RowClip, values: FloatArray, sigma: float
) -> float | None:
    """Return the first-order sine, with the effect of the centre's error.

    u_j^2 of a direction near i is about 1 / (2 t n (l_i - l_j)), with exponent t.
    """
    if not has_known_clipping(plan):
        return None
    k = plan.study.components
    epsilon = mu(cost_of_share(plan, clip.left / 2)) / max(1, min(k, len(values) - 1))
    moved = plan.study.neighbours.records * plan.study.max_sites_per_person * (clip.radius / S) ** 2
    gaps = gaps_of(values, k)
    sampled = float((1 / gaps).sum()) * moved / (2 * epsilon * start.records * clip.retained)
    return min(1.0, math.hypot(math.sqrt(sampled), centre_sine(start, gaps - sigma)))


def analyze_gauss(plan: Plan) -> Steps:
    """Run analyze-gauss: count, mean, radius, one Gram matrix with flat noise; raw eigenvalues.

    Source: Dwork, Talwar, Thakurta, Zhang 2014, and `GaussCov` of Dong, Liang, Yi 2022: independent noise of
    one size on the whole upper triangle, sqrt 2 too large off the diagonal [P3]. Only the noise differs from
    `gauss-cov`, which is never worse.

    Neighbours: as in the study.
    Privacy: [P7]; each query is charged and answered behind the barrier.
    Cost: the whole budget, d (d + 1) / 2 integers from every site, 7 rounds (6 without clipping).
    """
    start, clip = yield from prepared(plan, noise_ratio(plan, flat=True))
    noised = yield from covariance(plan, start, clip, clip.left, flat=True)
    return matrix_estimate(plan, start, clip, noised, lambda values, _: np.maximum(values, 0.0))


ROUNDS = 15
ENERGY_SHARE = 0.01


def noisy_power(plan: Plan) -> Steps:
    """Run noisy-power: count, mean, radius, ROUNDS products, total variance.

    Power iteration with noise on every product. Source: Hardt & Price 2014. The product of a row of norm C
    with orthonormal directions W can have norm C^2, and the noise is scaled to this worst case: rows are
    clipped, and the gradients' own range is not used. Rounds are fixed, share the budget evenly, and only the
    last one counts. `dp-pca` improves all three.

    Neighbours: as in the study.
    Privacy: [P7]; each query is charged and answered behind the barrier.
    Cost: the whole budget, d k integers a round from every site, ROUNDS + 7 rounds (6 without clipping).
    """
    d, k = plan.study.dimension, plan.study.components
    start, clip = yield from prepared(plan, noise_ratio(plan))
    each = (clip.left - ENERGY_SHARE) / ROUNDS
    w = start_directions(d, k)
    for _ in range(ROUNDS):
        basis = w
        product, _ = yield from noised_product(plan, start, clip, basis, each)
        w = orthonormal(product)
    energy = SquaredNormSum(centre=start.centre, radius=clip.radius)
    release = yield query_at_share(plan, energy, ENERGY_SHARE)
    values, turn = rotated_eigenpairs(basis, product)
    scale = (clip.radius / S) ** 2 / (
        effective_mu(plan, cost_of_share(plan, each)) * start.records * clip.retained
    )
    total = max(float(release.values[0]) / clip.unit(start.records), 0.0)
    # Rotation of the weakest direction by the last product's noise.
    turned = scale * math.sqrt(d) / max(float(values[-1]), 1e-12)
    centre_error = centre_sine(start, even_gaps(values, total, d) - scale)
    return Estimate(
        components=fix_signs(orthonormal(product @ turn)).T,
        explained_variance=np.maximum(values, 0.0),
        mean=start.mean,
        records=start.records,
        total_variance=total,
        noise_scale=scale,
        sin_error=min(1.0, math.hypot(turned, centre_error)),
        warnings=clip_warning(clip.retained) + centre_warning(centre_error),
    )


def noised_product(
    plan: Plan, start: LocationEstimate, clip: RowClip, w: FloatArray, share: float
) -> StepsTo[tuple[FloatArray, float]]:
    """Return the noised mean of z (z . W) at a share of the budget, and its noise sd. Shape: (d, k)."""
    slope = GradientQueryBuilder(centre=start.centre, directions=w, offset=np.zeros_like(w))
    query, unit = slope.query((clip.radius / S) ** 2)
    release = yield query_at_share(plan, query, share)
    whole = unit * start.records * clip.retained
    return release.values.reshape(w.shape) / whole, release.sigma / whole
