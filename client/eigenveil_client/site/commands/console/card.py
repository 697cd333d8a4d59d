"""A study as the people of a site decide about it: plain values, without a word of ours."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Any

from eigenveil.accounting.zcdp import ATTO, MICRO, NOTHING
from eigenveil.dictionary.dictionary import Dictionary
from eigenveil.dictionary.verdict import Verdict
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.reporting.one_person import ever_guessed
from eigenveil.study.study import Column, Missing
from eigenveil_client.connection.held_dictionary import held_dictionary
from eigenveil_client.connection.identity import load_identity, named
from eigenveil_client.site.analysts.asker import Signature
from eigenveil_client.site.commands import consent
from eigenveil_client.site.commands.console.words import OF_ONE_PERSON, OF_SMALL_GROUPS
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.odds import Odds, odds_of, of_hundred
from eigenveil_client.site.plausible import dictionary
from eigenveil_client.site.policy import Policy
from eigenveil_client.site.state.received_plans import Decision, ReceivedPlan
from eigenveil_client.site.state.store import SiteStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A column; `meaning` is the dictionary's, empty where it does not know the column in this unit."""

    column: Column
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Rounds `first` to `last` (counted from 1), which ask the same: `numbers` of each."""

    first: int
    last: int
    kind: str
    numbers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Of all that studies may ever spend here: what is used or set aside besides this one, what this one
    takes, and how many like it fit after it. Shares are of 1."""

    used: Fraction
    wanted: Fraction
    more: int

    @property
    def after(self) -> Fraction:
        return self.used + self.wanted


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Card:
    """`site` is the one that decides. `policy`: the rules by which `verdicts` are. `odds` are of who sees
    this study; `right_ever` is of 100 guesses, rounded up: of who sees all that the budget ever pays for."""

    site: str
    seen: ReceivedPlan
    plan: Plan
    columns: tuple[Asked, ...]
    steps: tuple[Step, ...]
    share: Share
    odds: Odds
    right_ever: int
    ends: str | None
    policy: Policy
    verdicts: tuple[Verdict, ...]
    told: dict[str, Any]

    @property
    def waits(self) -> bool:
        return self.seen.standing is Decision.PENDING

    @property
    def open(self) -> bool:
        """Whether it may still be withdrawn."""
        return self.seen.standing in (Decision.PENDING, Decision.ACCEPTED)

    @property
    def allowed(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)

    @property
    def signature(self) -> Signature:
        """By whose word the study is in its analyst's name."""
        return Signature(self.told["asked_by"]["signature"])

    @property
    def others(self) -> tuple[str, ...]:
        """With whose numbers this site's are added up."""
        return tuple(name for name in self.plan.study.federation.sites if name != self.site)

    @property
    def fewest(self) -> int:
        """Of how many sites a set has at least, for which a masked answer leaves."""
        return max(self.plan.study.federation.least, self.policy.secrecy.minimum_sites)

    @property
    def one_person(self) -> bool:
        """Whether any answer is about one single person."""
        return any(step.kind == OF_ONE_PERSON for step in self.steps)

    @property
    def small_groups(self) -> bool:
        """Whether any answer says something of every small group, which may be one single person."""
        return any(step.kind in OF_SMALL_GROUPS for step in self.steps)

    @property
    def drops(self) -> bool:
        """Whether patients without a value are left out, so that few may be left."""
        return self.plan.study.missing is Missing.DROP

    @property
    def again(self) -> set[str]:
        """Kinds of questions that are asked in several rounds."""
        asked = Counter(kind for step in self.steps for kind in [step.kind] * (1 + step.last - step.first))
        return {kind for kind, times in asked.items() if times > 1}

    @property
    def fingerprint(self) -> str:
        """The plan's digest, in groups that can be compared by eye."""
        return " ".join(self.seen.plan[start : start + 8] for start in range(0, 64, 8))


def card(config: SiteConfig, store: SiteStore, seen: ReceivedPlan) -> Card:
    """What is known of a study that came here."""
    plan = plan_from_json(seen.plan_json)
    told, meanings = consent.explained(config, store, plan, seen.signed), _meanings(config)
    return Card(
        site=config.name,
        seen=seen,
        plan=plan,
        columns=tuple(
            Asked(column=one, meaning=meanings.get((one.name, one.unit), "")) for one in plan.study.columns
        ),
        steps=tuple(_steps(told["rounds"])),
        share=_share(config, store, seen, plan),
        odds=odds_of(plan),
        right_ever=right_ever(store),
        ends=told["approval_ends"],
        policy=config.policy,
        verdicts=consent.verdicts(config, store, plan, seen.signed),
        told=told,
    )


def right_ever(store: SiteStore) -> int:
    """Guesses of 100 that are right, at most, of who sees all that this site's budget ever pays for."""
    state = store.ledger.ledger
    rho, own = Fraction(state.limit.micro_rho, MICRO), Fraction(state.limit.atto_delta, ATTO)
    return of_hundred(ever_guessed(rho, own, gaussian=state.exact))


def _share(config: SiteConfig, store: SiteStore, seen: ReceivedPlan, plan: Plan) -> Share:
    """By integers; one that was agreed to is set aside already, and one that is over takes what it spent."""
    state = store.ledger.ledger
    committed, limit, price = state.committed(), state.limit, plan.cost
    used = committed.micro_rho - (price.micro_rho if seen.standing is Decision.ACCEPTED else 0)
    besides = price if seen.standing is Decision.PENDING else NOTHING
    return Share(
        used=Fraction(used, limit.micro_rho),
        wanted=Fraction(price.micro_rho, limit.micro_rho),
        more=consent.more(store, plan, config.policy.yearly, besides=besides) or 0,
    )


def _steps(rounds: list[dict[str, Any]]) -> list[Step]:
    same = groupby(rounds, key=lambda row: (row["kind"], row["numbers"]))
    made = []
    for (kind, numbers), rows in same:
        numbered = [row["round"] + 1 for row in rows]
        made.append(Step(first=numbered[0], last=numbered[-1], kind=kind, numbers=numbers))
    return made


def _meanings(config: SiteConfig) -> dict[tuple[str, str], str]:
    """By name and unit: as the federation's dictionary says, or else this site's."""
    known = [dictionary(config.dictionary)]
    held = None if named(config.identity) is None else held_dictionary(load_identity(config.identity))
    return {
        (column.name, column.unit): one.meaning
        for each in (*known, *([held] if isinstance(held, Dictionary) else []))
        for one in each.columns
        for column in one.columns
    }
