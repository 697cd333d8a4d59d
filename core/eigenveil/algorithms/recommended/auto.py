"""auto, where the first releases choose the first stage: a noised matrix or gradients; then refinement."""

from __future__ import annotations

from dataclasses import replace

from eigenveil.algorithms.recommended.gauss_cov import gauss_cov
from eigenveil.algorithms.recommended.refined import PREPARED, by_gradients, refined_pca
from eigenveil.algorithms.recommended.refined_cov import (
    FirstStage,
    chooses_stage,
    matrix_or_gradients,
    refined_cov,
)
from eigenveil.algorithms.shared.preparation import locate
from eigenveil.algorithms.shared.refinement import refinement_steps
from eigenveil.protocol.estimate import Steps
from eigenveil.protocol.plan import Plan
from eigenveil.study.algorithm import Algorithm

# A covariance matrix of more columns is d^2 / 2 > 8 million numbers a site, and takes minutes to decompose.
# The second limit is that of revision 1.
WIDE, WIDE_BEFORE = 4000, 1000


def most_columns(plan: Plan) -> int:
    """Return the most columns of which `auto` makes a matrix."""
    return WIDE if plan.revision >= 2 else WIDE_BEFORE


def first_stages(plan: Plan) -> tuple[FirstStage, ...]:
    """Return the possible first stages; empty if the releases decide nothing. For `auto` and a wide
    refined-cov both; another refinement has one, but its number of steps depends on releases."""
    d = plan.study.dimension
    if d == plan.study.components:
        return ()
    refining: dict[object, tuple[FirstStage, ...]] = {
        Algorithm.AUTO: (FirstStage.GRADIENTS,) if d > most_columns(plan) else tuple(FirstStage),
        Algorithm.REFINED_COV: tuple(FirstStage) if chooses_stage(plan) else (FirstStage.MATRIX,),
        Algorithm.REFINED_PCA: (FirstStage.GRADIENTS,),
    }
    return refining.get(plan.algorithm, ())


def rehearsal_steps(plan: Plan, first_stage: FirstStage) -> Steps:
    """Return the steps of a plan for a given first stage and the most refinement steps."""
    if plan.algorithm is Algorithm.AUTO:
        return auto(plan, first_stage)
    if plan.algorithm is Algorithm.REFINED_COV:
        return refined_cov(plan, first_stage)
    return refined_pca(plan, refinement_steps(1.0))


def auto(plan: Plan, first_stage: FirstStage | None = None) -> Steps:
    """Run auto: count, mean, a first part of a matrix, then the first stage that suits its spectrum.

    `first_stage` fixes the choice for a dry run, with the most queries.
    Privacy: [P7], [P28]; the next queries depend on releases alone, and each query is charged and answered
    behind the barrier, from the rest of the budget.
    Cost: the whole budget."""
    d, k = plan.study.dimension, plan.study.components
    if k == d:  # no direction is left outside
        return (yield from gauss_cov(plan))
    start = yield from locate(plan, PREPARED)
    if d <= most_columns(plan):
        return (yield from matrix_or_gradients(start, first_stage))
    steps = None if first_stage is None else refinement_steps(1.0)
    found = yield from by_gradients(start, start.left, steps)
    return replace(found, decision=f"gradients, then their refinement: {d} columns are too many for a matrix")
