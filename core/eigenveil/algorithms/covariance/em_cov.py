"""em-cov: eigenvectors by the exponential mechanism, one after the other, and noised eigenvalues.

Source: Amin, Dick, Kulesza, Medina, Vassilvitskii 2019 (Differentially private covariance estimation), with
the exponent that privacy allows instead of half or a quarter of it [P13]. Only `components` directions are
sampled; the variance of all others is spread evenly over what is left.
"""

from __future__ import annotations

import math

import numpy as np

from eigenveil.accounting.zcdp import mu
from eigenveil.algorithms.covariance.noised_gram import Clip, matrix_warnings, prepared
from eigenveil.algorithms.covariance.separate_cov import spectrum
from eigenveil.algorithms.shared.preparation import UNCLIPPED, Centred, price, priced
from eigenveil.algorithms.shared.stated_error import centre_sine, gaps_of
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import fix_signs, orthonormal
from eigenveil.protocol.estimate import Estimate, Steps
from eigenveil.protocol.plan import Plan
from eigenveil.queries import VECTOR, Eigenvectors
from eigenveil.study.grid import S
from eigenveil.study.radius import quantile


def em_cov(plan: Plan) -> Steps:
    """Count, mean, radius, then half of what is left for the spectrum and half for the directions.

    Neighbours: as the study says.
    Privacy: [P7], [P10], [P13], [P14]; both work at the coordinator, which must be trusted with exact sums.
    Cost: the whole epsilon, d (d + 1) integers from every site, 8 rounds (7 without clipping).
    """
    d, k = plan.study.dimension, plan.study.components
    # A direction loses about d R^2 k / epsilon of u' C u, where a noised matrix loses 8 sqrt(d) R^2 / mu.
    start, clip = yield from prepared(plan, math.sqrt(d) * k / 4)
    values, sigma = yield from spectrum(plan, start, clip, clip.left / 2)
    query = Eigenvectors(centre=start.centre, radius=clip.radius, records=plan.most_records, count=k)
    release = yield priced(plan, query, clip.left / 2)
    # They are orthogonal up to the grid's steps; QR keeps the order.
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
    """sum_i values_i v_i v_i^T, and the mean of the other values in all other directions.

    Shape: values (d,), vectors (d, k) -> (d, d).
    """
    d, k = vectors.shape
    rest = float(values[k:].mean()) if k < d else 0.0
    return rest * np.eye(d) + (vectors * (values[:k] - rest)) @ vectors.T


def _error(plan: Plan, start: Centred, clip: Clip, values: FloatArray, sigma: float) -> float | None:
    """First-order sine: u_j^2 of a direction near i is about 1 / (2 t n (l_i - l_j)), t the exponent; and
    what the centre's error adds."""
    if quantile(plan.study.radius) not in (None, UNCLIPPED):
        return None
    k, d = plan.study.components, len(values)
    epsilon = mu(price(plan, clip.left / 2)) / max(1, min(k, d - 1))
    moved = plan.study.neighbours.records * plan.study.max_sites_per_person * (clip.radius / S) ** 2
    gaps = gaps_of(values, k)
    sampled = float((1 / gaps).sum()) * moved / (2 * epsilon * start.records * clip.kept)
    return min(1.0, math.hypot(math.sqrt(sampled), centre_sine(start, gaps - sigma)))
