"""What a site agrees to, decided before any study: frozen rules that a plan passes or fails.

Every rule is about the plan, never about the records, so a refusal says nothing about a patient.
"""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil.accounting import Cost, micro_rho_for
from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil.plan import Plan
from eigenveil.study import Algorithm
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

    `minimum_records` binds beside the study's own minimum cohort; the larger holds.

    Raises:
        RequestError: code `bad-config`, a value that cannot be meant.
    """

    columns: tuple[str, ...]
    algorithms: tuple[str, ...]
    max_epsilon_per_study: float
    max_delta: float
    minimum_records: int
    budget_epsilon: float
    budget_delta: float

    def __post_init__(self) -> None:
        known = [a.value for a in Algorithm if a is not Algorithm.AUTO]
        strange = sorted(set(self.algorithms) - set(known))
        _need(not strange, f"algorithms: {', '.join(strange)} unknown (known: {', '.join(known)})")
        _need(len(self.columns) > 0, 'columns: name what may be used, or write ["*"] for every column')
        _need(len(self.algorithms) > 0, "algorithms: name at least one")
        for name in ("max_epsilon_per_study", "budget_epsilon"):
            _need(0 < getattr(self, name) < 1e6, f"{name} must be a number above 0")
        for name in ("max_delta", "budget_delta"):
            _need(0 < getattr(self, name) < 1, f"{name} must lie strictly between 0 and 1")
        _need(self.minimum_records >= 1, "minimum_records must be at least 1")

    @property
    def budget(self) -> Cost:
        """All that studies may ever spend on this site's records."""
        return Cost(micro_rho=micro_rho_for(self.budget_epsilon, self.budget_delta))

    def minimum(self, plan: Plan) -> int:
        """The least number of records this site answers with."""
        return max(self.minimum_records, plan.study.federation.minimum_cohort)

    def verdicts(self, plan: Plan) -> tuple[Verdict, ...]:
        """Every rule, applied to `plan`."""
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

    def require(self, plan: Plan) -> None:
        """Insist that `plan` passes every rule.

        Raises:
            RequestError: code `site-policy`, naming the rules it fails.
        """
        failed = [verdict for verdict in self.verdicts(plan) if not verdict.passed]
        if failed:
            text = "; ".join(f"{verdict.rule}: {verdict.text}" for verdict in failed)
            raise RequestError(Code.POLICY, f"the site's policy forbids this study ({text})")

    def require_enough(self, records: int, plan: Plan) -> None:
        """Insist on the minimum cohort and on the study's public maximum.

        Raises:
            RequestError: code `too-few-records` or `bad-data`; the number is not in the message.
        """
        if records < self.minimum(plan):
            raise RequestError(
                Code.TOO_FEW_RECORDS,
                f"fewer than the {self.minimum(plan)} usable records that this study and this site require",
            )
        if records > plan.study.max_records:
            raise RequestError(
                Code.BAD_DATA,
                f"more than the study's max_records = {plan.study.max_records}; the analyst must raise it",
            )


REASONS: dict[Code, pb.DeclineReason.ValueType] = {
    Code.POLICY: pb.DECLINE_REASON_POLICY,
    Code.BUDGET: pb.DECLINE_REASON_BUDGET,
    Code.TOO_FEW_RECORDS: pb.DECLINE_REASON_TOO_FEW_RECORDS,
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


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise RequestError(Code.BAD_CONFIG, message)
