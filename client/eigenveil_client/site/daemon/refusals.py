"""What leaves a site when it does not answer: one word, which says nothing that depends on a record.

Whether the policy, the budget or the protocol forbids an answer follows from plans and settings, and why a
person declined is what that person chose to say. Everything else (too few records, a file that cannot be
read, a defect that some record woke) is one and the same word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil.study.consent import DeclineWord
from eigenveil_client.records.tables.table import BadRecords
from eigenveil_client.site.quality import PoorColumns
from eigenveil_proto.v1 import eigenveil_pb2 as pb

REASONS: dict[Code, pb.DeclineReason.ValueType] = {
    Code.POLICY: pb.DECLINE_REASON_POLICY,
    Code.BUDGET: pb.DECLINE_REASON_BUDGET,
    Code.UNSIGNED: pb.DECLINE_REASON_POLICY,
    Code.UNCONFIRMED: pb.DECLINE_REASON_POLICY,
    Code.AUTHORIZATION_EXPIRED: pb.DECLINE_REASON_POLICY,
    Code.AUTHORIZATION: pb.DECLINE_REASON_PROTOCOL,
    Code.PROTOCOL: pb.DECLINE_REASON_PROTOCOL,
    Code.IDENTITY: pb.DECLINE_REASON_PROTOCOL,
    Code.VERSION: pb.DECLINE_REASON_PROTOCOL,
    Code.OVERFLOW: pb.DECLINE_REASON_PROTOCOL,
    Code.BAD_STUDY: pb.DECLINE_REASON_PROTOCOL,
    Code.BAD_CONTRIBUTION: pb.DECLINE_REASON_PROTOCOL,
    Code.CONFLICT: pb.DECLINE_REASON_PROTOCOL,
}
PERSONS: dict[DeclineWord, pb.DeclineReason.ValueType] = {
    DeclineWord.PURPOSE: pb.DECLINE_REASON_PERSON_PURPOSE,
    DeclineWord.COLUMNS: pb.DECLINE_REASON_PERSON_COLUMNS,
    DeclineWord.ANALYST: pb.DECLINE_REASON_PERSON_ANALYST,
    DeclineWord.BUDGET: pb.DECLINE_REASON_PERSON_BUDGET,
    DeclineWord.TIMING: pb.DECLINE_REASON_PERSON_TIMING,
    DeclineWord.UNSTATED: pb.DECLINE_REASON_PERSON_UNSTATED,
}
# Their sentences are made before a record is read; all others are logged as their code alone.
TELLABLE = frozenset({
    Code.POLICY, Code.PROTOCOL, Code.IDENTITY, Code.VERSION, Code.OVERFLOW, Code.BAD_STUDY,
    Code.UNSIGNED, Code.UNCONFIRMED, Code.AUTHORIZATION, Code.AUTHORIZATION_EXPIRED,
})  # fmt: skip


class DeclinedByPerson(RequestError):
    """A person declined or withdrew this study, and may have said why; its analyst may read `text`."""

    def __init__(self, word: DeclineWord, text: str) -> None:
        super().__init__(Code.POLICY, f"a person here declined this study: {word.value}")
        self.word = word
        self.text = text


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A refusal to send: of a round, or as round 0 of a study that has not begun. The coordinator is told
    reason and text, the site's log the code."""

    plan_digest: str
    round: int
    reason: pb.DeclineReason.ValueType
    text: str = ""


def refusal_of(problem: EigenveilError, plan_digest: str, round: int) -> Refusal:
    """What the coordinator is told; the sentence stays with the site's operator."""
    if isinstance(problem, DeclinedByPerson):
        reason, text = PERSONS[problem.word], problem.text
    else:
        reason, text = REASONS.get(problem.code, pb.DECLINE_REASON_FAILURE), ""
    return Refusal(plan_digest=plan_digest, round=round, reason=reason, text=text)


def told(problem: EigenveilError) -> dict[str, Any]:
    """What a log line says of a refusal: sentences only about plans, queries and site.toml."""
    if isinstance(problem, BadRecords) and problem.kind:
        return {"about": problem.about, "type": problem.kind}
    if isinstance(problem, BadRecords | PoorColumns):
        return {"about": problem.about}
    return {"detail": str(problem)} if problem.code in TELLABLE else {}
