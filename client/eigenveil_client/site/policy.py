"""Policy of a site, fixed before any study: rules that a plan passes or fails by site.toml and the calendar
only. A study chooses neither the thresholds nor the persons that are counted. Otherwise a series of studies
could find that number, or one person's missing values, exactly and at no cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from enum import Enum
from typing import TYPE_CHECKING

from eigenveil.accounting.budget import NoiseRule, PrivacyBudget, budget_for
from eigenveil.dictionary.site_limits import MEMORY_RULE, StatedLimits
from eigenveil.dictionary.site_rules import ANY, ForbiddenByRule, StatedRules, Verdict
from eigenveil.errors import Code, RequestError
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.applicant import LABELS, Applicant
from eigenveil.study.study import MAX_MULTIPLICITY, MAX_RECORDS, MIN_BATCH_RECORDS, Study
from eigenveil_client.records.tables.names import is_record_number
from eigenveil_client.site.policy_sections import LineRules, QualityRules, TrustRules, Year, YearlyLimit
from eigenveil_common.config import AT_LEAST_ONE, BELOW_ONE, INSIDE_ONE, KeyRule, check_rules, ensure, key

if TYPE_CHECKING:
    from eigenveil.protocol.plan import Plan

# The algorithms that `auto` chooses from, and `auto` itself, which may choose during a study.
CHOSEN = (Algorithm.REFINED_COV, Algorithm.REFINED_PCA, Algorithm.GAUSS_COV, Algorithm.DP_PCA)
ALGORITHMS = tuple(one.value for one in (*CHOSEN, Algorithm.AUTO))

ABOVE_ZERO = KeyRule(holds=lambda value: 0 < value < 1e6, message="{key} must be a number above 0")
ABOVE_ZERO_OR_INF = KeyRule(
    holds=lambda value: value > 0, message="{key} must be a number above 0, or inf for no limit"
)
ENOUGH_IN_BATCH = KeyRule(
    holds=lambda value: value >= MIN_BATCH_RECORDS,
    message=f"{{key}} must be at least {MIN_BATCH_RECORDS}, so that no sum is a single record",
)
OF_APPLICANT = KeyRule(
    holds=lambda value: set(value) <= set(LABELS),
    message=f"{{key}}: name some of {', '.join(LABELS)}, or none",
)
MULTIPLICITY = KeyRule(
    holds=lambda value: 1 <= value <= MAX_MULTIPLICITY,
    message=f"{{key}} must lie between 1 and {MAX_MULTIPLICITY}",
)


class Approval(Enum):
    """`ask`: a study that passes the rules waits for a person's decision; `auto`: the rules decide."""

    MANUAL = "manual"
    AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules of one site: each field is a key of site.toml, explained in deploy/config/site.example.toml.

    `columns` and `analysts` are the allowed names, or ("*",) for all, of columns but those that number
    records (`is_record_number`); without one every study is declined. `disclose_reasons`: the analyst
    gets the reason that a person writes on declining.
    `disclose_settings`: the federation gets `limits`.
    `max_columns_per_record` times `minimum_records` bounds a study's columns. `approval_ends` is the last day
    (UTC) with answers (None: no end); `max_epsilon_per_year` is infinite for no limit. `minimum_records` and
    `maximum_records` bound the persons in the file, and a study must accept both. A study in batches is
    answered only if `minimum_records` leave `minimum_records_per_batch` in each: a study chooses its batches,
    so the actual number is not compared. `person_column` names the person of a row ("": every row is another
    person), and `sites_per_person` the number of sites that may have records of one person; a study must
    state the same. `required_applicant` are the fields of `Applicant` that a study must state. Raises
    RequestError: code `bad-config`, an invalid value; or as `budget_for`."""

    approval: Approval = Approval.MANUAL
    approval_ends: date | None = None
    analysts: tuple[str, ...] = ()
    required_applicant: tuple[str, ...] = key((), OF_APPLICANT)
    columns: tuple[str, ...] = (ANY,)
    max_columns_per_record: float = key(2.0, ABOVE_ZERO_OR_INF)
    algorithms: tuple[str, ...] = key(ALGORITHMS, KeyRule(holds=bool, message="{key}: name at least one"))
    noise: NoiseRule = NoiseRule.GAUSSIAN
    max_epsilon_per_study: float = key(5.0, ABOVE_ZERO, "The most that one study may spend.")
    max_delta: float = key(1e-5, INSIDE_ONE)
    minimum_records: int = key(20, AT_LEAST_ONE, "With fewer records no study is answered.")
    maximum_records: int = key(100_000, about="With more records no study is answered.")
    minimum_records_per_batch: int = key(MIN_BATCH_RECORDS, ENOUGH_IN_BATCH)
    person_column: str = key("", about="The column that names the person; without it every row is another.")
    sites_per_person: int = key(1, MULTIPLICITY, "Largest number of sites with records of one person.")
    budget_epsilon: float = key(10.0, ABOVE_ZERO, "Total budget of all studies, with the delta below.")
    budget_delta: float = key(1e-6, INSIDE_ONE, "The delta at which the budget's epsilon is stated.")
    budget_mechanism_delta: float = key(1e-5, BELOW_ONE)
    max_epsilon_per_year: float = key(math.inf, ABOVE_ZERO_OR_INF)
    year: Year = Year.ROLLING
    disclose_reasons: bool = False
    disclose_settings: bool = False
    quality: QualityRules = QualityRules()  # noqa: RUF009 - frozen
    lines: LineRules = LineRules()  # noqa: RUF009 - frozen
    secrecy: TrustRules = TrustRules()  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        known = [algorithm.value for algorithm in Algorithm if algorithm.properties.federated]
        unknown = sorted(set(self.algorithms) - set(known))
        ensure(not unknown, f"algorithms: {', '.join(unknown)} unknown; known: {', '.join(known)}")
        other = [name for name in self.algorithms if not Algorithm(name).properties.gaussian]
        ensure(
            self.noise is NoiseRule.ANY or not other,
            f'algorithms: {", ".join(other)} need noise = "any", with which the same epsilon of the budget '
            "allows less",
        )
        check_rules(self)
        ensure(
            self.minimum_records <= self.maximum_records <= MAX_RECORDS,
            f"maximum_records must lie between minimum_records and {MAX_RECORDS}",
        )
        self.budget, self.yearly  # noqa: B018 - raises for a budget, or a year, without anything to spend

    @property
    def budget(self) -> PrivacyBudget:
        """Total budget of all studies on this site's records."""
        return self._budget_of(self.budget_epsilon)

    def _budget_of(self, epsilon: float) -> PrivacyBudget:
        return budget_for(epsilon, self.budget_delta, self.budget_mechanism_delta, self.noise)

    @property
    def yearly(self) -> YearlyLimit | None:
        """Limit for one year; None if only the total budget applies."""
        if math.isinf(self.max_epsilon_per_year):
            return None
        return YearlyLimit(year=self.year, budget=self._budget_of(self.max_epsilon_per_year))

    @property
    def stated(self) -> StatedRules:
        """Rules that the site states to its federation."""
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

    @property
    def limits(self) -> StatedLimits:
        """Limits on persons and records, without that of the engine's memory."""
        return StatedLimits(
            person_column=self.person_column,
            sites_per_person=self.sites_per_person,
            minimum_records=self.minimum_records,
            maximum_records=self.maximum_records,
            max_columns_per_record=self.max_columns_per_record,
            minimum_records_per_batch=self.minimum_records_per_batch,
        )

    def verdicts(self, plan: Plan, now: int) -> tuple[Verdict, ...]:
        """Return the verdict of every rule on `plan` at the Unix time `now`; no record is read."""
        return (
            self.approval_verdict(now),
            *self.stated.verdicts(plan),
            self._applicant_verdict(plan.study.applicant),
            self._column_verdict(plan.study),
            *self.limits.verdicts(plan),
        )

    def days_left(self, now: int) -> float:
        """Return the days from the Unix time `now` until the approval ends."""
        if self.approval_ends is None:
            return math.inf
        return (datetime.combine(self.approval_ends, time(23, 59, 59), UTC).timestamp() + 1 - now) / 86_400

    def approval_verdict(self, now: int) -> Verdict:
        passed = self.days_left(now) > 0
        stated = f"the approval {'ends' if passed else 'ended'} on {self.approval_ends} (UTC)"
        text = "no end date is stated" if self.approval_ends is None else stated
        return Verdict(rule="approval_ends", passed=passed, text=text)

    def _applicant_verdict(self, applicant: Applicant) -> Verdict:
        missing = [LABELS[name] for name in applicant.missing(self.required_applicant)]
        todo = "state it in the study, or in the analyst's profile (eigenveil profile set)"
        text = f"not stated about who asks: {', '.join(missing)}; {todo}" if missing else "nothing is missing"
        return Verdict(rule="required_applicant", passed=not missing, text=text)

    def _column_verdict(self, study: Study) -> Verdict:
        names = {column.name for column in study.columns}
        if ANY in self.columns:
            outside = sorted(name for name in names if is_record_number(name, [self.person_column]))
        else:
            outside = sorted(names - set(self.columns))
        text = f"columns not allowed: {', '.join(outside)}" if outside else "every column is allowed"
        return Verdict(rule="columns", passed=not outside, text=text)

    def stated_failure(self, plan: Plan, rule: str) -> str:
        """Return a rule that forbids `plan` by what this site states to its federation, so that its name
        reveals nothing else; empty if there is none. `rule` is the one that the site has found."""
        limits = self.limits.verdicts(plan) if self.disclose_settings else ()
        failed = [one.rule for one in (*self.stated.verdicts(plan), *limits) if not one.passed]
        if rule == MEMORY_RULE and self.disclose_settings:
            failed.append(rule)
        return rule if rule in failed else next(iter(failed), "")

    def require(self, plan: Plan, now: int) -> None:
        """Require that `plan` passes every rule at the Unix time `now`. Raises ForbiddenByRule: naming the
        failed rules."""
        failed = [verdict for verdict in self.verdicts(plan, now) if not verdict.passed]
        if failed:
            text = "; ".join(f"{verdict.rule}: {verdict.text}" for verdict in failed)
            raise ForbiddenByRule(failed[0].rule, f"the site's policy forbids this study ({text})")

    def require_record_count(self, persons: int) -> None:
        """Require a number of persons within the site's minimum and maximum. Raises RequestError: code
        `too-few-records` or `too-many-records`; the number is not in the message."""
        if persons < self.minimum_records:
            few = f"fewer persons in the file than the site's minimum_records = {self.minimum_records}"
            raise RequestError(Code.TOO_FEW_RECORDS, few)
        if persons > self.maximum_records:
            many = f"more persons in the file than the site's maximum_records = {self.maximum_records}"
            raise RequestError(Code.TOO_MANY_RECORDS, f"{many}; raise it in site.toml")
