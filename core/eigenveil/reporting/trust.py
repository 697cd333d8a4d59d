"""Texts on the visibility of a study's values under central and masked trust."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eigenveil.accounting.formatting import percent_up
from eigenveil.numerics.encoding import canonical
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.study.study import MAX_ATTEMPTS, Study

COORDINATOR_SEES_TOTALS = (
    "the coordinator, and so its operator, sees each site's totals before it adds noise, and is trusted to "
    "add it"
)
CENTRAL = (
    f'{COORDINATOR_SEES_TOTALS}; trust = "secure-aggregation" would hide them, also from it together with '
    "one other site (more, if a study says so)"
)
TRUSTED = "a mechanism works on the exact sums: this algorithm needs a coordinator that is trusted with them"
# What a message with a site's answer reveals.
MASKED = "masked; alone it is noise to everybody"
EXACT = "exact totals, for the coordinator"


def trust_text(plan: Plan) -> str:
    """Return a text on who sees a site's totals under this plan, and under which assumptions."""
    if not plan.masked:
        if plan.algorithm.properties.trusted:
            return TRUSTED
        return CENTRAL if plan.gaussian else COORDINATOR_SEES_TOTALS
    study = plan.study
    return (
        "nobody sees a site's totals without noise that hides each person, even if the coordinator and "
        f"{colluding(study)} work together: each site adds its share of the noise and masks the result "
        f"before it leaves, and masks cancel only in the sum of a set of at least {study.federation.least} "
        f"sites. If more sites collude, there is less noise than is promised. {attempts_text(plan)}"
    )


def document_trust_text(document: Mapping[str, Any]) -> str:
    """Return the trust text that follows from the plan of a document, not the document's own text. Raises
    EigenveilError: as `plan_from_json`."""
    return trust_text(plan_from_json(canonical(document["plan"])))


def attempts_text(plan: Plan) -> str:
    """Return a sentence on repeated attempts at a round and their cost."""
    dropout = "If a site drops out of a round after its set is fixed, the attempt fails"
    if plan.most_attempts == 1:
        return f"{dropout}, is still charged, and ends the study"
    if plan.attempts > 1:  # of a plan before version 8
        return (
            f"{dropout} and is still charged; a round has up to {plan.attempts} attempts, and the study "
            "reserves the cost of all of them until it ends"
        )
    return f"{dropout} and is still charged; {pool_text(plan)}"


def pool_text(plan: Plan) -> str:
    """Return a clause on the pool of repeated attempts."""
    spares = plan.study.spare_attempts
    at_least = "one more attempt" if spares == 1 else f"{spares} more attempts"
    share = percent_up(plan.spare_micro_rho, plan.cost.micro_rho)
    return (
        "it is repeated, with other noise and masks, while a pool pays for that. The pool is "
        f"{share} % of the study's budget, enough for {at_least} at its dearest query, and at most "
        f"{MAX_ATTEMPTS} attempts are made at one round. The guarantee covers the whole pool, used or not"
    )


def colluding(study: Study) -> str:
    """Return the sites that may collude with the coordinator in a masked study."""
    return "any one other site" if study.colluders == 1 else f"any {study.colluders} other sites"


def visibility_table(study: Study) -> tuple[tuple[str, str, str], ...]:
    """Return what each party can see of a central and of a masked study, besides what is published."""
    above = "as above, and what these sites know"
    network = "who sends when, and how much"
    ready = "and an analyst which sites are ready and have answered"
    return (
        (
            "a site, of its own data",
            "its records, its exact totals",
            "its records, its exact totals, its share of the noise",
        ),
        (
            "the coordinator and its operator",
            "each site's exact totals, when they arrived, their size",
            "noise from each site; when it arrived, its size, which sites drop out",
        ),
        (
            f"the coordinator with up to {study.colluders} of the sites",
            above,
            "what these sites know; of the others a sum with all the noise that is promised",
        ),
        (
            f"the coordinator with {study.colluders + 1} of the sites or more",
            above,
            "a sum over the others with less noise than is promised: the more collude, the less",
        ),
        (
            "another site, an analyst",
            "what is published; an analyst also sees, while it runs, which sites have answered",
            f"what is published; while it runs, a site sees which sites are in each attempt, {ready}",
        ),
        ("an observer of the network", network, network),
    )
