"""Error model of each algorithm: the predicted error of a plan on an assumed spectrum."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from eigenveil.algorithms.shared.standardised import remaining_plan
from eigenveil.planning.error_models import papers, recommended
from eigenveil.planning.error_models.assumed_records import AssumedSpectrum, limited_to_norm
from eigenveil.planning.error_models.perturbation import (
    NOISE,
    AssumedRecords,
    PredictedError,
    combine_independent,
)
from eigenveil.planning.error_models.recommended import scale_error
from eigenveil.protocol.plan import Plan
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.radius import stated_norm
from eigenveil.study.study import Scaling, Study

ERROR_MODELS: dict[Algorithm, Callable[[Plan, AssumedSpectrum], PredictedError | None]] = {
    Algorithm.REFINED_COV: recommended.refined_cov,
    Algorithm.REFINED_PCA: recommended.refined_pca,
    Algorithm.GAUSS_COV: recommended.gram_error,
    Algorithm.ANALYZE_GAUSS: partial(recommended.gram_error, flat=True),
    Algorithm.SEPARATE_COV: partial(recommended.gram_error, share=0.5),  # directions have half the budget
    Algorithm.NOISY_POWER: recommended.noisy_power,
    Algorithm.DP_PCA: recommended.dp_pca,
    Algorithm.ADAPTIVE_COV: papers.adaptive_cov,
    Algorithm.EM_COV: papers.em_cov,
    Algorithm.ZERO: lambda plan, spectrum: NOISE,  # public directions
    Algorithm.DP_PCA_SINGLE_PASS: papers.dp_pca_single_pass,
    Algorithm.PRIVATE_OJA: papers.private_oja,
    Algorithm.SUBSPACE_EXACT: partial(papers.subspace, most=papers.EXACT_RATIO),
    Algorithm.SUBSPACE_EXACT_RANK: partial(papers.subspace, most=papers.EXACT_RATIO),
    Algorithm.SUBSPACE_REFERENCE: partial(papers.subspace, most=papers.EXACT_RATIO),
    Algorithm.SUBSPACE_APPROX: partial(papers.subspace, most=papers.NEAR_RATIO),
    Algorithm.SUBSPACE_APPROX_RANK: partial(papers.subspace, most=papers.NEAR_RATIO),
    Algorithm.SMOOTH_GAUSSIAN: papers.smooth,
    Algorithm.SMOOTH_CAUCHY: papers.smooth,
    Algorithm.PROPOSE_TEST_RELEASE: papers.smooth,
}


def predict_plan_error(plan: Plan, spectrum: AssumedSpectrum) -> PredictedError | None:
    """Return the predicted error of a plan; None without an error model. For standardised columns the
    spectrum is theirs, and the error of their scales is included."""
    if plan.algorithm not in ERROR_MODELS:
        return None
    if plan.study.scaling is not Scaling.STANDARD:
        return ERROR_MODELS[plan.algorithm](plan, limited_to_norm(spectrum, stated_norm(plan.study.radius)))
    found = predict_plan_error(remaining_plan(plan), spectrum)
    return None if found is None else combine_independent(found, scale_error(plan, spectrum))


def clear(study: Study, spectrum: AssumedSpectrum) -> bool:
    """Return True if the assumed spectrum has a gap after the study's components that chance cannot hide.
    Without such a gap errors vary by chance, and predictions are rough."""
    return AssumedRecords(spectrum, study.components, float(study.expected_records)).clear
