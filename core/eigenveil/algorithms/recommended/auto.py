"""auto, where the first releases choose the first stage: a noised matrix or gradients; then refinement.

Gradients are better if the total variance is many times the wanted variances, which a first part of the
matrix shows. Two parts together are as exact as one matrix."""

from __future__ import annotations

import math
from dataclasses import replace
from enum import Enum

import numpy as np

from eigenveil.algorithms.recommended.gauss_cov import (
    GaussCovariance,
    combine_matrices,
    covariance,
    gauss_cov,
)
from eigenveil.algorithms.recommended.refined import (
    PREPARED,
    by_gradients,
    matrix_clip,
    matrix_share,
    refined_cov,
    refined_matrix,
    refined_pca,
)
from eigenveil.algorithms.shared.preparation import locate
from eigenveil.algorithms.shared.refinement import refinement_steps
from eigenveil.numerics.linalg import eigenpairs
from eigenveil.protocol.estimate import Steps
from eigenveil.protocol.plan import Plan
from eigenveil.study.algorithm import Algorithm

WIDE = 1000  # a covariance matrix of more columns is d^2 / 2 > 500,000 numbers a site
PROBE = 1 / 3  # of the matrix's share, for its first part
SEEN = 2.3  # height above the other variances, in sd sqrt(d) of that part; noise alone reaches 2 (Wigner)
FLAT = 30.0  # total variance, in k sd sqrt(d), from which gradients find hidden components (measured)


class FirstStage(Enum):
    """First stage, chosen by the first releases."""

    MATRIX = "matrix"
    GRADIENTS = "gradients"


def first_stages(plan: Plan) -> tuple[FirstStage, ...]:
    """Return the possible first stages; empty if the releases decide nothing. For `auto` both; a refinement
    has one, but its number of steps depends on releases."""
    d = plan.study.dimension
    if d == plan.study.components:
        return ()
    refining: dict[object, tuple[FirstStage, ...]] = {
        Algorithm.AUTO: (FirstStage.GRADIENTS,) if d > WIDE else tuple(FirstStage),
        Algorithm.REFINED_COV: (FirstStage.MATRIX,),
        Algorithm.REFINED_PCA: (FirstStage.GRADIENTS,),
    }
    return refining.get(plan.algorithm, ())


def rehearsal_steps(plan: Plan, first_stage: FirstStage) -> Steps:
    """Return the steps of a plan for a given first stage and the most refinement steps."""
    if plan.algorithm is Algorithm.AUTO:
        return auto(plan, first_stage)
    return (refined_cov if first_stage is FirstStage.MATRIX else refined_pca)(plan, refinement_steps(1.0))


def auto(plan: Plan, first_stage: FirstStage | None = None) -> Steps:
    """Run auto: count, mean, a third of a matrix, then the first stage that suits its spectrum.

    `first_stage` fixes the choice for a dry run, with the most queries.
    Privacy: [P7], [P28]; the next queries depend on releases alone, and each query is charged and answered
    behind the barrier, from the rest of the budget.
    Cost: the whole budget."""
    d, k = plan.study.dimension, plan.study.components
    if k == d:  # no direction is left outside
        return (yield from gauss_cov(plan))
    start = yield from locate(plan, PREPARED)
    steps = None if first_stage is None else refinement_steps(1.0)
    if d > WIDE:
        found = yield from by_gradients(start, start.left, steps)
        return replace(
            found, decision=f"gradients, then their refinement: {d} columns are too many for a matrix"
        )
    share = matrix_share(start)
    clip = matrix_clip(start, share)
    first = yield from covariance(clip, clip.left * share * PROBE)
    probed, reason = _probe(first)
    if (first_stage or probed) is FirstStage.GRADIENTS:
        found = yield from by_gradients(start, clip.left * (1 - share * PROBE), steps)
        return replace(found, decision=f"gradients, then their refinement: {reason}")
    rest = yield from covariance(clip, clip.left * share * (1 - PROBE))
    noised = combine_matrices(first, rest)
    found = yield from refined_matrix(noised, clip.left * (1 - share), steps)
    return replace(found, decision=f"the rest of the matrix, then its refinement: {reason}")


def _probe(first: GaussCovariance) -> tuple[FirstStage, str]:
    """Return the first stage that suits the first part of a matrix, and the reason. By the height of
    component k above the other variances, and the total variance a component, both in units of the noise's sd
    sqrt(d)."""
    start = first.clip.start
    d, k = start.plan.study.dimension, start.plan.study.components
    values, _ = eigenpairs(first.matrix)
    level = first.scale * math.sqrt(d / 2)
    height = float(values[k - 1] - np.median(values)) / level
    flatness = max(first.trace - start.squared_centre_error, 0.0) / (k * level)
    reason = (
        f"in the first third of the matrix the last component stands {height:.1f} noise levels above the "
        f"rest, the total variance {flatness:.0f} a component"
    )
    hidden = height < SEEN and flatness > FLAT
    return FirstStage.GRADIENTS if hidden else FirstStage.MATRIX, reason
