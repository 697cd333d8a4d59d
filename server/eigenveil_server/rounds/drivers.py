"""Drivers of a study's rounds, central and masked: the steps from one query to the next, in the order of
`eigenveil.protocol.rounds.TRANSITIONS`. `round` states what each step means."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

from eigenveil.accounting.zcdp import NO_COST, Cost
from eigenveil.errors import Code, InternalError, RequestError, round_label
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.query_limits import attempt_cost
from eigenveil.protocol.wire import query_to_proto
from eigenveil.queries import batch_of
from eigenveil.secure_aggregation.masking import Attempt
from eigenveil.signatures import Sign
from eigenveil_common.files import failpoint
from eigenveil_common.rpc import INLINE_BYTES
from eigenveil_common.storage.database import Connection
from eigenveil_common.storage.ledger_store import LedgerPosition
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.process import Compute
from eigenveil_server.rounds.round import Round
from eigenveil_server.rounds.sealing import round_statement
from eigenveil_server.rounds.study_session import StudySession
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.repository import Repository
from eigenveil_server.storage.states import denied_sites
from eigenveil_server.storage.study_reads import RoundAnswers, Studies


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundDriver(ABC):
    """Steps from one open query to the next. `make_event` makes the event of a round for watchers, with the
    micro-rho spent by then. Steps that are no coroutines run off the event loop."""

    plan: Plan
    repository: Repository
    sign: Sign
    make_event: Callable[[Round, int], pb.StudyEvent]

    def resume(self, session: StudySession) -> Round | None:
        """Open the query at which this process resumes a study, after the stored release; as `dispatch`."""
        query, studies = session.pending, self.repository.studies
        last = studies.released(query.plan_digest, query.round - 1) if query and query.round else None
        return self.dispatch(session, last, {})

    def dispatch(
        self, session: StudySession, last: pb.SealedRound | None, ready: Mapping[str, str]
    ) -> Round | None:
        """Open the session's pending query, durably, also after a crash; None if there is none. `last` is the
        release before it with the query that it answers, since a site that missed that one may have another
        wording of it. It is left out where it is too large. `ready` are the keys of the sites that need
        not report ready. Raises InternalError: another query was opened as this round before, or a stored
        attempt was changed; RequestError: the noise was drawn and charged, and the draw failed."""
        if session.pending is None:
            return None
        check_same_query(self.repository.studies, session.pending)
        opened, due = self._opened(session.pending, ready)
        ledger, query, at = self.repository.ledger, query_to_proto(session.pending), self.repository.clock()
        self._set_deadline(opened, at)
        event = self.make_event(opened, ledger.spent(session.plan.digest) + (due or NO_COST).micro_rho)
        write = partial(write_dispatch, opened=opened, query=query, at=at, event=event, due=due)
        if due is None:
            ledger.write_alongside(write)
        else:
            ledger.attempt(session.pending, due, self.plan.spare_cost, write)
        failpoint("round-opened")
        signed = round_statement(session.pending, ledger.ledger_position, session.after).signed(self.sign)
        message = pb.NextWorkResponse(
            query=query,
            signed_round=pb.SignedRound(signed_json=signed.signed_json, signature=signed.signature),
            release=last if last is not None and last.ByteSize() <= INLINE_BYTES else None,
        )
        self._assign(opened, message, at)
        return opened

    @abstractmethod
    def _opened(self, round_query: RoundQuery, ready: Mapping[str, str]) -> tuple[Round, Cost | None]:
        """Return the round of a query, and the cost of an attempt whose set is fixed with it, if any."""

    @abstractmethod
    async def answered(self, opened: Round) -> Round:
        """Wait for all awaited answers or for the deadline; return the round in its latest attempt."""

    def _earlier_answers(self, round_query: RoundQuery, attempt: int = 0) -> RoundAnswers:
        """Return the answers from before this process, and who declined the query or the whole study."""
        studies, study = self.repository.studies, round_query.plan_digest
        earlier = studies.answers(study, round_query.round, attempt)
        return replace(earlier, declined=studies.declined(study) | earlier.declined)

    def _assign(self, opened: Round, message: pb.NextWorkResponse, at: int) -> None:
        """Set the message for sites: `message`, the deadline, and the signed members of the attempt."""
        opened.message.CopyFrom(message)
        if opened.attempt is not None:
            signed = opened.attempt.signed(self.sign)
            opened.message.attempt.CopyFrom(
                pb.SignedAttempt(signed_json=signed.signed_json, signature=signed.signature)
            )
        self._set_deadline(opened, at)

    def _set_deadline(self, opened: Round, at: int) -> None:
        opened.message.deadline_unix_ms = at + int(1000 * self.plan.study.federation.deadline_seconds)


def check_same_query(studies: Studies, round_query: RoundQuery) -> None:
    """Raise if an earlier process opened this round with another query. Raises as `RoundDriver.dispatch`."""
    before = studies.query_digest(round_query.plan_digest, round_query.round)
    if before not in (None, round_query.digest):
        raise InternalError(
            Code.BUG, f"{round_label(round_query.round)} was opened with another query before"
        )


def write_dispatch(
    change: Connection,
    _: LedgerPosition | None = None,
    *,
    opened: Round,
    query: pb.Query,
    at: int,
    event: pb.StudyEvent,
    due: Cost | None = None,
) -> None:
    """Open the query within the transaction `change`, and store the attempt that is `due`."""
    attempt = opened.attempt
    if attempt is None or due is not None:
        study_writes.open_round(change, opened.round_query, query.SerializeToString(), at)
    if attempt is not None and due is not None:
        study_writes.store_attempt(change, attempt, at)
    study_writes.add_event(change, opened.round_query.plan_digest, event)
    failpoint("round-opening")


@dataclass(frozen=True, slots=True, kw_only=True)
class CentralDriver(RoundDriver):
    """DISPATCH, CLOSE, RELEASE. A round is charged with its release, or with the failed draw."""

    def _opened(self, round_query: RoundQuery, ready: Mapping[str, str]) -> tuple[Round, None]:
        if (round_query.plan_digest, round_query.round) in self.repository.ledger.ledger.charged:
            label = round_label(round_query.round)
            raise RequestError(
                Code.CONFLICT, f"the noise draw of {label} failed earlier and is charged; submit again"
            )
        return Round(round_query, self.plan.study.federation, self._earlier_answers(round_query)), None

    async def answered(self, opened: Round) -> Round:
        await opened.complete(self.plan.study.federation.deadline_seconds)
        return opened


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedDriver(RoundDriver):
    """DISPATCH, FIX for each attempt, COMPLETE, RELEASE. Each attempt is charged before it [P33]. The order
    never changes: no site is awaited, or the deadline is over -> the answers are frozen -> the next set is
    chosen -> one transaction: the attempt is stored, its cost charged, the answers to the last one noted ->
    its members are notified. So whatever a member may send is charged before, and no attempt number has two
    sets [R29]. `waiting` returns the sites where a person has not decided. `check` raises if the study was
    cancelled. `on_next_attempt` is called with each attempt that replaces the last."""

    compute: Compute
    waiting: Callable[[], Collection[str]]
    check: Callable[[], None]
    on_next_attempt: Callable[[Round], None]

    def _opened(self, round_query: RoundQuery, ready: Mapping[str, str]) -> tuple[Round, Cost | None]:
        """As above; the first attempt is for the sites in `ready`, if they suffice."""
        attempts = self.repository.studies.attempts(round_query.plan_digest, round_query.round)
        earlier, due = self._earlier_answers(round_query, len(attempts)), None
        denied, federation = denied_sites(self.repository.store.reader), self.plan.study.federation
        if not attempts:
            out = earlier.declined.keys() | denied
            eligible = {site: key for site, key in ready.items() if site not in out}
            if eligible and not federation.lacking(eligible):
                attempts = [Attempt.at(round_query, 1, eligible)]
                due = cost_of_attempt(round_query, 1, self.repository)
        opened = Round(round_query, federation, earlier, masked=True, attempts=attempts)
        opened.deny(denied)
        return opened, due

    async def answered(self, opened: Round) -> Round:
        """Return the attempt whose answers are complete: this one, or a later one. Raises RequestError: code
        `study-failed`: too few sites are left, or the pool pays for no further attempt."""
        while True:
            overdue = not await opened.complete(self.plan.study.federation.deadline_seconds)
            await opened.freeze()
            self.check()
            if opened.is_complete:
                return opened
            opened = await self._next(opened, overdue)
            self.on_next_attempt(opened)
            self.check()

    async def _next(self, last: Round, overdue: bool) -> Round:
        """Return the next attempt, once that is durable and charged; `overdue` after the deadline."""
        store, round_query = self.repository.store, last.round_query
        last.deny(await store.read(denied_sites, store.reader))
        eligible = last.eligible(overdue=overdue)
        due = await self.compute.run(self._due_if_covered, round_query, last.number + 1)
        if due is None:
            raise self._no_attempt_left(last)
        last.check_present(eligible, self.waiting())
        attempt = Attempt.at(round_query, last.number + 1, eligible)
        opened = last.next_attempt(attempt)
        spent = self.repository.ledger.spent(round_query.plan_digest) + due.micro_rho
        at = self.repository.clock()
        self._set_deadline(opened, at)
        event = self.make_event(opened, spent)
        await self.compute.run(self._fix, last, attempt, due, at, event)
        last.settle(durable=True)
        opened.take_over(last)  # other sites may be ready by now
        self._assign(opened, last.message, at)
        return opened

    def _due_if_covered(self, round_query: RoundQuery, number: int) -> Cost | None:
        """Return the cost of an attempt; None if the study's pool does not pay for it [P35]."""
        due, pool = cost_of_attempt(round_query, number, self.repository), self.plan.spare_cost
        study, round = round_query.plan_digest, round_query.round
        covered = self.repository.ledger.read(lambda ledger: ledger.covers(study, round, due, pool))
        return due if covered and number <= self.plan.most_attempts else None

    def _no_attempt_left(self, last: Round) -> RequestError:
        return RequestError(
            Code.STUDY_FAILED,
            f"{round_label(last.round_query.round)} lost {', '.join(last.missing_members())} in attempt "
            f"{last.number}, and no spare attempt is left; what was attempted stays charged "
            f"({last.reasons(self.waiting())}); {self.plan.study.federation.further_attempts}",
        )

    def _fix(self, last: Round, attempt: Attempt, due: Cost, at: int, event: pb.StudyEvent) -> None:
        """Store and charge the attempt after the `last`, in one transaction."""

        def write(change: Connection, _: LedgerPosition) -> None:
            study_writes.add_answers(change, attempt.plan, attempt.round, last.number, last.macs())
            study_writes.store_attempt(change, attempt, at)
            study_writes.add_event(change, attempt.plan, event)

        self.repository.ledger.attempt(last.round_query, due, self.plan.spare_cost, write)


def cost_of_attempt(round_query: RoundQuery, number: int, repository: Repository) -> Cost:
    """Return the cost of attempt `number`: that of its query. A pass is charged once an attempt number, as
    often as its most attempted earlier batch was.

    Privacy: [P33] whatever members send of an attempt counts as released."""
    batch, study = batch_of(round_query.query), round_query.plan_digest
    if batch is None or batch.index == 0:
        return attempt_cost(round_query.priced.cost, number)
    paid = repository.studies.most_attempts(study, batch.first_round, round_query.round)
    return attempt_cost(
        round_query.priced.cost, number, paid, repository.ledger.ledger.paid[study, batch.first_round].cost
    )
