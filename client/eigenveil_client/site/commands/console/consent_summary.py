"""Consent summary: a study's facts for the people who decide, as plain values without texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Any, NamedTuple

from eigenveil.accounting.zcdp import ATTO, MICRO, NO_COST
from eigenveil.protocol.plan import Plan
from eigenveil.reporting.explain import budget_inference_odds
from eigenveil_client.site.commands import consent
from eigenveil_client.site.commands.console.labels import OF_ONE_PERSON, OF_SMALL_GROUPS
from eigenveil_client.site.commands.record_checks import OF_CONTENTS
from eigenveil_client.site.config import SiteConfig, federation_dictionary, site_dictionary
from eigenveil_client.site.inference_risk import InferenceRisk, inference_risk_of, percent_rounded_up
from eigenveil_client.site.next_steps import NextSteps, next_steps
from eigenveil_client.site.roster.analysts import SignatureStatus
from eigenveil_client.site.state.received_plans import ConsentStatus, ReceivedPlan
from eigenveil_client.site.state.store import SiteStore


class RoundRange(NamedTuple):
    """Rounds `first` to `last` (counted from 1) with the same query; each answer has `numbers` numbers."""

    first: int
    last: int
    kind: str
    numbers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetShare:
    """Shares of the whole budget, of 1: used or reserved by other studies, and wanted by this one. `more` is
    the number of further studies like it that fit."""

    used: Fraction
    wanted: Fraction
    more: int

    @property
    def after(self) -> Fraction:
        return self.used + self.wanted


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConsentSummary:
    """A received plan, as `explanation` by `explain_plan`. `meanings` of columns are by name and unit.
    `odds` bound an inference from this study about one person, and `right_ever` the correct guesses of 100,
    rounded up, from everything that the budget allows."""

    config: SiteConfig
    seen: ReceivedPlan
    plan: Plan
    meanings: dict[tuple[str, str], str]
    steps: tuple[RoundRange, ...]
    share: BudgetShare
    odds: InferenceRisk
    right_ever: int
    explanation: dict[str, Any]
    next: NextSteps

    @property
    def waits(self) -> bool:
        return self.seen.status is ConsentStatus.PENDING

    @property
    def open(self) -> bool:
        """True if it may still be withdrawn."""
        return self.seen.status in (ConsentStatus.PENDING, ConsentStatus.ACCEPTED)

    @property
    def allowed(self) -> bool:
        return all(verdict["passed"] for verdict in self.explanation["policy"])

    @property
    def unanswerable(self) -> bool:
        """True if nothing but the records themselves prevents the study."""
        failed = [verdict["rule"] for verdict in self.explanation["policy"] if not verdict["passed"]]
        return bool(failed) and set(failed) <= set(OF_CONTENTS)

    @property
    def may_agree(self) -> bool:
        """True if the rules allow the study, and its last day to decide is not past."""
        return self.allowed and not self.next.closed

    @property
    def signature(self) -> SignatureStatus:
        return SignatureStatus(self.explanation["analyst_signature"]["status"])

    @property
    def fewest(self) -> int:
        """Smallest number of sites in the set of a masked answer."""
        return max(self.plan.study.federation.least, self.config.policy.secrecy.minimum_sites)

    @property
    def one_person(self) -> bool:
        """True if any answer is about one single person."""
        return any(step.kind == OF_ONE_PERSON for step in self.steps)

    @property
    def small_groups(self) -> bool:
        """True if any answer has values of each small group, which may be one single person."""
        return any(step.kind in OF_SMALL_GROUPS for step in self.steps)

    @property
    def again(self) -> set[str]:
        """Kinds of queries used in several rounds."""
        counts = Counter(kind for step in self.steps for kind in [step.kind] * (1 + step.last - step.first))
        return {kind for kind, times in counts.items() if times > 1}

    @property
    def fingerprint(self) -> str:
        """Plan digest in groups for comparison by eye."""
        return " ".join(self.seen.plan[start : start + 8] for start in range(0, 64, 8))


def consent_summary(
    config: SiteConfig, store: SiteStore, seen: ReceivedPlan, *, contents: bool = True
) -> ConsentSummary:
    """Return the summary of a received plan. Of a pending one the records are read with `contents`."""
    plan, waits = seen.read_plan(), seen.status is ConsentStatus.PENDING
    explanation = consent.explain_plan(config, store, plan, seen.signed, contents=contents and waits)
    # The federation's dictionary, or else this site's.
    known = (site_dictionary(config.dictionary), federation_dictionary(config))
    entries = [entry for one in known if one is not None for entry in one.columns]
    return ConsentSummary(
        config=config,
        seen=seen,
        plan=plan,
        meanings={(column.name, column.unit): one.meaning for one in entries for column in one.columns},
        steps=tuple(_steps(explanation["rounds"])),
        share=_share(config, store, seen, plan),
        odds=inference_risk_of(plan),
        right_ever=right_ever(store),
        explanation=explanation,
        next=next_steps(store, seen, plan, len(explanation["rounds"])),
    )


def right_ever(store: SiteStore) -> int:
    """Return the most guesses of 100 that are right, for an observer of all answers that the budget
    allows."""
    state = store.ledger.ledger
    rho, budget_delta = Fraction(state.limit.micro_rho, MICRO), Fraction(state.limit.atto_delta, ATTO)
    return percent_rounded_up(budget_inference_odds(rho, budget_delta, gaussian=state.exact))


def _share(config: SiteConfig, store: SiteStore, seen: ReceivedPlan, plan: Plan) -> BudgetShare:
    """Return the budget shares, by integers. An accepted study is reserved already; an ended one counts as
    spent."""
    state = store.ledger.ledger
    committed, limit, cost = state.committed(), state.limit, plan.cost
    used = committed.micro_rho - (cost.micro_rho if seen.status is ConsentStatus.ACCEPTED else 0)
    besides = cost if seen.status is ConsentStatus.PENDING else NO_COST
    return BudgetShare(
        used=Fraction(used, limit.micro_rho),
        wanted=Fraction(cost.micro_rho, limit.micro_rho),
        more=consent.more(store, plan, config.policy.yearly, besides=besides) or 0,
    )


def _steps(rounds: list[dict[str, Any]]) -> Iterator[RoundRange]:
    for (kind, numbers), rows in groupby(rounds, key=lambda row: (row["kind"], row["numbers"])):
        numbered = [row["round"] + 1 for row in rows]
        yield RoundRange(numbered[0], numbered[-1], kind, numbers)
