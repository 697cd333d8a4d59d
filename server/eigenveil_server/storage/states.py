"""The states of a study and the reasons of a decline, between words, messages and rows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.study.consent import DeclineWord, checked_text
from eigenveil_proto.v1 import eigenveil_pb2 as pb


class StudyState(Enum):
    """AWAITING the operator's word, if it needs one; RUNNING until it ends, in one of three ways."""

    AWAITING = "awaiting"
    RUNNING = "running"
    RELEASED = "released"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self not in (StudyState.AWAITING, StudyState.RUNNING)

    @property
    def proto(self) -> pb.StudyState.ValueType:
        """The same state in a message."""
        return STATES[self]


STATES: dict[StudyState, pb.StudyState.ValueType] = {
    StudyState.AWAITING: pb.STUDY_STATE_AWAITING_APPROVAL,
    StudyState.RUNNING: pb.STUDY_STATE_RUNNING,
    StudyState.RELEASED: pb.STUDY_STATE_RELEASED,
    StudyState.FAILED: pb.STUDY_STATE_FAILED,
    StudyState.CANCELLED: pb.STUDY_STATE_CANCELLED,
}

DECLINES: dict[int, str] = {
    pb.DECLINE_REASON_POLICY: "policy",
    pb.DECLINE_REASON_BUDGET: "budget",
    pb.DECLINE_REASON_PROTOCOL: "protocol",
    pb.DECLINE_REASON_FAILURE: "failure",
}
PERSONS: dict[int, DeclineWord] = {
    pb.DECLINE_REASON_PERSON_PURPOSE: DeclineWord.PURPOSE,
    pb.DECLINE_REASON_PERSON_COLUMNS: DeclineWord.COLUMNS,
    pb.DECLINE_REASON_PERSON_ANALYST: DeclineWord.ANALYST,
    pb.DECLINE_REASON_PERSON_BUDGET: DeclineWord.BUDGET,
    pb.DECLINE_REASON_PERSON_TIMING: DeclineWord.TIMING,
    pb.DECLINE_REASON_PERSON_UNSTATED: DeclineWord.UNSTATED,
}


# Whether any other reason holds can depend on records, so nobody beyond the operator is told which. A
# person's word is what that person chose to say.
SHOWN = frozenset({"policy", "budget", "protocol", *DeclineWord})


@dataclass(frozen=True, slots=True, kw_only=True)
class Decline:
    """Why a site declines, and whether a person says so; `text` is what that person wrote."""

    reason: str
    person: bool
    text: str


def decline_of(request: pb.DeclineRequest) -> Decline:
    """Why a site declines.

    Raises:
        PeerError: no reason, or one that this version does not know; or a text that cannot be shown.
    """
    reason, text = request.reason, request.text
    if reason not in DECLINES and reason not in PERSONS:
        raise PeerError(Code.PROTOCOL, f"decline reason {reason} is unknown here; send a known one")
    if reason in DECLINES:
        if text:
            raise PeerError(Code.PROTOCOL, "only a person's decline has a text")
        return Decline(reason=DECLINES[reason], person=False, text="")
    try:
        return Decline(reason=PERSONS[reason].value, person=True, text=checked_text(text))
    except RequestError as problem:
        raise PeerError(Code.PROTOCOL, f"the text of a decline: {problem}") from problem


def shown(declined: str) -> tuple[str, ...]:
    """What analysts are told of a site that declined: nothing of a reason that its records may decide."""
    return ("declined", declined) if declined in SHOWN else ("declined",)
