"""What a site agrees to, decided before any study: frozen rules that a plan passes or fails.

Every rule compares the plan with site.toml alone, so its verdict says nothing about a patient. The
number of records is compared with the site's own two numbers and with nothing that a study chose:
otherwise a series of studies could search for it, and learn it exactly at no cost.
"""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil.accounting import ATTO, Cost, micro_rho_for
from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil.plan import Plan
from eigenveil.study import MAX_MULTIPLICITY, MAX_RECORDS, Study
from eigenveil.traits import TRAITS, Traits
from eigenveil_proto.v1 import eigenveil_pb2 as pb

ANY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One rule applied to one plan."""

    rule: str
    passed: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules of one site. `columns` are the names that may be used, or ("*",) for all.

    `minimum_records` and `maximum_records` bound the usable records that the site answers with; a study
    must be content with both. `person_column` names the person a row is about ("": every row is another
    person) and `sites_per_person` how many sites may hold records of one; a study must say the same.

    Raises:
        RequestError: code `bad-config`, a value that cannot be meant.
    """

    columns: tuple[str, ...]
    algorithms: tuple[str, ...]
    max_epsilon_per_study: float
    max_delta: float
    minimum_records: int
    maximum_records: int
    person_column: str
    sites_per_person: int
    budget_epsilon: float
    budget_delta: float
    budget_own_delta: float

    def __post_init__(self) -> None:
        known = [algorithm.value for algorithm, traits in TRAITS.items() if runs(traits)]
        strange = sorted(set(self.algorithms) - set(known))
        _need(not strange, f"algorithms: {', '.join(strange)} unknown (known: {', '.join(known)})")
        _need(len(self.columns) > 0, 'columns: name what may be used, or write ["*"] for every column')
        _need(len(self.algorithms) > 0, "algorithms: name at least one")
        for name in ("max_epsilon_per_study", "budget_epsilon"):
            _need(0 < getattr(self, name) < 1e6, f"{name} must be a number above 0")
        for name in ("max_delta", "budget_delta"):
            _need(0 < getattr(self, name) < 1, f"{name} must lie strictly between 0 and 1")
        _need(0 <= self.budget_own_delta < 1, "budget_own_delta must lie between 0 and 1")
        _need(self.minimum_records >= 1, "minimum_records must be at least 1")
        _need(
            self.minimum_records <= self.maximum_records <= MAX_RECORDS,
            f"maximum_records must lie between minimum_records and {MAX_RECORDS}",
        )
        _need(
            1 <= self.sites_per_person <= MAX_MULTIPLICITY,
            f"sites_per_person must lie between 1 and {MAX_MULTIPLICITY}",
        )

    @property
    def budget(self) -> Cost:
        """All that studies may ever spend on this site's records."""
        return Cost(
            micro_rho=micro_rho_for(self.budget_epsilon, self.budget_delta),
            atto_delta=int(self.budget_own_delta * ATTO),
        )

    def verdicts(self, plan: Plan) -> tuple[Verdict, ...]:
        """Every rule, applied to `plan`; no record is looked at."""
        return (*self._about_use(plan), *self._about_people(plan.study), *self._about_size(plan.study))

    def _about_use(self, plan: Plan) -> tuple[Verdict, ...]:
        study = plan.study
        outside = [] if ANY in self.columns else sorted(
            {column.name for column in study.columns} - set(self.columns)
        )  # fmt: skip
        return (
            Verdict(
                rule="columns",
                passed=not outside,
                text=f"columns not allowed: {', '.join(outside)}" if outside else "every column is allowed",
            ),
            Verdict(
                rule="algorithms",
                passed=plan.algorithm.value in self.algorithms,
                text=f"{plan.algorithm.value}; allowed: {', '.join(self.algorithms)}",
            ),
            Verdict(
                rule="max_epsilon_per_study",
                passed=study.epsilon <= self.max_epsilon_per_study,
                text=f"epsilon {study.epsilon:g}; at most {self.max_epsilon_per_study:g}",
            ),
            Verdict(
                rule="max_delta",
                passed=study.delta <= self.max_delta,
                text=f"delta {study.delta:g}; at most {self.max_delta:g}",
            ),
        )

    def _about_people(self, study: Study) -> tuple[Verdict, ...]:
        """Who a person is, and where else one may be, is the site's to say: the guarantee is about people."""
        stated, sites = study.person_column or "", study.max_sites_per_person
        same, enough = stated == self.person_column, sites >= self.sites_per_person
        return (
            Verdict(
                rule="person_column",
                passed=same,
                text=_person(stated)
                if same
                else f"the study says {_person(stated)}, the site {_person(self.person_column)}; "
                "both must say the same",
            ),
            Verdict(
                rule="sites_per_person",
                passed=enough,
                text=f"the study's max_sites_per_person {sites}; at least {self.sites_per_person}"
                + ("" if enough else ": raise it in the study"),
            ),
        )

    def _about_size(self, study: Study) -> tuple[Verdict, ...]:
        cohort, most = study.federation.minimum_cohort, study.max_records
        content, room = cohort <= self.minimum_records, most >= self.maximum_records
        return (
            Verdict(
                rule="minimum_records",
                passed=content,
                text=f"the study's minimum_cohort {cohort}; at most {self.minimum_records}"
                + ("" if content else ": lower it in the study, or raise the site's minimum_records"),
            ),
            Verdict(
                rule="maximum_records",
                passed=room,
                text=f"the study's max_records {most}; at least {self.maximum_records}"
                + ("" if room else ": raise it in the study, or lower the site's maximum_records"),
            ),
        )

    def require(self, plan: Plan) -> None:
        """Insist that `plan` passes every rule.

        Raises:
            RequestError: code `site-policy`, naming the rules it fails.
        """
        failed = [verdict for verdict in self.verdicts(plan) if not verdict.passed]
        if failed:
            text = "; ".join(f"{verdict.rule}: {verdict.text}" for verdict in failed)
            raise RequestError(Code.POLICY, f"the site's policy forbids this study ({text})")

    def require_enough(self, records: int) -> None:
        """Insist on the site's own minimum and maximum of usable records.

        Raises:
            RequestError: code `too-few-records` or `too-many-records`; the number is not in the message.
        """
        if records < self.minimum_records:
            raise RequestError(
                Code.TOO_FEW_RECORDS,
                f"fewer usable records than the site's minimum_records = {self.minimum_records}",
            )
        if records > self.maximum_records:
            raise RequestError(
                Code.TOO_MANY_RECORDS,
                f"more usable records than the site's maximum_records = {self.maximum_records}; "
                "raise it in site.toml",
            )


