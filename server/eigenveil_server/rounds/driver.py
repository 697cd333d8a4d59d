"""Drivers of a study's rounds: dispatch of a query, round journal, and the steps to the next query.

A query is stored first, then assigned to every site. The journal is the barrier's durable record of a round,
with charge and release in one transaction [P27]. Drivers have the steps that
differ between exact and masked rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code, InternalError, RequestError, round_label
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.rounds import Release, RoundState, RoundStatement
from eigenveil.protocol.wire import query_to_proto
from eigenveil.secure_aggregation.masking import Attempt
from eigenveil.signatures import Sign
from eigenveil.study.study import Federation
from eigenveil_common.concurrency import wait_for_tick
from eigenveil_common.files import failpoint
from eigenveil_common.rpc import INLINE_BYTES
from eigenveil_common.storage.database import Connection
from eigenveil_common.storage.ledger_store import LedgerPosition, PositionedWrite
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.rounds.open_round import OpenRound
from eigenveil_server.rounds.study_session import StudySession
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.repository import Repository
from eigenveil_server.storage.sealed import SealedRelease
from eigenveil_server.storage.study_reads import RoundAnswers, Studies

MakeEvent = Callable[[OpenRound, int], pb.StudyEvent]  # of a round and the micro-rho spent


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundAssignment:
    """An open round and the message for its sites, with the last release only if that is small."""

    opened: OpenRound
    message: pb.NextWorkResponse

    def for_site(self, site: str, stored_rounds: int) -> pb.NextWorkResponse:
        """Return the message for a site that stores the releases of `stored_rounds` rounds. The last release
        is included only if it is all that the site lacks; it fetches the others [R21]. An attempt is for its
        members [R29]."""
        assignment = pb.NextWorkResponse()
        assignment.CopyFrom(self.message)
        if stored_rounds != self.opened.round_query.round - 1:
            assignment.ClearField("release")
        if not self.opened.number_for(site):
            assignment.ClearField("attempt")
        return assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundDispatch:
    """A query about to be opened, with the event for watchers. `after` is the durable release before it.

    `due` is the cost of the attempt whose set of sites is fixed with it; None without an attempt, or if an
    earlier process fixed it.
    """

    opened: OpenRound
    query: pb.Query
    at: int
    event: pb.StudyEvent
    after: str
    due: Cost | None = None

    def write(self, change: Connection, _: LedgerPosition | None = None) -> None:
        """Open the query within the transaction `change`, and store the attempt that is `due`."""
        round_query, attempt = self.opened.round_query, self.opened.attempt
        if attempt is None or self.due is not None:
            study_writes.open_round(change, round_query, self.query.SerializeToString(), self.at)
        if attempt is not None and self.due is not None:
            study_writes.store_attempt(change, attempt, self.at)
        study_writes.add_event(change, round_query.plan_digest, self.event)
        failpoint("round-opening")

    def assignment(
        self, ledger_position: LedgerPosition, sign: Sign, seconds: float, last: pb.SealedRound | None
    ) -> RoundAssignment:
        """Return the assignment, once the dispatch is durable.

        `last` includes the query that it answers, since a site that missed that one may have another wording
        of it. It is left out where it is too large.
        """
        round_query = round_statement(self.opened.round_query, ledger_position, self.after).signed(sign)
        message = pb.NextWorkResponse(
            query=self.query,
            signed_round=pb.SignedRound(signed_json=round_query.signed_json, signature=round_query.signature),
            attempt=None if self.opened.attempt is None else signed_attempt(self.opened.attempt, sign),
            deadline_unix_ms=self.at + int(1000 * seconds),
            release=last if last is not None and last.ByteSize() <= INLINE_BYTES else None,
        )
        return RoundAssignment(opened=self.opened, message=message)


def prepare_dispatch(
    session: StudySession, repository: Repository, make_event: MakeEvent, spent: int
) -> RoundDispatch | None:
    """Return the dispatch of the session's pending query, also after a crash; None if there is none. `spent`
    is what the study has spent by then.

    Raises:
        InternalError: another query was opened as this round before.
    """
    round_query, studies = session.pending, repository.studies
    if round_query is None:
        return None
    check_same_query(studies, round_query)
    opened = OpenRound(round_query, session.plan.study.federation, earlier_answers(studies, round_query))
    opened.enter(RoundState.OPEN)
    return RoundDispatch(
        opened=opened,
        query=query_to_proto(round_query),
        at=repository.clock(),
        event=make_event(opened, spent),
        after=after(session),
    )


def check_same_query(studies: Studies, round_query: RoundQuery) -> None:
    """Raise if an earlier process opened this round with another query. Raises as `prepare_dispatch`."""
    before = studies.query_digest(round_query.plan_digest, round_query.round)
    if before not in (None, round_query.digest):
        raise InternalError(
            Code.BUG, f"{round_label(round_query.round)} was opened with another query before"
        )


def earlier_answers(studies: Studies, round_query: RoundQuery, attempt: int = 0) -> RoundAnswers:
    """Return the answers to this query, or to that attempt, from before this process, and the sites that
    declined it or the whole study."""
    earlier = studies.answers(round_query.plan_digest, round_query.round, attempt)
    return replace(earlier, declined=studies.declined(round_query.plan_digest) | earlier.declined)


def open_first(
    session: StudySession, repository: Repository, sign: Sign, make_event: MakeEvent
) -> RoundAssignment | None:
    """Open the query at which this process resumes a study; None if there is none.

    Raises:
        InternalError: as `prepare_dispatch`.
        RequestError: the noise was drawn and charged, and the draw failed.
    """
    first = prepare_dispatch(session, repository, make_event, repository.ledger.spent(session.plan.digest))
    if first is None:
        return None
    round_query = first.opened.round_query
    if (round_query.plan_digest, round_query.round) in repository.ledger.ledger.charged:
        raise RequestError(
            Code.CONFLICT,
            f"the noise draw of {round_label(round_query.round)} failed earlier and is charged; submit again",
        )
    return open_stored(first, repository, sign, session.plan.study.federation.deadline_seconds)


def open_stored(first: RoundDispatch, repository: Repository, sign: Sign, seconds: float) -> RoundAssignment:
    """Open the query at which this process resumes a study, after the stored release."""
    round_query = first.opened.round_query
    last = (
        repository.studies.released(round_query.plan_digest, round_query.round - 1)
        if round_query.round
        else None
    )
    return open_durably(first, repository, sign, seconds, last)


def open_durably(
    one: RoundDispatch, repository: Repository, sign: Sign, seconds: float, last: pb.SealedRound | None
) -> RoundAssignment:
    """Open a query, and charge the attempt that is due, if any: both durable on return, or neither."""
    ledger = repository.ledger
    if one.due is None:
        ledger.write_alongside(one.write)
    else:
        ledger.attempt(one.opened.round_query, one.due, one.write)
    failpoint("round-opened")
    return one.assignment(ledger.ledger_position, sign, seconds, last)


def signed_attempt(attempt: Attempt, sign: Sign) -> pb.SignedAttempt:
    """Return the members of an attempt, signed with the release key; the same bytes each time."""
    signed = attempt.signed(sign)
    return pb.SignedAttempt(signed_json=signed.signed_json, signature=signed.signature)


def round_statement(
    round_query: RoundQuery, ledger_position: LedgerPosition, after: str, release: str = ""
) -> RoundStatement:
    """Return the statement of a round whose last ledger row is `ledger_position` [R21]."""
    return RoundStatement(
        plan=round_query.plan_digest,
        round=round_query.round,
        query=round_query.digest,
        after=after,
        release=release,
        ledger=ledger_position[0],
        size=ledger_position[1],
    )


def after(session: StudySession) -> str:
    """Return the digest of the last release; empty before the first."""
    return session.releases[-1].digest if session.releases else ""


Book = Callable[[RoundQuery, PositionedWrite], None]


@dataclass(slots=True, kw_only=True, eq=False)
class RoundJournal:
    """`eigenveil.barrier.Journal` of one round, whose set of sites is frozen.

    `macs` are the HMACs of the received answers, `absent` the sites without one, and `query` is the round's
    query. `after` is the digest of the release before, `event` what watchers see of this one. `sign` signs
    the round statement. `book` writes the ledger's row together with the rest. `attempt` is the number of the
    answered attempt, 0 for exact answers. `last` is the sealed release that goes to sites with the next
    query; None before it is durable, and where it is too large.
    """

    study: str
    attempt: int
    macs: Mapping[str, bytes]
    absent: Mapping[str, str]
    query: pb.Query
    after: str
    sign: Sign
    event: pb.StudyEvent
    book: Book
    repository: Repository
    last: pb.SealedRound | None = None

    def sealed(self, round: int) -> Release | None:
        found = self.repository.studies.sealed(self.study, round)
        return None if found is None else found.release

    def seal(self, round_query: RoundQuery, release: Release) -> None:
        """Charge the cost, and store the release, its statement [R21] and the answers not stored yet.

        All is one transaction, begun on a tick, since readers see it as soon as it is durable. Nothing reads
        the values before: the number of stored bytes follows from the query.
        """
        statement = None

        def write(change: Connection, tip: LedgerPosition) -> None:
            nonlocal statement
            statement = round_statement(round_query, tip, self.after, release.digest).signed(self.sign)
            study_writes.release_round(
                change, self.study, release, statement, self.repository.clock(),
                attempt=self.attempt, macs=self.macs, absent=self.absent,
            )  # fmt: skip
            study_writes.add_event(change, self.study, self.event)
            failpoint("round-sealing")

        wait_for_tick()
        self.book(round_query, write)
        failpoint("round-sealed")
        if statement is not None and release.values.nbytes <= INLINE_BYTES:  # a larger one is fetched
            self.last = SealedRelease(release=release, signed_round=statement).message()
            self.last.query.CopyFrom(self.query)

    def charge(self, round_query: RoundQuery) -> None:
        """Charge the cost of a failed draw, and store which sites had answered."""

        def write(change: Connection, tip: LedgerPosition) -> None:
            study_writes.add_answers(change, self.study, round_query.round, self.attempt, self.macs)

        self.book(round_query, write)
        failpoint("failure-charged")


OpenNextRound = Callable[
    [pb.SealedRound | None], RoundAssignment | None
]  # given the release if it is small enough to send


class RoundDriver(Protocol):
    """Steps from one open query to the next."""

    def first(self, session: StudySession) -> RoundAssignment | None:
        """Open the query at which this process resumes a study; None if none is left. Off the event loop."""

    async def answered(self, assignment: RoundAssignment) -> RoundAssignment:
        """Wait for all awaited answers or for the deadline; return the latest assignment."""

    def spent(self, round_query: RoundQuery, session: StudySession) -> int:
        """Return the micro-rho that the study has spent once this query's release is out."""

    def book(self, round_query: RoundQuery, also: PositionedWrite) -> None:
        """Write the ledger's row of a release or of a failed draw, if it has one, together with `also`, in
        one transaction."""

    def following(self, assignment: RoundAssignment, session: StudySession) -> OpenNextRound:
        """Return the function that durably opens the query after this release; it returns None if there is
        none. Runs off the event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactDriver:
    """Driver of rounds with exact sums; a round is charged with its release, or with the failed draw."""

    federation: Federation
    repository: Repository
    sign: Sign
    make_event: MakeEvent

    def first(self, session: StudySession) -> RoundAssignment | None:
        return open_first(session, self.repository, self.sign, self.make_event)

    async def answered(self, assignment: RoundAssignment) -> RoundAssignment:
        await assignment.opened.complete(self.federation.deadline_seconds)
        return assignment

    def spent(self, round_query: RoundQuery, session: StudySession) -> int:
        return session.spent.micro_rho + round_query.cost.micro_rho

    def book(self, round_query: RoundQuery, also: PositionedWrite) -> None:
        self.repository.ledger.charge_round(round_query, also)

    def following(self, assignment: RoundAssignment, session: StudySession) -> OpenNextRound:
        def open_next(last: pb.SealedRound | None) -> RoundAssignment | None:
            found = prepare_dispatch(session, self.repository, self.make_event, session.spent.micro_rho)
            seconds = self.federation.deadline_seconds
            return None if found is None else open_durably(found, self.repository, self.sign, seconds, last)

        return open_next
