"""The public side: algorithms as generators of priced queries, and what one of your own needs.

A study names an algorithm of the closed set `ALGORITHMS`. For simulations a generator function of your own
does (docs/own-algorithm.md): it imports from here what it yields, receives and returns. Imports neither
records, nor noise, nor what lies behind the barrier.
"""

from __future__ import annotations

from collections.abc import Callable

from eigenveil.algorithms.covariance.adaptive_cov import adaptive_cov
from eigenveil.algorithms.covariance.analyze_gauss import analyze_gauss
from eigenveil.algorithms.covariance.em_cov import em_cov
from eigenveil.algorithms.covariance.gauss_cov import gauss_cov
from eigenveil.algorithms.covariance.refined_cov import refined_cov
from eigenveil.algorithms.covariance.separate_cov import separate_cov
from eigenveil.algorithms.covariance.zero import zero
from eigenveil.algorithms.gradient.auto import Way, auto, imagined
from eigenveil.algorithms.gradient.dp_pca import dp_pca
from eigenveil.algorithms.gradient.dp_pca_single_pass import single_pass
from eigenveil.algorithms.gradient.noisy_power import noisy_power
from eigenveil.algorithms.gradient.private_oja import private_oja
from eigenveil.algorithms.gradient.private_oja_shuffled import private_oja_shuffled
from eigenveil.algorithms.gradient.refined_pca import refined_pca
from eigenveil.algorithms.shared.gradient_query import Slope
from eigenveil.algorithms.shared.own import checked, own
from eigenveil.algorithms.shared.passes import Pass, Rounds
from eigenveil.algorithms.shared.preparation import (
    Centred,
    law,
    locate,
    price,
    priced,
    public_radius,
    row_norms,
    row_radius,
)
from eigenveil.algorithms.shared.standardised import standardised
from eigenveil.algorithms.subspace.approx import subspace_approx, subspace_approx_rank
from eigenveil.algorithms.subspace.exact import subspace_exact, subspace_exact_rank
from eigenveil.algorithms.subspace.reference import subspace_reference
from eigenveil.algorithms.subspace.smooth_sensitivity import smooth
from eigenveil.numerics.linalg import eigenpairs, fix_signs, orthonormal, start_directions, symmetric
from eigenveil.protocol.estimate import Estimate, Steps, no_release
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseLaw, PricedQuery
from eigenveil.protocol.release import Release
from eigenveil.queries import (
    VECTOR,
    ClippedSum,
    ColumnHistograms,
    ColumnMoments,
    CoordinateClippedSum,
    Coordinates,
    Count,
    CrossCovariance,
    CrossNorms,
    CrossSpec,
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
    Votes,
)
from eigenveil.queries.limits import WEIGHT
from eigenveil.study.algorithm import Algorithm, AlgorithmProperties, OwnAlgorithm
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
    Algorithm.SMOOTH_GAUSSIAN: smooth,
    Algorithm.SMOOTH_CAUCHY: smooth,
    Algorithm.PROPOSE_TEST_RELEASE: smooth,
    Algorithm.SUBSPACE_EXACT: subspace_exact,
    Algorithm.SUBSPACE_EXACT_RANK: subspace_exact_rank,
    Algorithm.SUBSPACE_REFERENCE: subspace_reference,
    Algorithm.SUBSPACE_APPROX: subspace_approx,
    Algorithm.SUBSPACE_APPROX_RANK: subspace_approx_rank,
    Algorithm.AUTO: auto,
}
"""The closed set: what makes the steps of each, from a plan."""


def steps_of(plan: Plan, way: Way | None = None) -> Steps:
    """The algorithm of a plan, about to ask its first query; `way` imagines what releases decide."""
    if plan.study.scaling is Scaling.STANDARD:
        return standardised(plan, lambda rest: steps_of(rest, way))
    if way is not None:
        return imagined(plan, way)
    if isinstance(plan.algorithm, OwnAlgorithm):
        return checked(plan.algorithm, plan)
    return ALGORITHMS[plan.algorithm](plan)


# What an algorithm is, and what it is told, yields and returns.
__all__ = ["ALGORITHMS", "AlgorithmProperties", "Estimate", "OwnAlgorithm", "Plan", "PricedQuery", "Release"]
__all__ += ["NoiseLaw", "Steps", "no_release", "own", "steps_of"]
# What it may ask.
__all__ += ["ClippedSum", "ColumnHistograms", "ColumnMoments", "CoordinateClippedSum", "Coordinates", "Count"]
__all__ += ["CrossCovariance", "CrossNorms", "CrossSpec", "Eigenvectors", "Gradient", "GradientNorms"]
__all__ += ["GradientSpec", "Gram", "RadiusSearch", "RowNorms", "Spectrum", "SquaredNormSum", "Subspace"]
__all__ += ["Votes"]
# The steps that many have in common.
__all__ += ["Centred", "Pass", "Rounds", "Slope", "law", "locate", "price", "priced", "public_radius"]
__all__ += ["row_norms", "row_radius"]
# The grid, and linear algebra.
__all__ += ["VECTOR", "WEIGHT", "S", "midpoint"]
__all__ += ["eigenpairs", "fix_signs", "orthonormal", "start_directions", "symmetric"]
