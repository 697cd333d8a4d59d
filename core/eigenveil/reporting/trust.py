"""Who sees what of a study, in words: what its `trust` means, and what it leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eigenveil.numerics.encoding import canonical
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.study.study import Study

SEEN = (
    "the coordinator, and so its operator, sees each site's totals before it adds noise, and is trusted to "
    "add it"
)
CENTRAL = (
    f'{SEEN}; trust = "secure-aggregation" would hide them, also from it together with one other site '
    "(more, if a study says so)"
)
TRUSTED = "a mechanism works on the exact sums: this cannot run without trusting the coordinator with them"
# What a message with a site's answer is to whoever sees it.
MASKED = "masked; alone it is noise to everybody"
EXACT = "exact totals, for the coordinator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What a `party` can see in a study of either trust, beside what is published."""

    party: str
    central: str
    masked: str


def trust_words(plan: Plan) -> str:
    """Who sees a site's totals under this plan, and on what that rests."""
    if not plan.masked:
        if plan.algorithm.properties.trusted:
            return TRUSTED
        return CENTRAL if plan.gaussian else SEEN
    study = plan.study
    return (
        "nobody sees a site's totals without noise that hides each person, also not if the coordinator and "
        f"{colluding(study)} work together: each site adds its share of the noise and masks the result "
        f"before it leaves, and masks cancel in the sum of a set of at least {study.federation.least} sites, "
        "in nothing less. If more sites than that help, there is less noise than is promised. "
        f"{attempts_words(study)}"
    )


def trust_of(document: Mapping[str, Any]) -> str:
    """Who saw a site's totals by the plan of a document, whatever the document says of it.

    Raises:
        EigenveilError: as `plan_from_json`.
    """
    return trust_words(plan_from_json(canonical(document["plan"])))


def attempts_words(study: Study) -> str:
    """How often a round is tried, and what that costs."""
    lost = "A round from which a site drops out once its set is fixed is worthless"
    if study.attempts == 1:
        return f"{lost} and paid, and ends the study"
    return (
        f"{lost} and paid; it may be tried {study.attempts} times in all, and the price is for all of them, "
        "used or not, until the study ends"
    )


def colluding(study: Study) -> str:
    """Against whom, beside the coordinator, a masked study holds."""
    return "any one other site" if study.colluders == 1 else f"any {study.colluders} other sites"


def message_words(plan: Plan) -> str:
    """What a site's answer is to whoever sees it."""
    return MASKED if plan.masked else EXACT


def trips(plan: Plan, rounds: int) -> int:
    """How often a site calls with an answer, if no attempt fails: the first masked set is fixed when all are
    ready, and each later one together with the release before it."""
    return rounds + 1 if plan.masked and rounds else rounds


def sights(study: Study) -> tuple[Sight, ...]:
    """Who can have seen what of a study like this one. What is published everybody sees: sums with all their
    noise, and who is in them."""
    more = study.colluders + 1
    return (
        Sight(
            party="a site, of its own",
            central="its records, its exact totals",
            masked="its records, its exact totals, its share of the noise",
        ),
        Sight(
            party="the coordinator and its operator",
            central="each site's exact totals, when they came, how large they are",
            masked="of each site noise; when it came, how large it is, who drops out",
        ),
        Sight(
            party=f"the coordinator with up to {study.colluders} of the sites",
            central="as above, and what these sites know",
            masked="what these sites know; of the others a sum with all the noise that is promised",
        ),
        Sight(
            party=f"the coordinator with {more} of the sites or more",
            central="as above, and what these sites know",
            masked="a sum over the others with less noise than is promised: the more collude, the less",
        ),
        Sight(
            party="another site, an analyst",
            central="what is published; an analyst also, meanwhile, who has answered",
            masked="what is published; meanwhile a site who is in each attempt, an analyst who is ready and "
            "who has answered",
        ),
        Sight(
            party="who watches the network",
            central="who talks when, and how much",
            masked="who talks when, and how much",
        ),
    )
