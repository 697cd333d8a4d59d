"""gauss-cov: the noised covariance matrix of clipped rows, and its leading eigenvectors.

Source: Analyze Gauss (Dwork, Talwar, Thakurta, Zhang 2014) and Dong, Liang, Yi 2022, with symmetric
noise [P3] and a private clip radius.
"""

from __future__ import annotations

import math

import numpy as np

from eigenveil.algorithms.estimate import Estimate, Steps
from eigenveil.algorithms.parts import COUNT_SHARE, locate, mu, part, row_norms, row_radius
from eigenveil.algorithms.radius import Balance, choose
from eigenveil.asks import Gram, S
from eigenveil.ints import FloatArray
from eigenveil.linalg import eigenpairs, symmetric
from eigenveil.plan import Plan
from eigenveil.query import Priced

RADIUS_SHARE = 0.05
CLIPPED = 0.9


def gauss_cov(plan: Plan) -> Steps:
    """Count, mean, radius, one Gram matrix.

    Neighbours: as the study says.
    Privacy: [P7]; the questions are priced and answered behind the barrier.
    Cost: the whole budget, d (d + 1) / 2 integers from every site, 7 rounds.
    """
    study = plan.study
    d, k = study.dimension, study.components
    start = yield from locate(plan)
    norms = yield from row_norms(start.centre, part(plan.micro_rho, RADIUS_SHARE))
    price = part(plan.micro_rho, 1 - COUNT_SHARE - start.mean_share - RADIUS_SHARE)
    rule = Balance(power=2, noise=8 * math.sqrt(d) / mu(price), quadratic=True)
    radius = row_radius(choose(norms, study.radius, rule), d)
    release = yield Priced(ask=Gram(centre=start.centre, radius=radius), micro_rho=price)
    kept = norms.kept(radius / S)
    unit = S**2 * start.records * kept  # puts back, on average, what clipping cut off
    covariance = symmetric(release.values, d) / unit
    scale = release.sigma / unit
    values, vectors = eigenpairs(covariance)
    return Estimate(
        components=vectors[:, :k].T,
        explained_variance=deflated(values, scale)[:k],
        mean=start.mean,
        records=start.records,
        total_variance=max(float(np.trace(covariance)), 0.0),
        noise_scale=scale,
        sin_error=predicted_error(values, scale, k) if study.radius is None else None,
        covariance=covariance,
        warnings=clip_warning(kept),
    )


def deflated(values: FloatArray, scale: float) -> FloatArray:
    """Eigenvalues without what noise adds to them. Shape: (d,), falling -> (d,).

    A direction of variance b + t above a level b shows up at b + t + d s^2 / t under symmetric noise of
    off-diagonal sd s = scale / sqrt 2 (Benaych-Georges & Nadakuditi 2011); this solves for t, with the
    median as b. Inside the noise, where there is no solution, half of what shows is kept.
    """
    level = float(np.median(values))
    above = np.maximum(values - level, 0.0)
    hidden = np.sqrt(np.maximum(above**2 - 2 * len(values) * scale**2, 0.0))
    return np.maximum(np.minimum(values, level + (above + hidden) / 2), 0.0)


def clip_warning(kept: float) -> tuple[str, ...]:
    """A sentence if clipping cut off much; variances are then extrapolated."""
    if kept >= CLIPPED:
        return ()
    sentence = (
        f"clipping kept about {kept:.0%} of the records' squared length, so variances are scaled up by "
        "an average that may not hold for every direction; more records or a larger epsilon would help"
    )
    return (sentence,)


def predicted_error(values: FloatArray, scale: float, k: int) -> float:
    """First-order sine of the angle that symmetric noise turns the top-k subspace by.

    E^2 = scale^2 / 2 sum_{i <= k < j} 1 / (l_i - l_j)^2. It does not see what clipping bends, so it
    is stated only for the balanced radius. Shape: values (d,), falling.
    """
    gaps = np.maximum(values[:k, None] - values[None, k:], 1e-12)
    return min(1.0, scale * math.sqrt(float((1 / gaps**2).sum()) / 2))
