"""The public side: algorithms as generators of priced questions (see `estimate.Steps`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from eigenveil.algorithms.covariance.adaptive_cov import adaptive_cov
from eigenveil.algorithms.covariance.analyze_gauss import analyze_gauss
from eigenveil.algorithms.covariance.em_cov import em_cov
from eigenveil.algorithms.covariance.gauss_cov import gauss_cov
from eigenveil.algorithms.covariance.separate_cov import separate_cov
from eigenveil.algorithms.covariance.zero import zero
from eigenveil.algorithms.gradient.dp_pca import dp_pca
from eigenveil.algorithms.gradient.dp_pca_single_pass import single_pass
from eigenveil.algorithms.gradient.noisy_power import noisy_power
from eigenveil.algorithms.gradient.private_oja import private_oja
from eigenveil.algorithms.gradient.private_oja_shuffled import private_oja_shuffled
from eigenveil.algorithms.subspace.approx import subspace_approx, subspace_approx_rank
from eigenveil.algorithms.subspace.exact import subspace_exact, subspace_exact_rank
from eigenveil.algorithms.subspace.reference import subspace_reference
from eigenveil.algorithms.subspace.smooth_sensitivity import smooth
from eigenveil.protocol.estimate import Estimate, Steps
from eigenveil.study.algorithm import Algorithm

if TYPE_CHECKING:
    from eigenveil.protocol.plan import Plan

ALGORITHMS: dict[Algorithm, Callable[[Plan], Steps]] = {
    Algorithm.GAUSS_COV: gauss_cov,
    Algorithm.ANALYZE_GAUSS: analyze_gauss,
    Algorithm.SEPARATE_COV: separate_cov,
    Algorithm.ADAPTIVE_COV: adaptive_cov,
    Algorithm.EM_COV: em_cov,
    Algorithm.ZERO: zero,
    Algorithm.NOISY_POWER: noisy_power,
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
}

__all__ = ["ALGORITHMS", "Estimate", "Steps"]
