"""The check on the analyst's machine that a plan is the analyst's study, before it is signed [R31]."""

from __future__ import annotations

from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.planning.choose import candidates
from eigenveil.protocol.plan import Plan, plan_for
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Choose, Study


def check_follows(plan: Plan, study: Study, *, federation: str, analyst: str, submission: str) -> None:
    """Insist that `plan` is of `study` as its author wrote it, under these names, and spends what it states.

    Where the study says `auto`, the coordinator's choice stands if it is one that `auto` has.

    Raises:
        PeerError: code `protocol`, the coordinator planned something else.
    """
    names = (plan.federation, plan.analyst, plan.submission) == (federation, analyst, submission)
    if not (names and plan.study == study and plan.algorithm in _allowed(study) and _whole(plan)):
        raise PeerError(
            Code.PROTOCOL,
            "the coordinator planned another study than the one that was asked; it was not signed: tell the "
            "federation's operator",
        )


def _allowed(study: Study) -> tuple[Algorithm, ...]:
    """The algorithms that may run a study."""
    if study.algorithm is not Algorithm.AUTO:
        return (study.algorithm,)
    during = study.choose is Choose.DURING and study.delta > 0
    return (Algorithm.AUTO,) if during else candidates(study)


def _whole(plan: Plan) -> bool:
    """Whether a plan spends all that its study allows, as every plan does."""
    names = {"federation": plan.federation, "submission": plan.submission, "analyst": plan.analyst}
    try:
        return plan == plan_for(plan.study, plan.algorithm, **names)
    except RequestError:
        return False
