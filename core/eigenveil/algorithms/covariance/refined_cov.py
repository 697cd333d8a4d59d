"""refined-cov: a noised covariance matrix, then its leading directions turned by their cross covariance with
all others.

Source: gauss-cov for the first stage; the second is our own (docs/algorithms/refined-cov.md), measured on
synthetic and clinical tables.
"""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np

from eigenveil.algorithms.covariance.gauss_cov import deflated, gauss_cov
from eigenveil.algorithms.covariance.noised_gram import (
    Clip,
    Noised,
    balanced,
    clip_to,
    clip_warning,
    covariance,
    noise_ratio,
    public_clip,
)
from eigenveil.algorithms.shared.preparation import (
    Centred,
    Shares,
    is_public,
    locate,
)
from eigenveil.algorithms.shared.refinement import Aligned, refined, steps_for
from eigenveil.algorithms.shared.stated_error import centre_sine, centre_warning
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, fix_signs
from eigenveil.protocol.estimate import Estimate, Steps
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import PricedQuery
from eigenveil.protocol.release import Release

MATRIX = 0.35  # of what is left after the mean, for the first stage
LEAST = 0.3  # a variance is at least this share of the edge of the noise


def refined_cov(plan: Plan) -> Steps:
    """Count, mean, one Gram matrix, one histogram, two cross covariances, or eight where the matrix was weak.

    Neighbours: as the study says.
    Privacy: [P7], [P28]; the questions are priced and answered behind the barrier.
    Cost: the whole budget, d (d + 1) / 2 + 2 d k integers from every site, 9 rounds; 15 where the matrix
    was weak.
    """
    if plan.study.components == plan.study.dimension:  # nothing is left to turn towards
        return (yield from gauss_cov(plan))
    start, clip = yield from prepared(plan)
    noised = yield from covariance(plan, start, clip, clip.left * MATRIX)
    first = aligned(plan, noised)
    found = yield from refined(plan, start, first, clip.left * (1 - MATRIX), steps_for(first.sine(start)))
    return _estimate(plan, start, clip, noised, found)


def prepared(plan: Plan) -> Generator[PricedQuery, Release, tuple[Centred, Clip]]:
    """Where the records are, and the radius that the study's rule gives for the matrix, from the last norms
    of the mean."""
    start = yield from locate(plan, Shares(last=0.03))
    left = 1 - Shares().count - start.mean_share
    if is_public(plan):
        return start, public_clip(plan, start, left)
    radius = balanced(plan, start.norms, left * MATRIX, noise_ratio(plan))
    return start, clip_to(radius, start.norms, start.records, left)


def aligned(plan: Plan, noised: Noised) -> Aligned:
    """A noised matrix on its own axes."""
    values, vectors = eigenpairs(noised.matrix)
    return on_axes(vectors, deflated(values, noised.scale), plan.study.components, noised.scale)


def on_axes(basis: FloatArray, variances: FloatArray, k: int, scale: float) -> Aligned:
    """A matrix with noise of that `scale`: off its diagonal it is 0, give or take the noise.

    Shape: basis (d, m), variances (m,), falling.
    """
    sd, edge = scale / math.sqrt(2), scale / math.sqrt(2) * math.sqrt(len(basis))
    return Aligned(
        basis=basis,
        variances=np.maximum(variances, LEAST * edge),
        level=LEAST * edge,
        sd=np.full((k, variances.size - k + 1), sd),
        blur=edge / 2,
        unsure=scale,
    )


def _estimate(plan: Plan, start: Centred, clip: Clip, noised: Noised, found: Aligned) -> Estimate:
    k, known = plan.study.components, plan.study.radius is None
    components = fix_signs(found.basis[:, :k])
    return Estimate(
        components=components.T,
        explained_variance=clip.restored(found.variances)[:k],
        mean=start.mean,
        records=start.records,
        total_variance=noised.trace,
        noise_scale=noised.scale,
        sin_error=found.sine(start) if known else None,
        covariance=(found.basis * found.variances) @ found.basis.T,
        warnings=clip_warning(clip.kept) + centre_warning(centre_sine(start, found.gaps()[:, :-1])),
    )
