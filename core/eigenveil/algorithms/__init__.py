"""Algorithms as generators of priced queries, and the interface of a custom algorithm.

A study names an algorithm of the closed set `ALGORITHMS`. A simulation can also run a custom generator
function (docs/own-algorithm.md), with the names exported here. Imports no records, no noise and nothing
behind the barrier. Neighbours are the study's, unless a docstring says otherwise; each has a page in
docs/algorithms."""

from __future__ import annotations

from collections.abc import Callable

from eigenveil.algorithms.papers.covariance import adaptive_cov, analyze_gauss, em_cov, separate_cov, zero
from eigenveil.algorithms.papers.oja import BatchPass, RoundCounter, noisy_power
from eigenveil.algorithms.papers.private_oja import private_oja, private_oja_shuffled
from eigenveil.algorithms.papers.single_pass import single_pass
from eigenveil.algorithms.papers.smooth_sensitivity import smooth_subspace
from eigenveil.algorithms.papers.subspaces import (
    subspace_approx,
    subspace_approx_rank,
    subspace_exact,
    subspace_exact_rank,
    subspace_reference,
)
from eigenveil.algorithms.recommended.auto import auto, rehearsal_steps
from eigenveil.algorithms.recommended.dp_pca import dp_pca
from eigenveil.algorithms.recommended.gauss_cov import gauss_cov
from eigenveil.algorithms.recommended.refined import refined_pca
from eigenveil.algorithms.recommended.refined_cov import FirstStage, refined_cov
from eigenveil.algorithms.shared.custom_algorithm import as_custom_algorithm, checked_steps
from eigenveil.algorithms.shared.preparation import (
    LocationEstimate,
    cost_of_share,
    locate,
    noise_distribution,
    public_radius,
    query_at_share,
    row_norms,
    row_radius,
)
from eigenveil.algorithms.shared.query_builders import GradientQueryBuilder
from eigenveil.algorithms.shared.standardised import standardised
from eigenveil.numerics.linalg import eigenpairs, fix_signs, orthonormal, start_directions, symmetric
from eigenveil.protocol.estimate import Estimate, Steps, no_release
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseDistribution, PricedQuery
from eigenveil.protocol.rounds import Release
from eigenveil.queries import (
    VECTOR,
    ClippedSum,
    ColumnHistograms,
    ColumnMoments,
    CoordinateClippedSum,
    CoordinateHistograms,
    Count,
    CrossCovariance,
    CrossNorms,
    CrossSpec,
    EigenvalueVotes,
    Eigenvectors,
    Gradient,
    GradientNorms,
    GradientSpec,
    Gram,
    RadiusSearch,
    RowNorms,
    Spectrum,
    SquaredNormSum,
    Subspace,
)
from eigenveil.queries.limits import WEIGHT
from eigenveil.study.algorithm import Algorithm, AlgorithmProperties, CustomAlgorithm
from eigenveil.study.grid import S, midpoint
from eigenveil.study.study import Scaling

ALGORITHMS: dict[Algorithm, Callable[[Plan], Steps]] = {
    Algorithm.GAUSS_COV: gauss_cov,
    Algorithm.ANALYZE_GAUSS: analyze_gauss,
    Algorithm.SEPARATE_COV: separate_cov,
    Algorithm.ADAPTIVE_COV: adaptive_cov,
    Algorithm.EM_COV: em_cov,
    Algorithm.ZERO: zero,
    Algorithm.NOISY_POWER: noisy_power,
    Algorithm.REFINED_COV: refined_cov,
    Algorithm.REFINED_PCA: refined_pca,
    Algorithm.DP_PCA: dp_pca,
    Algorithm.DP_PCA_SINGLE_PASS: single_pass,
    Algorithm.PRIVATE_OJA: private_oja,
    Algorithm.PRIVATE_OJA_SHUFFLED: private_oja_shuffled,
    Algorithm.SMOOTH_GAUSSIAN: smooth_subspace,
    Algorithm.SMOOTH_CAUCHY: smooth_subspace,
    Algorithm.PROPOSE_TEST_RELEASE: smooth_subspace,
    Algorithm.SUBSPACE_EXACT: subspace_exact,
    Algorithm.SUBSPACE_EXACT_RANK: subspace_exact_rank,
    Algorithm.SUBSPACE_REFERENCE: subspace_reference,
    Algorithm.SUBSPACE_APPROX: subspace_approx,
    Algorithm.SUBSPACE_APPROX_RANK: subspace_approx_rank,
    Algorithm.AUTO: auto,
}
"""The closed set of algorithms: the function that makes the steps of each from a plan."""


def steps_of(plan: Plan, first_stage: FirstStage | None = None) -> Steps:
    """Return the steps of a plan's algorithm; `first_stage` fixes the choice of the first releases."""
    if plan.study.scaling is Scaling.STANDARD:
        return standardised(plan, lambda rest: steps_of(rest, first_stage))
    if first_stage is not None:
        return rehearsal_steps(plan, first_stage)
    if isinstance(plan.algorithm, CustomAlgorithm):
        return checked_steps(plan.algorithm, plan)
    return ALGORITHMS[plan.algorithm](plan)


__all__ = [  # noqa: RUF022 - the interface of an algorithm, its queries, common steps, the grid and algebra
    "ALGORITHMS", "AlgorithmProperties", "CustomAlgorithm", "Estimate", "NoiseDistribution", "Plan",
    "PricedQuery", "Release", "Steps", "as_custom_algorithm", "no_release", "steps_of",
    "ClippedSum", "ColumnHistograms", "ColumnMoments", "CoordinateClippedSum", "CoordinateHistograms",
    "Count", "CrossCovariance", "CrossNorms", "CrossSpec", "EigenvalueVotes", "Eigenvectors", "Gradient",
    "GradientNorms", "GradientSpec", "Gram", "RadiusSearch", "RowNorms", "Spectrum", "SquaredNormSum",
    "Subspace",
    "BatchPass", "GradientQueryBuilder", "LocationEstimate", "RoundCounter", "cost_of_share", "locate",
    "noise_distribution", "public_radius", "query_at_share", "row_norms", "row_radius",
    "VECTOR", "WEIGHT", "S", "midpoint", "eigenpairs", "fix_signs", "orthonormal", "start_directions",
    "symmetric",
]  # fmt: skip
