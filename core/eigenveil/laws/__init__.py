"""Each algorithm's law: what error a plan of it is predicted to have on an assumed spectrum."""

from __future__ import annotations

from collections.abc import Callable

from eigenveil.laws import matrix, others, power, smooth
from eigenveil.laws.assumed import Assumed
from eigenveil.laws.guess import Guess
from eigenveil.laws.turns import Error
from eigenveil.plan import Plan, make_plan
from eigenveil.study import Algorithm, Study

LAWS: dict[Algorithm, Callable[[Plan, Guess], Error | None]] = {
    Algorithm.GAUSS_COV: matrix.gauss_cov,
    Algorithm.ANALYZE_GAUSS: matrix.analyze_gauss,
    Algorithm.SEPARATE_COV: matrix.separate_cov,
    Algorithm.NOISY_POWER: power.noisy_power,
    Algorithm.DP_PCA: power.dp_pca,
    Algorithm.ADAPTIVE_COV: others.adaptive_cov,
    Algorithm.EM_COV: others.em_cov,
    Algorithm.ZERO: others.zero,
    Algorithm.DP_PCA_SINGLE_PASS: others.dp_pca_single_pass,
    Algorithm.PRIVATE_OJA: others.private_oja,
    Algorithm.SUBSPACE_EXACT: others.subspace_exact,
    Algorithm.SUBSPACE_EXACT_RANK: others.subspace_exact,
    Algorithm.SUBSPACE_REFERENCE: others.subspace_exact,
    Algorithm.SUBSPACE_APPROX: others.subspace_approx,
    Algorithm.SUBSPACE_APPROX_RANK: others.subspace_approx,
    Algorithm.SMOOTH_GAUSSIAN: smooth.smooth,
    Algorithm.SMOOTH_CAUCHY: smooth.smooth,
    Algorithm.PROPOSE_TEST_RELEASE: smooth.smooth,
}


def predicted(study: Study, guess: Guess) -> Error | None:
    """The error of a study that names its algorithm; None if no law is known for it.

    Raises:
        RequestError: the study cannot be planned.
    """
    return law(make_plan(study, federation="planner", submission="planner"), guess)


def law(plan: Plan, guess: Guess) -> Error | None:
    """The error of a plan; None if no law is known for its algorithm."""
    return LAWS[plan.algorithm](plan, guess) if plan.algorithm in LAWS else None


def clear(study: Study, guess: Guess) -> bool:
    """Whether the assumed spectrum has a gap after the study's components that chance cannot hide.

    Without it errors depend on luck, and predictions of them are rough.
    """
    return Assumed(guess=guess, k=study.components, records=float(study.expected_records)).clear
