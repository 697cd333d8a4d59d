"""Consent summary: a study's facts for the people who decide, as plain values without texts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Any

from eigenveil.accounting.zcdp import ATTO, MICRO, NO_COST
from eigenveil.dictionary.dictionary import Dictionary
from eigenveil.dictionary.site_rules import Verdict
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.reporting.explain import budget_inference_odds
from eigenveil.study.study import Column, Missing
from eigenveil_client.connection.identity import folder_identity, load_identity
from eigenveil_client.connection.session_start import stored_dictionary
from eigenveil_client.site.commands import consent
from eigenveil_client.site.commands.console.labels import OF_ONE_PERSON, OF_SMALL_GROUPS
from eigenveil_client.site.config import SiteConfig, site_dictionary
from eigenveil_client.site.inference_risk import InferenceRisk, inference_risk_of, percent_rounded_up
from eigenveil_client.site.policy import Policy
from eigenveil_client.site.roster.analysts import SignatureStatus
from eigenveil_client.site.state.received_plans import ConsentStatus, ReceivedPlan
from eigenveil_client.site.state.store import SiteStore


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedColumn:
    """Column; `meaning` is the dictionary's, empty if the column is not in it with this unit."""

    column: Column
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRange:
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
    """Consent summary of a study at `site`.

    `policy` has the rules of `verdicts`. `odds` bound an inference from this study about one person.
    `right_ever` bounds the correct guesses of 100, rounded up, from everything that the budget allows."""

    site: str
    seen: ReceivedPlan
    plan: Plan
    columns: tuple[RequestedColumn, ...]
    steps: tuple[RoundRange, ...]
    share: BudgetShare
    odds: InferenceRisk
    right_ever: int
    ends: str | None
    policy: Policy
    verdicts: tuple[Verdict, ...]
    told: dict[str, Any]

    @property
    def waits(self) -> bool:
        return self.seen.status is ConsentStatus.PENDING

    @property
    def open(self) -> bool:
        """True if it may still be withdrawn."""
        return self.seen.status in (ConsentStatus.PENDING, ConsentStatus.ACCEPTED)

    @property
    def allowed(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)

    @property
    def signature(self) -> SignatureStatus:
        """Status of the analyst's signature."""
        return SignatureStatus(self.told["analyst_signature"]["status"])

    @property
    def others(self) -> tuple[str, ...]:
        """Names of the other sites of the study."""
        return tuple(name for name in self.plan.study.federation.sites if name != self.site)

    @property
    def fewest(self) -> int:
        """Smallest number of sites in the set of a masked answer."""
        return max(self.plan.study.federation.least, self.policy.secrecy.minimum_sites)

    @property
    def one_person(self) -> bool:
        """True if any answer is about one single person."""
        return any(step.kind == OF_ONE_PERSON for step in self.steps)

    @property
    def small_groups(self) -> bool:
        """True if any answer has values of each small group, which may be one single person."""
        return any(step.kind in OF_SMALL_GROUPS for step in self.steps)

    @property
    def drops(self) -> bool:
        """True if patients without a value are left out, so that few may remain."""
        return self.plan.study.missing is Missing.DROP

    @property
    def again(self) -> set[str]:
        """Kinds of queries used in several rounds."""
        asked = Counter(kind for step in self.steps for kind in [step.kind] * (1 + step.last - step.first))
        return {kind for kind, times in asked.items() if times > 1}

    @property
    def fingerprint(self) -> str:
        """Plan digest in groups for comparison by eye."""
        return " ".join(self.seen.plan[start : start + 8] for start in range(0, 64, 8))


def consent_summary(config: SiteConfig, store: SiteStore, seen: ReceivedPlan) -> ConsentSummary:
    """Return the consent summary of a received study."""
    plan = plan_from_json(seen.plan_json)
    told, meanings = consent.explain_plan(config, store, plan, seen.signed), _meanings(config)
    return ConsentSummary(
        site=config.name,
        seen=seen,
        plan=plan,
        columns=tuple(
            RequestedColumn(column=one, meaning=meanings.get((one.name, one.unit), ""))
            for one in plan.study.columns
        ),
        steps=tuple(_steps(told["rounds"])),
        share=_share(config, store, seen, plan),
        odds=inference_risk_of(plan),
        right_ever=right_ever(store),
        ends=told["approval_ends"],
        policy=config.policy,
        verdicts=consent.verdicts(config, store, plan, seen.signed),
        told=told,
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


def _steps(rounds: list[dict[str, Any]]) -> list[RoundRange]:
    same = groupby(rounds, key=lambda row: (row["kind"], row["numbers"]))
    made = []
    for (kind, numbers), rows in same:
        numbered = [row["round"] + 1 for row in rows]
        made.append(RoundRange(first=numbered[0], last=numbered[-1], kind=kind, numbers=numbers))
    return made


def _meanings(config: SiteConfig) -> dict[tuple[str, str], str]:
    """Return meanings by name and unit: the federation's dictionary, or else this site's."""
    known = [site_dictionary(config.dictionary)]
    held = (
        None
        if folder_identity(config.identity) is None
        else stored_dictionary(load_identity(config.identity))
    )
    return {
        (column.name, column.unit): one.meaning
        for each in (*known, *([held] if isinstance(held, Dictionary) else []))
        for one in each.columns
        for column in one.columns
    }
