"""plain-cov: one noised Gram matrix about the middle of the public bounds, at a public radius.

Nothing is asked first but the count, so that every figure of it follows from the noise of one question: what
a centre and a radius found privately are worth can be read off beside it.
"""

from __future__ import annotations

import numpy as np

from eigenveil.algorithms.covariance.noised_gram import Clip, covariance, predicted_error
from eigenveil.algorithms.shared.preparation import (
    FEWEST,
    Centred,
    nothing_known,
    priced,
    public_radius,
    shares,
)
from eigenveil.numerics.linalg import eigenpairs
from eigenveil.protocol.estimate import Estimate, Steps
from eigenveil.protocol.plan import Plan
from eigenveil.queries import Count
from eigenveil.study.grid import midpoint


def plain_cov(plan: Plan) -> Steps:
    """Count, one Gram matrix of unclipped rows; its leading eigenvectors.

    Neighbours: as the study says.
    Privacy: [P7]; the questions are priced and answered behind the barrier.
    Cost: the whole budget, d (d + 1) / 2 + 1 integers from every site, 2 rounds.
    """
    k, centre = plan.study.components, midpoint(plan.study)
    share = shares(plan).count
    release = yield priced(plan, Count(), share)
    records = max(float(release.values[0]), FEWEST)
    start = Centred(records=records, centre=centre, norms=nothing_known(centre), mean_share=0.0)
    clip = Clip(radius=public_radius(plan, centre), kept=1.0, left=1 - share)
    noised = yield from covariance(plan, start, clip, clip.left)
    values, vectors = eigenpairs(noised.matrix)
    return Estimate(
        components=vectors[:, :k].T,
        explained_variance=np.maximum(values[:k], 0.0),
        mean=start.mean,
        records=records,
        total_variance=noised.trace,
        noise_scale=noised.scale,
        sin_error=predicted_error(values, noised.scale, k),
        covariance=noised.matrix,
    )
