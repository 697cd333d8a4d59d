"""refined-cov: a noised covariance matrix, then its leading directions turned by their cross covariance with
all others.

Source: gauss-cov for the first stage; the second is our own (docs/algorithms/refined-cov.md), measured on
synthetic and clinical tables.
"""

from __future__ import annotations

import math

import numpy as np

from eigenveil.algorithms.covariance.gauss_cov import deflated, gauss_cov
from eigenveil.algorithms.covariance.noised_gram import (
    Clip,
    Noised,
    balanced,
    clip_to,
    clip_warning,
    covariance,
    noise_of,
    noise_ratio,
    public_clip,
)
from eigenveil.algorithms.shared.preparation import (
    UNCLIPPED,
    Centred,
    Shares,
    is_public,
    locate,
    signal,
)
from eigenveil.algorithms.shared.refinement import Aligned, refined, steps_for
from eigenveil.algorithms.shared.stated_error import centre_sine, centre_warning
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, fix_signs
from eigenveil.protocol.estimate import Estimate, Steps
from eigenveil.protocol.plan import Plan
from eigenveil.study.radius import quantile

# The matrix's share of what is left after the mean, from a signal (`preparation.signal`) on.
SHARES = ((1000.0, 0.2), (100.0, 0.35), (0.0, 0.5))
# The last norms are those that the matrix is clipped by, too; and a first step of the mean that is nearer
# leaves fewer records far from it.
PREPARED = Shares(steps=((0.05, 0.30), (0.10, 0.55)), last=0.03)
LEAST = 0.3  # a variance is at least this share of the edge of the noise


def refined_cov(plan: Plan, steps: int | None = None) -> Steps:
    """Count, mean, one Gram matrix, one histogram, one or two cross covariances: eight where it was weak.

    `steps` are imagined, for a rehearsal of the most that may be asked.

    Neighbours: as the study says.
    Privacy: [P7], [P28]; the questions are priced and answered behind the barrier.
    Cost: the whole budget, d (d + 1) / 2 + 2 d k integers from every site, 8 or 9 rounds; 15 where
    the matrix was weak.
    """
    if plan.study.components == plan.study.dimension:  # nothing is left to turn towards
        return (yield from gauss_cov(plan))
    start = yield from locate(plan, PREPARED)
    share = matrix_share(plan, start)
    clip = matrix_clip(plan, start, share)
    noised = yield from covariance(plan, start, clip, clip.left * share)
    first = aligned(plan, noised)
    steps = steps or steps_for(first.sine(start))
    found = yield from refined(plan, start, first, clip.left * (1 - share), steps)
    return of_aligned(plan, start, clip, noised, found)


def matrix_share(plan: Plan, start: Centred) -> float:
    """Of what is left after the mean, for the matrix."""
    strength = signal(plan, start.records)
    return next(share for least, share in SHARES if strength >= least)


def matrix_clip(plan: Plan, start: Centred, share: float) -> Clip:
    """The radius for a matrix at a share of what is left, from the last norms of the mean."""
    left = 1 - PREPARED.count - start.mean_share
    if is_public(plan):
        return public_clip(plan, start, left)
    radius = balanced(plan, start.norms, left * share, noise_ratio(plan))
    return clip_to(radius, start.norms, start.records, left)


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


def of_aligned(plan: Plan, start: Centred, clip: Clip, noised: Noised, found: Aligned) -> Estimate:
    """What a noised matrix and the turned directions say."""
    k, stated = plan.study.components, quantile(plan.study.radius) in (None, UNCLIPPED)
    components = fix_signs(found.basis[:, :k])
    return Estimate(
        components=components.T,
        explained_variance=clip.restored(found.variances)[:k],
        mean=start.mean,
        records=start.records,
        total_variance=noised.trace,
        noise_scale=noised.scale,
        sin_error=found.sine(start) if stated else None,
        covariance=noised.matrix,  # as it was released: its noise is known, which is not so once it is turned
        noise=noise_of(plan, start, clip, noised),
        warnings=clip_warning(clip.kept) + centre_warning(centre_sine(start, found.gaps()[:, :-1])),
    )
