"""What leaves a site when it does not answer: one word, which says nothing that depends on a record.

Whether the policy, the budget or the protocol forbids an answer follows from plans and settings. Everything
else (too few records, a file that cannot be read, a defect that some record woke) is one and the same word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eigenveil.errors import Code, EigenveilError
from eigenveil_client.records.tables.table import BadRecords
from eigenveil_proto.v1 import eigenveil_pb2 as pb

REASONS: dict[Code, pb.DeclineReason.ValueType] = {
    Code.POLICY: pb.DECLINE_REASON_POLICY,
    Code.BUDGET: pb.DECLINE_REASON_BUDGET,
    Code.PROTOCOL: pb.DECLINE_REASON_PROTOCOL,
    Code.IDENTITY: pb.DECLINE_REASON_PROTOCOL,
    Code.VERSION: pb.DECLINE_REASON_PROTOCOL,
    Code.OVERFLOW: pb.DECLINE_REASON_PROTOCOL,
    Code.BAD_STUDY: pb.DECLINE_REASON_PROTOCOL,
    Code.BAD_CONTRIBUTION: pb.DECLINE_REASON_PROTOCOL,
    Code.CONFLICT: pb.DECLINE_REASON_PROTOCOL,
}
# Their sentences are made before a record is read; all others are logged as their code alone.
TELLABLE = frozenset({Code.POLICY, Code.PROTOCOL, Code.IDENTITY, Code.VERSION, Code.OVERFLOW, Code.BAD_STUDY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A refusal to send. The coordinator is told the reason, the site's log the code."""

    plan_digest: str
    round: int
    reason: pb.DeclineReason.ValueType


def reason_of(problem: EigenveilError) -> pb.DeclineReason.ValueType:
    """What the coordinator is told; the sentence stays with the site's operator."""
    return REASONS.get(problem.code, pb.DECLINE_REASON_FAILURE)


def told(problem: EigenveilError) -> dict[str, Any]:
    """What a log line says of a refusal: sentences only about plans, queries and site.toml."""
    if isinstance(problem, BadRecords):
        return {"about": problem.about}
    return {"detail": str(problem)} if problem.code in TELLABLE else {}
