"""The states of a study and the reasons of a decline, between words, messages and rows."""

from __future__ import annotations

from enum import Enum

from eigenveil.errors import Code, PeerError
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


# Whether any other reason holds can depend on records, so nobody beyond the operator is told which.
SHOWN = frozenset({"policy", "budget", "protocol"})


def decline_word(reason: int) -> str:
    """The word for an enumerated reason.

    Raises:
        PeerError: no reason, or one that this version does not know.
    """
    if reason not in DECLINES:
        raise PeerError(Code.PROTOCOL, f"decline reason {reason} is unknown here; send a known one")
    return DECLINES[reason]


def shown(declined: str) -> tuple[str, ...]:
    """What analysts are told of a site that declined: nothing of a reason that its records may decide."""
    return ("declined", declined) if declined in SHOWN else ("declined",)
