"""A study into the plan that runs, `auto` decided."""

from __future__ import annotations

from eigenveil.planning.choose import choose
from eigenveil.protocol.plan import Plan, plan_for
from eigenveil.study.study import Study


def make_plan(study: Study, *, federation: str, submission: str, analyst: str = "") -> Plan:
    """Resolve a study into a plan (chooses the algorithm if the study says `auto`).

    Raises:
        RequestError: see `Plan`.
    """
    return plan_for(study, choose(study), federation=federation, submission=submission, analyst=analyst)
