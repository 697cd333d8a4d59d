"""A person's word about a study, and what that person is shown before.

Every decision is one transaction in the site's database, so it holds from the daemon's next answer on,
whether or not the daemon runs meanwhile and whatever the coordinator does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eigenveil.accounting.zcdp import MICRO, NOTHING, Cost, epsilon_at
from eigenveil.errors import Code
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.reporting.explain import explain
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.state.received_plans import Decision, ReceivedPlan
from eigenveil_client.site.state.store import SiteStore


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedStudy:
    """What a study was and has become, and what that freed of the budget."""

    study: str
    was: Decision
    standing: Decision
    freed: Cost = NOTHING


def approve(config: SiteConfig, store: SiteStore, seen: ReceivedPlan) -> DecidedStudy:
    """Agree to exactly this plan, and set its whole price aside.

    Raises:
        RequestError: the rules forbid it now, the budget cannot pay for it, or it was decided before.
    """
    plan = plan_from_json(seen.plan_json)
    config.policy.require(plan, store.now())
    store.accept(plan, seen, config.policy.yearly, person=True)
    return DecidedStudy(study=seen.plan, was=seen.standing, standing=Decision.ACCEPTED)


def decline(store: SiteStore, seen: ReceivedPlan) -> DecidedStudy:
    """Refuse a plan that waits, for good.

    Raises:
        RequestError: code `conflict`: it does not wait.
    """
    store.decline(seen, Code.POLICY, person=True)
    return DecidedStudy(study=seen.plan, was=seen.standing, standing=Decision.DECLINED)


def withdraw(store: SiteStore, seen: ReceivedPlan) -> DecidedStudy:
    """Answer a study no more, for good. What it has spent stays spent.

    Raises:
        RequestError: code `conflict`: it is over already.
    """
    freed = store.withdraw(seen.plan)
    return DecidedStudy(study=seen.plan, was=seen.standing, standing=Decision.WITHDRAWN, freed=freed)


def explained(config: SiteConfig, store: SiteStore, plan: Plan) -> dict[str, Any]:
    """All that a person should know before agreeing: plain values."""
    verdicts, ends = config.policy.verdicts(plan, store.now()), config.policy.approval_ends
    return explain(plan) | {
        "policy": [{"rule": v.rule, "passed": v.passed, "text": v.text} for v in verdicts],
        "approval_ends": ends and str(ends),
        "budget": budget(config, store),
    }


def budget(config: SiteConfig, store: SiteStore) -> dict[str, Any]:
    """What is left for studies to come, for ever and of this year."""
    state, yearly = store.ledger.ledger, config.policy.yearly
    left = state.budget.micro_rho - state.committed().micro_rho
    this_year = None if yearly is None else max(0, yearly.micro_rho - store.this_year(yearly))
    return {
        "delta": config.policy.budget_delta,
        "left": amount(left, config),
        "left_this_year": None if this_year is None else amount(this_year, config),
    }


def amount(micro_rho: int, config: SiteConfig) -> dict[str, Any]:
    """A price in both currencies."""
    return {
        "micro_rho": micro_rho,
        "epsilon": round(epsilon_at(micro_rho / MICRO, config.policy.budget_delta), 4),
    }
