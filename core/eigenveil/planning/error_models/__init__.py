"""Each algorithm's law: what error a plan of it is predicted to have on an assumed spectrum."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from eigenveil.algorithms.shared.standardised import remainder
from eigenveil.planning.error_models import (
    covariance,
    power_iteration,
    references,
    refinement,
    smooth_sensitivity,
)
from eigenveil.planning.error_models.eigengaps import Assumed
from eigenveil.planning.error_models.rotation import NOISE, PredictedError, beside
from eigenveil.planning.error_models.scales import of_scales
from eigenveil.planning.error_models.spectrum import AssumedSpectrum, within
from eigenveil.protocol.plan import Plan, plan_for
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.radius import longest
from eigenveil.study.study import Scaling, Study

LAWS: dict[Algorithm, Callable[[Plan, AssumedSpectrum], PredictedError | None]] = {
    Algorithm.REFINED_COV: refinement.refined_cov,
    Algorithm.REFINED_PCA: refinement.refined_pca,
    Algorithm.GAUSS_COV: covariance.of_matrix,
    Algorithm.ANALYZE_GAUSS: partial(covariance.of_matrix, flat=True),
    Algorithm.SEPARATE_COV: partial(covariance.of_matrix, share=0.5),  # directions at half the budget
    Algorithm.NOISY_POWER: power_iteration.noisy_power,
    Algorithm.DP_PCA: power_iteration.dp_pca,
    Algorithm.ADAPTIVE_COV: references.adaptive_cov,
    Algorithm.EM_COV: references.em_cov,
    Algorithm.ZERO: lambda plan, guess: NOISE,  # public directions
    Algorithm.DP_PCA_SINGLE_PASS: references.dp_pca_single_pass,
    Algorithm.PRIVATE_OJA: references.private_oja,
    Algorithm.SUBSPACE_EXACT: partial(references.subspace, most=references.NONE),
    Algorithm.SUBSPACE_EXACT_RANK: partial(references.subspace, most=references.NONE),
    Algorithm.SUBSPACE_REFERENCE: partial(references.subspace, most=references.NONE),
    Algorithm.SUBSPACE_APPROX: partial(references.subspace, most=references.NEAR),
    Algorithm.SUBSPACE_APPROX_RANK: partial(references.subspace, most=references.NEAR),
    Algorithm.SMOOTH_GAUSSIAN: smooth_sensitivity.smooth,
    Algorithm.SMOOTH_CAUCHY: smooth_sensitivity.smooth,
    Algorithm.PROPOSE_TEST_RELEASE: smooth_sensitivity.smooth,
}


def predicted(study: Study, guess: AssumedSpectrum) -> PredictedError | None:
    """The error of a study that names its algorithm; None if no law is known for it.

    Raises:
        RequestError: the study cannot be planned.
    """
    return law(plan_for(study, study.algorithm, federation="planner", submission="planner"), guess)


def law(plan: Plan, guess: AssumedSpectrum) -> PredictedError | None:
    """The error of a plan; None if no law is known for its algorithm. Where columns are standardised the
    spectrum is theirs, and their scales, which have errors of their own, come first."""
    if plan.algorithm not in LAWS:
        return None
    if plan.study.scaling is not Scaling.STANDARD:
        return LAWS[plan.algorithm](plan, within(guess, longest(plan.study.radius)))
    found = law(remainder(plan), guess)
    return None if found is None else beside(found, of_scales(plan, guess))


def clear(study: Study, guess: AssumedSpectrum) -> bool:
    """Whether the assumed spectrum has a gap after the study's components that chance cannot hide.

    Without it errors depend on luck, and predictions of them are rough.
    """
    return Assumed(guess=guess, k=study.components, records=float(study.expected_records)).clear
