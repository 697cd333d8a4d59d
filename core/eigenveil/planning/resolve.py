"""A study into the plan that runs, `auto` decided."""

from __future__ import annotations

from eigenveil.planning.choose import choose
from eigenveil.protocol.plan import Plan, plan_for
from eigenveil.study.study import Study


def make_plan(
    study: Study, *, federation: str = "simulation", submission: str = "simulation", analyst: str = ""
) -> Plan:
    """The plan that runs a study: its algorithm (where the study says `auto`, the one by public
    numbers), all that it may spend, in micro-rho and atto-delta, and a digest that names all of it.

    A federation gives the plan its own name, the submission's and the analyst's.

    Raises:
        RequestError: code `bad-study`: the algorithm cannot run this study, or the budget is too small; code
            `plan-overflow`: exact sums over `max_records` could leave 64 bits.

    >>> from eigenveil import Column, Federation, Study, make_plan
    >>> columns = tuple(Column(name=name, unit="mm", lower=-10, upper=10) for name in "abc")
    >>> study = Study(name="pilot", columns=columns, epsilon=2.0, delta=1e-6, components=1,
    ...               federation=Federation(sites=("north", "south")))
    >>> plan = make_plan(study)
    >>> plan.algorithm.value, plan.micro_rho, len(plan.digest)
    ('refined-cov', 100502, 64)
    """
    return plan_for(study, choose(study), federation=federation, submission=submission, analyst=analyst)
