"""Texts on the visibility of a study's values under central and masked trust."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eigenveil.numerics.encoding import canonical
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.study.study import Study

COORDINATOR_SEES_TOTALS = (
    "the coordinator, and so its operator, sees each site's totals before it adds noise, and is trusted to "
    "add it"
)
CENTRAL = (
    f'{COORDINATOR_SEES_TOTALS}; trust = "secure-aggregation" would hide them, also from it together with '
    "one other site "
    "(more, if a study says so)"
)
TRUSTED = "a mechanism works on the exact sums: this algorithm needs a coordinator that is trusted with them"
# What a message with a site's answer reveals.
MASKED = "masked; alone it is noise to everybody"
EXACT = "exact totals, for the coordinator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Visibility:
    """Values that a `party` can see in a central and in a masked study, besides what is published."""

    party: str
    central: str
    masked: str


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
        f"sites. If more sites collude, there is less noise than is promised. {attempts_text(study)}"
    )


def document_trust_text(document: Mapping[str, Any]) -> str:
    """Return the trust text that follows from the plan of a document, not the document's own text.

    Raises:
        EigenveilError: as `plan_from_json`.
    """
    return trust_text(plan_from_json(canonical(document["plan"])))


def attempts_text(study: Study) -> str:
    """Return a sentence on the number of attempts at a round and their cost."""
    dropout = "If a site drops out of a round after its set is fixed, the round fails"
    if study.attempts == 1:
        return f"{dropout}, is still charged, and ends the study"
    return (
        f"{dropout} and is still charged; a round has up to {study.attempts} attempts, and the study "
        "reserves the cost of all of them until it ends"
    )


def colluding(study: Study) -> str:
    """Return the sites that may collude with the coordinator in a masked study."""
    return "any one other site" if study.colluders == 1 else f"any {study.colluders} other sites"


def message_text(plan: Plan) -> str:
    """Return what a site's answer reveals to those who see it."""
    return MASKED if plan.masked else EXACT


def calls_per_site(plan: Plan, rounds: int) -> int:
    """Return a site's number of calls with an answer if no attempt fails.

    The first masked set is fixed when all sites are ready, each later one with the release before it.
    """
    return rounds + 1 if plan.masked and rounds else rounds


def visibility_table(study: Study) -> tuple[Visibility, ...]:
    """Return what each party can see of a study, besides the published noised sums and their sites."""
    more = study.colluders + 1
    return (
        Visibility(
            party="a site, of its own data",
            central="its records, its exact totals",
            masked="its records, its exact totals, its share of the noise",
        ),
        Visibility(
            party="the coordinator and its operator",
            central="each site's exact totals, when they arrived, their size",
            masked="noise from each site; when it arrived, its size, which sites drop out",
        ),
        Visibility(
            party=f"the coordinator with up to {study.colluders} of the sites",
            central="as above, and what these sites know",
            masked="what these sites know; of the others a sum with all the noise that is promised",
        ),
        Visibility(
            party=f"the coordinator with {more} of the sites or more",
            central="as above, and what these sites know",
            masked="a sum over the others with less noise than is promised: the more collude, the less",
        ),
        Visibility(
            party="another site, an analyst",
            central="what is published; an analyst also sees, while it runs, which sites have answered",
            masked="what is published; while it runs, a site sees which sites are in each attempt, and an "
            "analyst which sites are ready and have answered",
        ),
        Visibility(
            party="an observer of the network",
            central="who sends when, and how much",
            masked="who sends when, and how much",
        ),
    )
