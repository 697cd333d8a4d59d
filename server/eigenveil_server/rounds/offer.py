"""A question opened: durable first, then as every site is offered it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code, InternalError, RequestError, spoken
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.round import RoundState
from eigenveil.protocol.statements import RoundStatement
from eigenveil.protocol.wire import query_to_proto
from eigenveil.secure_aggregation.attempt import Attempt
from eigenveil.signed import Sign
from eigenveil_common.failpoints import failpoint
from eigenveil_common.rpc import INLINE_BYTES
from eigenveil_common.storage.database import Connection
from eigenveil_common.storage.ledger_store import Tip
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.following.session import StudySession
from eigenveil_server.rounds.open_round import OpenRound
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.repository import Repository
from eigenveil_server.storage.study_reads import Answers, Studies

Tell = Callable[[OpenRound, int], pb.StudyEvent]  # once so many micro-rho are spent


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An open round, and what its sites get; of the last release only if that is small. `again`: it was open
    in an earlier process, which ended before its release."""

    opened: OpenRound
    message: pb.NextWorkResponse
    again: bool

    def to(self, site: str, held: int) -> pb.NextWorkResponse:
        """What a site gets that holds the releases of `held` rounds: the last one only if that is all that it
        lacks. It fetches what else it needs [R21]. An attempt is for its members [R29]."""
        offer = pb.NextWorkResponse()
        offer.CopyFrom(self.message)
        if held != self.opened.asked.round - 1:
            offer.ClearField("release")
        if not self.opened.number_for(site):
            offer.ClearField("attempt")
        return offer


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A question about to be opened, with what watchers see of that; `after` is the release before it.

    `due` is what an attempt at it costs whose set of sites is fixed with it; None if none is, or an earlier
    process did."""

    opened: OpenRound
    query: pb.Query
    at: int
    event: pb.StudyEvent
    after: str
    again: bool
    due: Cost | None = None

    def write(self, change: Connection) -> None:
        """Open it within the transaction `change`, which also charges what is `due`."""
        asked, attempt = self.opened.asked, self.opened.attempt
        if attempt is None or self.due is not None:
            study_writes.open_round(change, asked, self.query.SerializeToString(), self.at)
        if attempt is not None and self.due is not None:
            study_writes.fix_set(change, attempt, self.at)
        study_writes.add_event(change, asked.plan_digest, self.event)

    def offer(self, tip: Tip, sign: Sign, seconds: float, last: pb.SealedRound | None) -> Offer:
        """What sites get once that is durable. `last`, with the question that it answers (who missed that one
        may have it in other words), is left out where it is too large to come with the next one."""
        asked = stated(self.opened.asked, tip, self.after).signed(sign)
        message = pb.NextWorkResponse(
            query=self.query,
            asked=pb.SignedRound(said=asked.said, signature=asked.signature),
            attempt=None if self.opened.attempt is None else signed_attempt(self.opened.attempt, sign),
            deadline_unix_ms=self.at + int(1000 * seconds),
            release=last if last is not None and last.ByteSize() <= INLINE_BYTES else None,
        )
        return Offer(opened=self.opened, message=message, again=self.again)


def opening(session: StudySession, repository: Repository, tell: Tell, spent: int) -> Opening | None:
    """What opens the session's pending question, or opens it again after a crash; None if it asks nothing
    more. `spent` is what the study has spent by then.

    Raises:
        InternalError: another question was opened as this round before.
    """
    asked, studies = session.pending, repository.studies
    if asked is None:
        return None
    again = opened_before(studies, asked)
    opened = OpenRound(asked, session.plan.study.federation, said_before(studies, asked))
    opened.enter(RoundState.OPEN)
    return Opening(
        opened=opened,
        query=query_to_proto(asked),
        at=repository.clock(),
        event=tell(opened, spent),
        after=after(session),
        again=again,
    )


def opened_before(studies: Studies, asked: RoundQuery) -> bool:
    """Whether this question was opened by an earlier process. Raises as `opening`."""
    before = studies.query_digest(asked.plan_digest, asked.round)
    if before not in (None, asked.digest):
        raise InternalError(Code.BUG, f"{spoken(asked.round)} was opened with another query before")
    return before is not None


def said_before(studies: Studies, asked: RoundQuery, attempt: int = 0) -> Answers:
    """Who answered a question, or that attempt at it, before this process started, and who declined it or the
    whole study."""
    earlier = studies.answers(asked.plan_digest, asked.round, attempt)
    return replace(earlier, declined=studies.declined(asked.plan_digest) | earlier.declined)


def open_first(session: StudySession, repository: Repository, sign: Sign, tell: Tell) -> Offer | None:
    """Open the question at which this process takes up a study; None if it asks nothing more.

    Raises:
        InternalError: as `opening`.
        RequestError: the question was drawn for and paid, and the draw failed.
    """
    first = opening(session, repository, tell, repository.ledger.spent(session.plan.digest))
    if first is None:
        return None
    asked = first.opened.asked
    if (asked.plan_digest, asked.round) in repository.ledger.ledger.charged:
        raise RequestError(Code.CONFLICT, f"the draw of {spoken(asked.round)} failed in an earlier process")
    return open_alone(first, repository, sign, session.plan.study.federation.deadline_seconds)


def open_alone(first: Opening, repository: Repository, sign: Sign, seconds: float) -> Offer:
    """Open a question in a transaction of its own."""
    with repository.store.writer.transaction() as change:
        first.write(change)
        failpoint("round-opening")
    failpoint("round-opened")
    asked = first.opened.asked
    last = repository.studies.released(asked.plan_digest, asked.round - 1) if asked.round else None
    return first.offer(repository.ledger.tip, sign, seconds, last)


def signed_attempt(attempt: Attempt, sign: Sign) -> pb.SignedAttempt:
    """For whom answers are masked, under the release key: the same bytes whenever it is said."""
    signed = attempt.signed(sign)
    return pb.SignedAttempt(said=signed.said, signature=signed.signature)


def stated(asked: RoundQuery, tip: Tip, after: str, release: str = "") -> RoundStatement:
    """What is stated of a round when the ledger's last row is `tip` [R21]."""
    return RoundStatement(
        plan=asked.plan_digest, round=asked.round, query=asked.digest, after=after, release=release,
        ledger=tip[0], size=tip[1],
    )  # fmt: skip


def after(session: StudySession) -> str:
    """The digest of the last release; empty before the first."""
    return session.releases[-1].digest if session.releases else ""
