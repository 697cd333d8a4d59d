"""gauss-cov: the noised covariance matrix of clipped rows, and its leading eigenvectors.

Source: Analyze Gauss (Dwork, Talwar, Thakurta, Zhang 2014) and Dong, Liang, Yi 2022, with symmetric
noise [P3] and a private clip radius; at delta = 0 with Laplace noise.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from eigenveil.algorithms.covariance.noised_gram import (
    Clip,
    Noised,
    covariance,
    matrix_warnings,
    noise_of,
    noise_ratio,
    prepared,
    stated_error,
)
from eigenveil.algorithms.shared.preparation import Centred
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import leading
from eigenveil.protocol.estimate import Estimate, Steps
from eigenveil.protocol.plan import Plan


def gauss_cov(plan: Plan) -> Steps:
    """Count, mean, radius, one Gram matrix.

    Neighbours: as the study says.
    Privacy: [P7]; the questions are priced and answered behind the barrier.
    Cost: the whole budget, d (d + 1) / 2 integers from every site, 7 rounds (6 without clipping).
    """
    start, clip = yield from prepared(plan, noise_ratio(plan))
    noised = yield from covariance(plan, start, clip, clip.left)
    return of_matrix(plan, start, clip, noised, deflated)


def of_matrix(
    plan: Plan,
    start: Centred,
    clip: Clip,
    noised: Noised,
    variances: Callable[[FloatArray, float], FloatArray],
) -> Estimate:
    """The leading components of a noised matrix, and what `variances` makes of its eigenvalues and scale."""
    k = plan.study.components
    values, vectors = leading(noised.matrix, k)
    return Estimate(
        components=vectors.T,
        explained_variance=clip.restored(variances(values, noised.scale))[:k],
        mean=start.mean,
        records=start.records,
        total_variance=noised.trace,
        noise_scale=noised.scale,
        sin_error=stated_error(plan, start, clip, values, noised.scale),
        covariance=noised.matrix,
        noise=noise_of(plan, start, clip, noised),
        warnings=matrix_warnings(plan, start, clip, values),
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
