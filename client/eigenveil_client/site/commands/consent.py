"""A person's word about a study, and what that person is shown before.

Every decision is one transaction in the site's database, so it holds from the daemon's next answer on,
whether or not the daemon runs meanwhile and whatever the coordinator does.
"""

from __future__ import annotations

from typing import Any

from eigenveil.accounting.zcdp import MICRO, epsilon_at
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.reporting.explain import explain
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.state.received_plans import ReceivedPlan
from eigenveil_client.site.state.store import SiteStore


def approve(config: SiteConfig, store: SiteStore, seen: ReceivedPlan) -> None:
    """Agree to exactly this plan, and set its whole price aside.

    Raises:
        RequestError: the rules forbid it now, the budget cannot pay for it, or it was decided before.
    """
    plan = plan_from_json(seen.plan_json)
    config.policy.require(plan, store.now())
    store.accept(plan, seen, config.policy.yearly, person=True)


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
