"""Driver of masked rounds: their sets of sites are chosen, stored and charged, then dispatched [R29] [P33].

The order never changes: no site is awaited, or the deadline is over -> the stage is closed -> the next set is
chosen -> one transaction: the attempt is stored, its cost charged, the answers to the last one noted -> its
members are notified. So whatever a member may send is charged before, and no attempt number has two sets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from eigenveil.accounting.zcdp import NO_COST, Cost
from eigenveil.errors import Code, InternalError, RequestError, round_label
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.query_limits import attempt_cost
from eigenveil.protocol.wire import query_to_proto
from eigenveil.queries import batch_of
from eigenveil.secure_aggregation.masking import Attempt
from eigenveil.signatures import Sign
from eigenveil.study.study import Study
from eigenveil_common.storage.database import Connection
from eigenveil_common.storage.ledger_store import LedgerPosition, PositionedWrite
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.process import Compute
from eigenveil_server.rounds.driver import (
    MakeEvent,
    OpenNextRound,
    RoundAssignment,
    RoundDispatch,
    after,
    check_same_query,
    earlier_answers,
    open_durably,
    open_stored,
    signed_attempt,
)
from eigenveil_server.rounds.masked_round import MaskedRound
from eigenveil_server.rounds.study_session import StudySession
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.repository import Repository
from eigenveil_server.storage.states import denied_sites


def cost_of_attempt(round_query: RoundQuery, number: int, repository: Repository) -> Cost:
    """Return the cost of attempt `number`. A pass is charged as often as its most attempted earlier batch
    was.

    An attempt costs as much as its query, but a pass once an attempt number [P33].

    Privacy: [P33] whatever members send of an attempt counts as released.
    """
    batch, study = batch_of(round_query.query), round_query.plan_digest
    if batch is None or batch.index == 0:
        return attempt_cost(round_query.priced.cost, number)
    paid = repository.studies.most_attempts(study, batch.first_round, round_query.round)
    return attempt_cost(
        round_query.priced.cost, number, paid, repository.ledger.ledger.paid[study, batch.first_round]
    )


NO_KEY_CARDS: Mapping[str, str] = MappingProxyType({})


def prepare_masked_dispatch(
    session: StudySession,
    repository: Repository,
    make_event: MakeEvent,
    eligible: Mapping[str, str] = NO_KEY_CARDS,
) -> RoundDispatch | None:
    """Return the dispatch of the session's pending query; None if there is none. The first attempt is for the
    sites in `eligible`, by their key cards, if they suffice. A stored attempt is resumed.

    The dispatch is for the set of the round before, without a set, or after a crash with the stored attempt
    [R29].

    Raises:
        InternalError: another query was opened as this round before, or the stored attempt was changed.
    """
    round_query, studies = session.pending, repository.studies
    if round_query is None:
        return None
    check_same_query(studies, round_query)
    attempts = studies.attempts(round_query.plan_digest, round_query.round)
    earlier = earlier_answers(studies, round_query, len(attempts))
    federation, denied, due = session.plan.study.federation, denied_sites(repository.store.reader), None
    if not attempts:
        out = earlier.declined.keys() | denied
        eligible = {site: key_card for site, key_card in eligible.items() if site not in out}
        if eligible and not federation.lacking(eligible):
            attempts, due = (
                [Attempt.at(round_query, 1, eligible)],
                cost_of_attempt(round_query, 1, repository),
            )
    opened = MaskedRound(round_query, federation, earlier, attempts[-1] if attempts else None, attempts[:-1])
    opened.deny(denied)
    return RoundDispatch(
        opened=opened,
        query=query_to_proto(round_query),
        at=repository.clock(),
        event=make_event(
            opened, repository.ledger.spent(round_query.plan_digest) + (due or NO_COST).micro_rho
        ),
        after=after(session),
        due=due,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedDriver:
    """`RoundDriver` of rounds that are charged for each attempt, before it.

    `make_event` makes the event of a stage. `waiting` returns the sites where a person has not decided.
    `check` raises if the study was cancelled. `on_next_attempt` is called with each assignment that replaces
    the last.
    """

    study: Study
    repository: Repository
    compute: Compute
    sign: Sign
    make_event: MakeEvent
    waiting: Callable[[], Collection[str]]
    check: Callable[[], None]
    on_next_attempt: Callable[[RoundAssignment], None]

    def first(self, session: StudySession) -> RoundAssignment | None:
        """Open the query at which this process resumes a study. Raises as `prepare_masked_dispatch`."""
        first, seconds = (
            prepare_masked_dispatch(session, self.repository, self.make_event),
            self.study.federation.deadline_seconds,
        )
        return None if first is None else open_stored(first, self.repository, self.sign, seconds)

    async def answered(self, assignment: RoundAssignment) -> RoundAssignment:
        """Return the assignment whose answers are complete: of this attempt, or of a later one.

        Raises:
            RequestError: code `study-failed`: too few sites are left, or no further attempt is allowed.
        """
        while True:
            stage = stage_of(assignment)
            overdue = not await stage.complete(self.study.federation.deadline_seconds)
            await stage.close()
            self.check()
            if stage.is_complete:
                return assignment
            assignment = await self._next(assignment, stage, overdue)
            self.on_next_attempt(assignment)
            self.check()

    async def _next(self, assignment: RoundAssignment, last: MaskedRound, overdue: bool) -> RoundAssignment:
        """Return the assignment of the next set, once that is durable and charged; `overdue` after the
        deadline."""
        store, round_query = self.repository.store, last.round_query
        last.deny(await store.read(denied_sites, store.reader))
        eligible = last.eligible(overdue=overdue)
        self._check_able(last, eligible)
        due = await self.compute.run(cost_of_attempt, round_query, last.number + 1, self.repository)
        attempt = Attempt.at(round_query, last.number + 1, eligible)
        stage = last.next_stage(attempt)
        stage.take_over(last)  # for the event of the watchers
        spent = self.repository.ledger.spent(round_query.plan_digest) + due.micro_rho
        at, event = self.repository.clock(), self.make_event(stage, spent)
        await self.compute.run(self._fix, last, attempt, due, at, event)
        last.settle(durable=True)
        stage.take_over(last)  # other sites may be ready by now
        message = pb.NextWorkResponse()
        message.CopyFrom(assignment.message)
        message.attempt.CopyFrom(signed_attempt(attempt, self.sign))
        message.deadline_unix_ms = at + int(1000 * self.study.federation.deadline_seconds)
        return replace(assignment, opened=stage, message=message)

    def _check_able(self, last: MaskedRound, eligible: Collection[str]) -> None:
        """Raise RequestError unless a next attempt is allowed for these sites."""
        made, round_query = last.number, last.round_query
        reasons = last.reasons(self.waiting())
        if made and made == self.study.attempts:
            raise RequestError(
                Code.STUDY_FAILED,
                f"{round_label(round_query.round)} lost {', '.join(last.missing_members())} "
                f"in attempt {made} of {made}, and what was attempted stays charged ({reasons}); "
                f"{self.study.federation.further_attempts}",
            )
        try:
            self.study.federation.check_present(eligible, made)
        except RequestError as problem:
            raise RequestError(
                problem.code, f"{round_label(round_query.round)}: {problem} ({reasons})"
            ) from problem

    def _fix(self, last: MaskedRound, attempt: Attempt, due: Cost, at: int, event: pb.StudyEvent) -> None:
        """Store and charge the attempt after the `last`, off the event loop and in one transaction."""

        def write(change: Connection, tip: LedgerPosition) -> None:
            study_writes.add_answers(change, attempt.plan, attempt.round, last.number, last.macs())
            study_writes.store_attempt(change, attempt, at)
            study_writes.add_event(change, attempt.plan, event)

        self.repository.ledger.attempt(last.round_query, due, write)

    def spent(self, round_query: RoundQuery, session: StudySession) -> int:
        return self.repository.ledger.spent(round_query.plan_digest)

    def book(self, round_query: RoundQuery, also: PositionedWrite) -> None:
        """Write a release without a charge: its attempts are charged already."""
        self.repository.ledger.write_alongside(also)

    def following(self, assignment: RoundAssignment, session: StudySession) -> OpenNextRound:
        """Return the function that opens the next query, for the same set and other ready sites: that saves a
        round trip."""
        eligible = stage_of(assignment).eligible()

        def open_next(last: pb.SealedRound | None) -> RoundAssignment | None:
            found = prepare_masked_dispatch(session, self.repository, self.make_event, eligible)
            seconds = self.study.federation.deadline_seconds
            return None if found is None else open_durably(found, self.repository, self.sign, seconds, last)

        return open_next


def stage_of(assignment: RoundAssignment) -> MaskedRound:
    """Return the masked round of an assignment."""
    if not isinstance(assignment.opened, MaskedRound):
        raise InternalError(Code.BUG, "a masked driver got a round with exact answers")
    return assignment.opened
