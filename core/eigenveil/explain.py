"""A plan in words and numbers, for those who must consent to it."""

from __future__ import annotations

from typing import Any

from eigenveil.accounting import MICRO, epsilon_at
from eigenveil.plan import Plan
from eigenveil.planner import doubts
from eigenveil.query import NAMES, Query
from eigenveil.rehearsal import rehearse
from eigenveil.study import Neighbours
from eigenveil.study_toml import study_to_dict

# A record replaced is a record removed and one added: mu doubles, so rho quadruples.
REPLACED = 4

MEANINGS = {
    "count": "the number of usable records",
    "row-norms": "how many records lie how far from the public centre (a histogram)",
    "clipped-sum": "the sum of the records, each shortened to a public radius",
    "energy": "the sum of squared distances from the public centre, each cut off at a public radius",
    "gram": "the sum of products of column pairs over the records, each shortened to a public radius",
    "gradient-norms": "how many records pull how hard on the current directions (a histogram)",
    "gradient": "the sum of the records' pulls on the current directions, each shortened to a public radius",
}


def explain(plan: Plan) -> dict[str, Any]:
    """What the plan asks, reveals and costs: plain values, ready for JSON or a table."""
    queries = rehearse(plan)
    study = plan.study
    return {
        "plan_digest": plan.digest,
        "name": study.name,
        "purpose": study.purpose,
        "algorithm": plan.algorithm.value,
        "components": study.components,
        "guarantee": guarantee(plan, plan.micro_rho),
        "study": study_to_dict(study),
        "rounds": [_round(query) for query in queries],
        "bytes_per_site": sum(8 * query.ask.length for query in queries),
        "micro_rho": plan.micro_rho,
        "warnings": [*study.warnings(), *doubts(study)],
    }


def _round(query: Query) -> dict[str, Any]:
    kind = NAMES[type(query.ask)]
    return {
        "round": query.round,
        "kind": kind,
        "meaning": MEANINGS[kind],
        "numbers": query.ask.length,
        "bytes": 8 * query.ask.length,
        "micro_rho": query.micro_rho,
    }


def guarantee(plan: Plan, spent_micro_rho: int) -> dict[str, Any]:
    """The statement that a release makes, for the stated neighbours and for the other ones."""
    study = plan.study
    rho = spent_micro_rho / MICRO
    adds = study.neighbours is Neighbours.ADD_REMOVE
    other_rho = REPLACED * rho if adds else rho
    other = Neighbours.REPLACE_ONE if adds else Neighbours.ADD_REMOVE
    return {
        "unit": "person",
        "neighbours": study.neighbours.value,
        "max_sites_per_person": study.max_sites_per_person,
        "rho": rho,
        "micro_rho": spent_micro_rho,
        "epsilon": epsilon_at(rho, study.delta),
        "delta": study.delta,
        "other_neighbours": other.value,
        "other_epsilon": epsilon_at(other_rho, study.delta),
        "words": _words(plan, rho),
    }


def _words(plan: Plan, rho: float) -> str:
    study = plan.study
    change = (
        "adding or removing one person's record anywhere in the federation"
        if study.neighbours is Neighbours.ADD_REMOVE
        else "replacing one person's record by any other, the number of records being public"
    )
    sites = study.max_sites_per_person
    where = "" if sites == 1 else f" (who may be at up to {sites} sites)"
    epsilon, delta = f"{epsilon_at(rho, study.delta):.4g}", f"{study.delta:.3g}"
    return (
        f"{rho:.6f}-zCDP, hence ({epsilon}, {delta})-differential privacy: {change}{where} changes the "
        f"probability of any set of released results by a factor of at most e^{epsilon}, "
        f"except with probability {delta}."
    )
