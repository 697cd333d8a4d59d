"""What a site agrees to, decided before any study: frozen rules that a plan passes or fails.

Every rule compares the plan with site.toml and the calendar alone, so its verdict says nothing about a
patient. The site's own two numbers are compared with the persons in the whole file, and with nothing that a
study chose, neither a threshold nor whom to count: otherwise a series of studies could search for the
number, or for one person's missing values, and learn them exactly at no cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from enum import Enum
from typing import TYPE_CHECKING

from eigenveil.accounting.budget import Budget, NoiseRule, budget_for
from eigenveil.dictionary.rules import ANY, StatedRules
from eigenveil.dictionary.verdict import ForbiddenByRule, Verdict, at_least
from eigenveil.errors import Code, RequestError
from eigenveil.study.algorithm import PROPERTIES, Algorithm
from eigenveil.study.study import FEWEST_IN_BATCH, MAX_MULTIPLICITY, MAX_RECORDS, Study
from eigenveil_client.site.quality import QualityRules
from eigenveil_client.site.trust import TrustRules
from eigenveil_client.site.yearly_limit import Year, YearlyLimit
from eigenveil_common.config import AT_LEAST_ONE, BELOW_ONE, INSIDE_ONE, Rule, check_rules, key, need

if TYPE_CHECKING:
    from eigenveil.protocol.plan import Plan

# What `auto` chooses from, and `auto` where it chooses during a study; a site that wants more names it.
ALGORITHMS = tuple(
    one.value
    for one in (
        Algorithm.REFINED_COV,
        Algorithm.REFINED_PCA,
        Algorithm.GAUSS_COV,
        Algorithm.DP_PCA,
        Algorithm.AUTO,
    )
)

ABOVE_ZERO = Rule(holds=lambda value: 0 < value < 1e6, words="{key} must be a number above 0")
ABOVE_ZERO_OR_INF = Rule(
    holds=lambda value: value > 0, words="{key} must be a number above 0, or inf for no limit"
)
ENOUGH_IN_BATCH = Rule(
    holds=lambda value: value >= FEWEST_IN_BATCH,
    words=f"{{key}} must be at least {FEWEST_IN_BATCH}, so that no record is a sum",
)
MULTIPLICITY = Rule(
    holds=lambda value: 1 <= value <= MAX_MULTIPLICITY,
    words=f"{{key}} must lie between 1 and {MAX_MULTIPLICITY}",
)


class Approval(Enum):
    """`ask`: a study that passes the rules waits for a person's word; `auto`: the rules decide alone."""

    ASK = "ask"
    AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules of one site: each field is a key of site.toml, explained in deploy/config/site.example.toml.

    `columns` and `analysts` are the names that may be used, or ("*",) for all; without analysts nobody asks.
    `tell_reasons`: what a person writes on declining goes to the analyst. `max_columns_per_record`
    bounds a study's columns by `minimum_records`. `approval_ends` is the last day, in UTC, on which anything
    is answered (None: no end); `max_epsilon_per_year` is infinite for no limit. `minimum_records` and
    `maximum_records` bound the persons in the file with which the site answers; a study must be content with
    both. A study that deals them into parts is answered only if `minimum_records` leave
    `minimum_records_per_part` in each: a study chooses its parts, so the records themselves are not compared.
    `person_column` names the person a row is about ("": every row is another person) and `sites_per_person`
    how many sites may hold records of one; a study must say the same.

    Raises:
        RequestError: code `bad-config`, a value that cannot be meant; or as `budget_for`.
    """

    approval: Approval = Approval.ASK
    approval_ends: date | None = None
    analysts: tuple[str, ...] = ()
    columns: tuple[str, ...] = key(
        (ANY,), Rule(holds=bool, words='{key}: name what may be used, or write ["*"] for every column')
    )
    max_columns_per_record: float = key(2.0, ABOVE_ZERO_OR_INF)
    algorithms: tuple[str, ...] = key(ALGORITHMS, Rule(holds=bool, words="{key}: name at least one"))
    noise: NoiseRule = NoiseRule.GAUSSIAN
    max_epsilon_per_study: float = key(5.0, ABOVE_ZERO, "The most that one study may spend.")
    max_delta: float = key(1e-5, INSIDE_ONE)
    minimum_records: int = key(20, AT_LEAST_ONE, "Fewer usable ones: no answer.")
    maximum_records: int = key(100_000, about="There will never be more.")
    minimum_records_per_part: int = key(FEWEST_IN_BATCH, ENOUGH_IN_BATCH)
    person_column: str = key("", about="The column that names the person; left out, every row is another.")
    sites_per_person: int = key(1, MULTIPLICITY, "Sites that may know one person.")
    budget_epsilon: float = key(10.0, ABOVE_ZERO, "All that studies may ever spend, with the delta below.")
    budget_delta: float = key(1e-6, INSIDE_ONE, "The delta at which the budget's epsilon is stated.")
    budget_own_delta: float = key(1e-5, BELOW_ONE)
    max_epsilon_per_year: float = key(math.inf, ABOVE_ZERO_OR_INF)
    year: Year = Year.ROLLING
    tell_reasons: bool = False
    quality: QualityRules = QualityRules()  # noqa: RUF009 - frozen
    secrecy: TrustRules = TrustRules()  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        known = [algorithm.value for algorithm, traits in PROPERTIES.items() if traits.federated]
        strange = sorted(set(self.algorithms) - set(known))
        need(not strange, f"algorithms: {', '.join(strange)} unknown (known: {', '.join(known)})")
        other = [name for name in self.algorithms if not Algorithm(name).properties.gaussian]
        need(
            self.noise is NoiseRule.ANY or not other,
            f'algorithms: {", ".join(other)} not with Gaussian noise alone; state noise = "any", and the '
            "same epsilon of the budget buys less",
        )
        check_rules(self)
        need(
            self.minimum_records <= self.maximum_records <= MAX_RECORDS,
            f"maximum_records must lie between minimum_records and {MAX_RECORDS}",
        )
        self.budget, self.yearly  # noqa: B018 - refuse a budget, or a year, that leaves nothing to spend

    @property
    def budget(self) -> Budget:
        """All that studies may ever spend on this site's records."""
        return self._budget_of(self.budget_epsilon)

    def _budget_of(self, epsilon: float) -> Budget:
        return budget_for(epsilon, self.budget_delta, self.budget_own_delta, self.noise)

    @property
    def yearly(self) -> YearlyLimit | None:
        """What studies may spend in one year; None if only the budget limits them."""
        if math.isinf(self.max_epsilon_per_year):
            return None
        return YearlyLimit(year=self.year, budget=self._budget_of(self.max_epsilon_per_year))

    @property
    def stated(self) -> StatedRules:
        """The rules that the site states to its federation."""
        return StatedRules(
            analysts=self.analysts,
            algorithms=self.algorithms,
            noise=self.noise.value,
            max_epsilon_per_study=self.max_epsilon_per_study,
            max_delta=self.max_delta,
            trust=self.secrecy.trust,
            colluding=self.secrecy.colluding,
            minimum_sites=self.secrecy.minimum_sites,
        )

    def verdicts(self, plan: Plan, now: int) -> tuple[Verdict, ...]:
        """Every rule, applied to `plan` at the Unix time `now`; no record is looked at."""
        return (
            self.about_time(now),
            *self.stated.verdicts(plan),
            self._about_columns(plan.study),
            *self._about_people(plan.study),
            *self._about_size(plan.study),
            self._about_parts(plan),
        )

    def days_left(self, now: int) -> float:
        """Days from the Unix time `now` until nothing is answered any more."""
        if self.approval_ends is None:
            return math.inf
        return (datetime.combine(self.approval_ends, time(23, 59, 59), UTC).timestamp() + 1 - now) / 86_400

    def about_time(self, now: int) -> Verdict:
        """Whether anything is answered at the Unix time `now`."""
        passed = self.days_left(now) > 0
        if self.approval_ends is None:
            text = "no end is stated"
        else:
            text = f"the approval {'ends' if passed else 'ended'} on {self.approval_ends} (UTC)"
        return Verdict(rule="approval_ends", passed=passed, text=text)

    def _about_columns(self, study: Study) -> Verdict:
        outside = [] if ANY in self.columns else sorted(
            {column.name for column in study.columns} - set(self.columns)
        )  # fmt: skip
        return Verdict(
            rule="columns",
            passed=not outside,
            text=f"columns not allowed: {', '.join(outside)}" if outside else "every column is allowed",
        )

    def _about_people(self, study: Study) -> tuple[Verdict, ...]:
        """Who a person is, and where else one may be, is the site's to say: the guarantee is about people."""
        stated, sites = study.person_column or "", study.max_sites_per_person
        same = stated == self.person_column
        return (
            Verdict(
                rule="person_column",
                passed=same,
                text=_person(stated)
                if same
                else f"the study says {_person(stated)}, the site {_person(self.person_column)}; "
                "both must say the same",
            ),
            at_least("sites_per_person", "max_sites_per_person", sites, self.sites_per_person),
        )

    def _about_size(self, study: Study) -> tuple[Verdict, ...]:
        cohort, most = study.federation.minimum_cohort, study.max_records
        content = cohort <= self.minimum_records
        widest = self.max_columns_per_record * self.minimum_records
        return (
            Verdict(
                rule="max_columns_per_record",
                passed=study.dimension <= widest,
                text=f"{study.dimension} columns; at most {widest:g}: "
                f"{self.max_columns_per_record:g} for each of {self.minimum_records} records",
            ),
            Verdict(
                rule="minimum_records",
                passed=content,
                text=f"the study's minimum_cohort {cohort}; at most {self.minimum_records}"
                + ("" if content else ": lower it in the study, or raise the site's minimum_records"),
            ),
            at_least("maximum_records", "max_records", most, self.maximum_records, lowering=True),
        )

    def _about_parts(self, plan: Plan) -> Verdict:
        """Whether every sum covers records enough, if there are no more than the site says at least."""
        parts, least = plan.batches, self.minimum_records_per_part
        passed = parts == 1 or self.minimum_records >= parts * least
        text = f"{parts} parts of {self.minimum_records} records; at least {least} in each" + (
            "" if passed else ": lower batches in the study, or raise the site's minimum_records"
        )
        return Verdict(
            rule="minimum_records_per_part",
            passed=passed,
            text="every sum is over all records" if parts == 1 else text,
        )

    def require(self, plan: Plan, now: int) -> None:
        """Insist that `plan` passes every rule at the Unix time `now`.

        Raises:
            ForbiddenByRule: naming the rules it fails.
        """
        failed = [verdict for verdict in self.verdicts(plan, now) if not verdict.passed]
        if failed:
            text = "; ".join(f"{verdict.rule}: {verdict.text}" for verdict in failed)
            raise ForbiddenByRule(failed[0].rule, f"the site's policy forbids this study ({text})")

    def require_enough(self, persons: int) -> None:
        """Insist on the site's own minimum and maximum of persons in the file.

        Raises:
            RequestError: code `too-few-records` or `too-many-records`; the number is not in the message.
        """
        if persons < self.minimum_records:
            raise RequestError(
                Code.TOO_FEW_RECORDS,
                f"fewer persons in the file than the site's minimum_records = {self.minimum_records}",
            )
        if persons > self.maximum_records:
            raise RequestError(
                Code.TOO_MANY_RECORDS,
                f"more persons in the file than the site's maximum_records = {self.maximum_records}; "
                "raise it in site.toml",
            )


def _person(column: str) -> str:
    return f"a person is a value of column {column!r}" if column else "every row is another person"