REASONS: dict[Code, pb.DeclineReason.ValueType] = {
    Code.POLICY: pb.DECLINE_REASON_POLICY,
    Code.BUDGET: pb.DECLINE_REASON_BUDGET,
    Code.TOO_FEW_RECORDS: pb.DECLINE_REASON_TOO_FEW_RECORDS,
    Code.TOO_MANY_RECORDS: pb.DECLINE_REASON_DATA,  # depends on records: analysts are not told
    Code.BAD_DATA: pb.DECLINE_REASON_DATA,
    Code.PROTOCOL: pb.DECLINE_REASON_PROTOCOL,
    Code.IDENTITY: pb.DECLINE_REASON_PROTOCOL,
    Code.VERSION: pb.DECLINE_REASON_PROTOCOL,
    Code.OVERFLOW: pb.DECLINE_REASON_PROTOCOL,
    Code.BAD_STUDY: pb.DECLINE_REASON_PROTOCOL,
    Code.BAD_CONTRIBUTION: pb.DECLINE_REASON_PROTOCOL,
    Code.CONFLICT: pb.DECLINE_REASON_PROTOCOL,
}


def reason_of(problem: EigenveilError) -> pb.DeclineReason.ValueType:
    """What the coordinator is told; the sentence stays with the site's operator."""
    return REASONS.get(problem.code, pb.DECLINE_REASON_FAILURE)


def _person(column: str) -> str:
    return f"a person is a value of column {column!r}" if column else "every row is another person"


def runs(traits: Traits) -> bool:
    """Whether a site ever answers for such an algorithm: a sum over one record would be that record."""
    return traits.private and not traits.single_records


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise RequestError(Code.BAD_CONFIG, message)
