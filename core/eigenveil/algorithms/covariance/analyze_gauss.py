"""analyze-gauss: the noised covariance matrix as printed, the reference that users pick today.

Source: Dwork, Talwar, Thakurta, Zhang 2014, and `GaussCov` of Dong, Liang, Yi 2022: independent noise of
one size on the whole upper triangle, which is sqrt 2 too loud off the diagonal [P3]. `gauss-cov` is never
worse. Count, mean and radius are as in `gauss-cov`, so that the noise is all they differ in.
"""

from __future__ import annotations

import numpy as np

from eigenveil.algorithms.covariance.gauss_cov import of_matrix
from eigenveil.algorithms.covariance.noised_gram import covariance, noise_ratio, prepared
from eigenveil.protocol.estimate import Steps
from eigenveil.protocol.plan import Plan


def analyze_gauss(plan: Plan) -> Steps:
    """Count, mean, radius, one Gram matrix with flat noise; its eigenvalues as they are.

    Neighbours: as the study says.
    Privacy: [P7]; the questions are priced and answered behind the barrier.
    Cost: the whole budget, d (d + 1) / 2 integers from every site, 7 rounds (6 without clipping).
    """
    start, clip = yield from prepared(plan, noise_ratio(plan, flat=True))
    noised = yield from covariance(plan, start, clip, clip.left, flat=True)
    return of_matrix(plan, start, clip, noised, lambda values, _: np.maximum(values, 0.0))
