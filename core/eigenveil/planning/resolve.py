"""TODO."""

from __future__ import annotations

from eigenveil.protocol.plan import Plan
from eigenveil.study.price import affordable
from eigenveil.study.study import Study


def make_plan(study: Study, *, federation: str, submission: str, analyst: str = "") -> Plan:
    """Resolve a study into a plan (chooses the algorithm if the study says `auto`).

    Raises:
        RequestError: see `Plan`.
    """
    from eigenveil.planning.choose import choose  # the planner compares plans, so it is imported after them

    algorithm = choose(study)
    cost = affordable(study, algorithm)
    return Plan(
        study=study,
        federation=federation,
        submission=submission,
        analyst=analyst,
        algorithm=algorithm,
        micro_rho=cost.micro_rho,
        atto_delta=cost.atto_delta,
    )
