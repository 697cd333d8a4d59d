"""noisy-power: power iteration with noise on every product, as users would write it; a reference.

Source: Hardt & Price 2014. The product of a row of norm C with orthonormal directions W can have norm C^2,
and that worst case is what the noise is scaled to: rows are clipped, the gradients' own range is not used.
Rounds are fixed, share the budget evenly, and only the last one counts. `dp-pca` mends all three.
"""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np

from eigenveil.algorithms.covariance.noised_gram import Clip, clip_warning, noise_ratio, prepared
from eigenveil.algorithms.shared.gradient_query import Slope
from eigenveil.algorithms.shared.preparation import Centred, drawn_mu, price, priced
from eigenveil.algorithms.shared.stated_error import centre_sine, centre_warning, even_gaps
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, fix_signs, orthonormal, start_directions
from eigenveil.protocol.estimate import Estimate, Steps
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import PricedQuery
from eigenveil.protocol.release import Release
from eigenveil.queries import SquaredNormSum
from eigenveil.study.grid import S

ROUNDS = 15
ENERGY_SHARE = 0.01


def noisy_power(plan: Plan) -> Steps:
    """Count, mean, radius, ROUNDS products, total variance.

    Neighbours: as the study says.
    Privacy: [P7]; the questions are priced and answered behind the barrier.
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
    release = yield priced(plan, SquaredNormSum(centre=start.centre, radius=clip.radius), ENERGY_SHARE)
    small = basis.T @ product
    values, turn = eigenpairs((small + small.T) / 2)
    scale = (clip.radius / S) ** 2 / (drawn_mu(plan, price(plan, each)) * start.records * clip.kept)
    total = max(float(release.values[0]) / clip.unit(start.records), 0.0)
    # The angle that the last product's noise turns the weakest direction by.
    turned = scale * math.sqrt(d) / max(float(values[-1]), 1e-12)
    lost = centre_sine(start, even_gaps(values, total, d) - scale)
    return Estimate(
        components=fix_signs(orthonormal(product @ turn)).T,
        explained_variance=np.maximum(values, 0.0),
        mean=start.mean,
        records=start.records,
        total_variance=total,
        noise_scale=scale,
        sin_error=min(1.0, math.hypot(turned, lost)),
        warnings=clip_warning(clip.kept) + centre_warning(lost),
    )


def noised_product(
    plan: Plan, start: Centred, clip: Clip, w: FloatArray, share: float
) -> Generator[PricedQuery, Release, tuple[FloatArray, float]]:
    """The noised mean of z (z . W) at a share of the budget, and its noise on an entry. Shape: (d, k)."""
    slope = Slope(centre=start.centre, directions=w, offset=np.zeros_like(w))
    query, unit = slope.query((clip.radius / S) ** 2)
    release = yield priced(plan, query, share)
    whole = unit * start.records * clip.kept
    return release.values.reshape(w.shape) / whole, release.sigma / whole
