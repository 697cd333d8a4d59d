"""A question opened: durable first, then as every site is offered it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eigenveil.errors import Code, InternalError, spoken
from eigenveil.protocol.round import RoundState
from eigenveil.protocol.statements import Sign
from eigenveil.protocol.wire import query_to_proto
from eigenveil.session import Session
from eigenveil_common.failpoints import failpoint
from eigenveil_common.rpc import INLINE_BYTES
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.repository import Repository
from eigenveil_server.storage.study_reads import Studies
from eigenveil_server.studies.journal import state
from eigenveil_server.studies.open_round import OpenRound

Tell = Callable[[OpenRound, RoundState], pb.StudyEvent]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An open round, and what its sites get; of the last release only if that is small."""

    opened: OpenRound
    message: pb.NextWorkResponse

    def to(self, held: int) -> pb.NextWorkResponse:
        """What a site gets that holds the releases of `held` rounds: the last one only if that is all that it
        lacks. It fetches what else it needs [R21]."""
        offer = pb.NextWorkResponse()
        offer.CopyFrom(self.message)
        if held != self.opened.asked.round - 1:
            offer.ClearField("release")
        return offer


def open_next(session: Session, repository: Repository, sign: Sign, tell: Tell) -> Offer | None:
    """Open the session's pending question, or open it again after a crash; None if it asks nothing more.

    Raises:
        InternalError: another question was opened as this round before.
    """
    asked, studies = session.pending, repository.studies
    if asked is None:
        return None
    study, federation = asked.plan_digest, session.plan.study.federation
    if studies.query_digest(study, asked.round) not in (None, asked.digest):
        raise InternalError(Code.BUG, f"{spoken(asked.round)} was opened with another query before")
    opened = OpenRound(asked, federation, studies.answers(study, asked.round))
    opened.enter(RoundState.OPEN)
    message, now = query_to_proto(asked), repository.clock()
    event = tell(opened, opened.state)
    with repository.store.writer.transaction() as change:
        study_writes.open_round(change, asked, message.SerializeToString(), now)
        study_writes.add_event(change, study, event)
        failpoint("round-opening")
    failpoint("round-opened")
    stated = state(repository.ledger, study, asked.round, asked.digest, after(session)).signed(sign)
    return Offer(
        opened=opened,
        message=pb.NextWorkResponse(
            query=message,
            asked=pb.SignedRound(said=stated.said, signature=stated.signature),
            deadline_unix_ms=now + int(1000 * federation.deadline_seconds),
            release=_last_released(studies, study, asked.round - 1) if asked.round else None,
        ),
    )


def _last_released(studies: Studies, study: str, round: int) -> pb.SealedRound | None:
    """What sites need to compute the next question [R21], with the question that it answers: who missed
    that one may have it in other words. None where it is too large to come with the next one."""
    released = studies.released(study, round)
    if released is None:
        raise InternalError(Code.BUG, f"{spoken(round)} was fed to the study and is not stored")
    return released if released.ByteSize() <= INLINE_BYTES else None


def after(session: Session) -> str:
    """The digest of the last release; empty before the first."""
    return session.releases[-1].digest if session.releases else ""
