"""One running study: drives its session round by round; can be killed and resumed at any point.

The order within a round never changes: query durable -> sites answer -> set of sites frozen and
price charged -> noise added -> sealed durable -> published on a tick -> fed to the algorithm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from eigenveil import barrier
from eigenveil.aggregation import aggregate
from eigenveil.errors import Code, EigenveilError, InternalError, RequestError, spoken
from eigenveil.mechanisms import noise_ahead
from eigenveil.numerics.encoding import IntArray
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.release import Release
from eigenveil.protocol.round import RoundState, move
from eigenveil.protocol.wire import query_to_proto
from eigenveil.queries import NAMES
from eigenveil.reporting.document import build, seal_bundle
from eigenveil.reporting.result import result_of
from eigenveil.session import Session
from eigenveil_common import log
from eigenveil_common.failpoints import failpoint
from eigenveil_common.rpc import INLINE_BYTES
from eigenveil_common.storage.database import Connection
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.resources import Resources
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.study_reads import StoredStudy
from eigenveil_server.studies.approvals import HOUR_MS, Approvals
from eigenveil_server.studies.journal import RoundJournal, state
from eigenveil_server.studies.open_round import OpenRound
from eigenveil_server.studies.prepared_noise import NoiseAhead

TICK = 0.002  # seconds; releases leave on this grid, so that timing says nothing about the draw [P6]


class Cancelled(Exception):
    """The analyst called the study off."""


class StudyRun:
    """One study under way: `state` is RUNNING until `drive` returns, `inbox` holds the latest round."""

    def __init__(self, stored: StoredStudy, plan: Plan, resources: Resources, approval_hours: float) -> None:
        self.stored = stored
        self.plan = plan
        self.state = StudyState.RUNNING
        self._resources = resources
        self._noise = NoiseAhead(resources.noise, resources.draws)
        self.inbox: OpenRound | None = None
        self._round = RoundState.PLANNED
        self._offer = pb.NextWorkResponse()
        self._cancelled = False
        begun = resources.studies.begun_at(stored.digest) or resources.clock()
        asked_until = begun + int(HOUR_MS * approval_hours)
        self.approvals = Approvals(plan.study.federation.sites, asked_until, resources.clock)

    @property
    def digest(self) -> str:
        """The study's id."""
        return self.stored.digest

    async def drive(self) -> None:
        """Run to the end, whatever it is. A storage error ends the process."""
        try:
            await self._rounds()
        except Cancelled:
            await self._end(StudyState.CANCELLED, "cancelled by its analyst")
        except InternalError as problem:
            if problem.code is Code.STORAGE:
                self._resources.fatal(problem)
            await self._fail_for_defect(problem)
        except EigenveilError as problem:
            await self._end(StudyState.FAILED, str(problem))
        except Exception as problem:  # noqa: BLE001 - logged; the other studies go on
            await self._fail_for_defect(problem)

    async def _rounds(self) -> None:
        compute = self._resources.compute
        sealed = await compute(self._resources.studies.sealed_rounds, self.digest)
        session = await compute(Session.replay, self.plan, [one.release for one in sealed])
        release: Release | None = None
        while (inbox := await self._next(session, release)) is not None:
            with self._resources.metrics.round():
                release = await self._one_round(inbox, session)
        data = await compute(self._bundle, session)
        failpoint("bundle-built")
        await self._end(StudyState.RELEASED, release=data)

    async def _fail_for_defect(self, problem: Exception) -> None:
        log.logger.error("study-stopped study=%s", self.digest[:12], exc_info=problem)
        detail = str(problem) if isinstance(problem, InternalError) else type(problem).__name__
        await self._end(
            StudyState.FAILED, f"a defect of the coordinator stopped the study: {detail}; tell its operator"
        )

    async def _next(self, session: Session, release: Release | None) -> OpenRound | None:
        """Feed the last release and offer what the study asks then; None if it asks nothing more."""
        self._stop_if_cancelled()
        opened = await self._resources.compute(self._open, session, release)
        self._stop_if_cancelled()
        if opened is None:
            return None
        self.inbox, self._offer = opened
        self._round = RoundState.PLANNED
        self._enter(RoundState.RESERVED)
        self._enter(RoundState.OPEN)
        self._resources.work.ring()
        self._resources.news.ring()
        asked = self.inbox.query
        log.event("round-open", study=self.digest, round=asked.round, kind=NAMES[type(asked.query)])
        return self.inbox

    def _stop_if_cancelled(self) -> None:
        if self._cancelled:
            raise Cancelled

    def _open(
        self, session: Session, release: Release | None
    ) -> tuple[OpenRound, pb.NextWorkResponse] | None:
        """Off the event loop in one go, because every site waits for it."""
        if release is not None:
            session.feed(release)
        query, studies = session.pending, self._resources.studies
        if query is None:
            return None
        if studies.query_digest(self.digest, query.round) not in (None, query.digest):
            raise InternalError(Code.BUG, f"{spoken(query.round)} was opened with another query before")
        inbox = OpenRound(query, self.plan.study.federation, studies.answers(self.digest, query.round))
        message, now = query_to_proto(query), self._resources.clock()
        event = self._event(inbox, RoundState.OPEN)
        with self._resources.store.writer.transaction() as change:
            study_writes.open_round(change, query, message.SerializeToString(), now)
            study_writes.add_event(change, self.digest, event)
            failpoint("round-opening")
        failpoint("round-opened")
        deadline = now + int(1000 * self.plan.study.federation.deadline_seconds)
        stated = state(self._resources.books, self.digest, query.round, query.digest, _after(session))
        signed = stated.signed(self._resources.keys.release.sign)
        asked = pb.SignedRound(said=signed.said, signature=signed.signature)
        last = self._last_released(query.round - 1) if query.round else None
        return inbox, pb.NextWorkResponse(query=message, asked=asked, deadline_unix_ms=deadline, release=last)

    def _last_released(self, round: int) -> pb.SealedRound | None:
        """What sites need to compute the next question [R21], with the question that it answers: who missed
        that one may have it in other words. None where it is too large to come with the next one."""
        released = self._resources.studies.released(self.digest, round)
        if released is None:
            raise InternalError(Code.BUG, f"{spoken(round)} was fed to the study and is not stored")
        return released if released.ByteSize() <= INLINE_BYTES else None

    async def _one_round(self, inbox: OpenRound, session: Session) -> Release:
        """From the question to its release."""
        self._prepare_noise(inbox.query)  # only now: the question leaves first, then the sites compute
        await self.approvals.answered(inbox, self.plan.study.federation.deadline_seconds)
        answers, journal = await self._close(inbox, session)
        await self._noise.drawn()
        failpoint("noise-drawn")
        release = await self._resources.compute(self._seal, inbox.query, answers, journal)
        failpoint("round-sealed")
        self._enter(RoundState.SEALED)
        inbox.forget()
        await _tick()
        failpoint("round-published")
        self._enter(RoundState.RELEASED)
        return release

    async def _close(self, inbox: OpenRound, session: Session) -> tuple[Mapping[str, IntArray], RoundJournal]:
        """Freeze the set of sites and charge, while the noise may still be under way."""
        durable = False
        try:
            answers, closed_at = inbox.close(), self._resources.clock()
            self._stop_if_cancelled()
            self._check_present(inbox, answers)
            self._enter(RoundState.CLOSED)
            journal = self._journal(inbox, closed_at, session)
            failpoint("round-closing")
            await self._resources.compute(journal.close, inbox.query)
            durable = True
            failpoint("round-charged")
        finally:
            inbox.settle(durable=durable)
        self._resources.news.ring()
        return answers, journal

    def _prepare_noise(self, asked: RoundQuery) -> None:
        spec = noise_ahead(asked, self.plan.study)
        if spec is not None:
            self._noise.prepare(spec)

    def _check_present(self, inbox: OpenRound, answers: Mapping[str, IntArray]) -> None:
        try:
            self.plan.study.federation.check_present(answers)
        except RequestError as problem:
            why = f"{spoken(inbox.query.round)}: {problem} ({self.approvals.reasons(inbox)})"
            raise RequestError(problem.code, why) from problem

    def _journal(self, inbox: OpenRound, closed_at: int, session: Session) -> RoundJournal:
        resources, spent = self._resources, session.spent.micro_rho + inbox.query.cost.micro_rho
        return RoundJournal(
            study=self.digest,
            macs=inbox.macs(),
            after=_after(session),
            sign=resources.keys.release.sign,
            absent=inbox.absent(),
            closed_at=closed_at,
            closed_event=self._event(inbox, RoundState.CLOSED, spent=spent),
            sealed_event=self._event(inbox, RoundState.SEALED, spent=spent),
            books=resources.books,
            studies=resources.studies,
            database=resources.store.writer,
            clock=resources.clock,
        )

    def _seal(self, asked: RoundQuery, answers: Mapping[str, IntArray], journal: RoundJournal) -> Release:
        return barrier.release(
            asked,
            aggregate(asked, answers),
            tuple(answers),
            plan=self.plan,
            journal=journal,
            noise=self._noise if noise_ahead(asked, self.plan.study) else self._resources.noise,
        )

    def _enter(self, state: RoundState) -> None:
        self._round = move(self._round, state)
        if state in (RoundState.CLOSED, RoundState.SEALED):
            log.event(f"round-{state.value}", study=self.digest)

    def _bundle(self, session: Session) -> bytes:
        document = build(
            self.plan,
            result_of(self.plan, session.result),
            session.releases,
            rounds=self._resources.studies.records(self.digest),
            private=self._noise.private,
        )
        keys = self._resources.keys
        return seal_bundle(document, sign=keys.release.sign, public_key=keys.release_public)

    async def _end(self, state: StudyState, failure: str = "", release: bytes | None = None) -> None:
        self._noise.discard()
        if self.inbox is not None:
            self.inbox.settle(durable=False)
        if state is StudyState.RELEASED:
            self._round = RoundState.RELEASED  # also when every round was sealed by an earlier process
        elif self._round not in (RoundState.SEALED, RoundState.RELEASED):
            self._round = move(self._round, RoundState.FAILED)
        event = self._event(self.inbox, state=state, failure=failure)
        at = self._resources.clock()

        def end(change: Connection) -> None:
            study_writes.end_study(change, self.digest, state, at, failure=failure, release=release)
            study_writes.add_event(change, self.digest, event)
            failpoint("study-settling")

        try:
            await self._resources.compute(self._resources.books.settle, self.digest, end)
        except InternalError as problem:
            self._resources.fatal(problem)
        failpoint("study-settled")
        self.state, self.inbox = state, None
        log.event(f"study-{state.value}", study=self.digest)
        self._resources.news.ring()

    def _event(
        self,
        inbox: OpenRound | None,
        round_state: RoundState | None = None,
        *,
        state: StudyState = StudyState.RUNNING,
        spent: int | None = None,
        failure: str = "",
    ) -> pb.StudyEvent:
        statuses = {} if inbox is None else inbox.statuses(self.approvals.asking)
        return pb.StudyEvent(
            state=state.proto,
            round=0 if inbox is None else inbox.query.round,
            query_kind="" if inbox is None else NAMES[type(inbox.query.query)],
            round_state=(round_state or self._round).value,
            sites=[pb.SiteStatus(site=site, status=status) for site, status in statuses.items()],
            spent_micro_rho=self._resources.books.spent(self.digest) if spent is None else spent,
            micro_rho=self.plan.micro_rho,
            failure=failure,
            expected_rounds=self.stored.expected_rounds,
        )

    def cancel(self) -> None:
        """Stop before the next draw; a round whose price is charged is sealed first."""
        self._cancelled = True
        if self.inbox is not None:
            self.inbox.ready.set()

    def offer(self, site: str, answered: frozenset[tuple[str, int]], held: int) -> pb.NextWorkResponse | None:
        """The open round, if it waits for `site` and is not among `answered`; with the last release, if that
        is small and all that the site lacks. It fetches what else it needs [R21]."""
        inbox = self.inbox
        if inbox is None or not inbox.wants(site) or (self.digest, inbox.query.round) in answered:
            return None
        if site in self.approvals.asking:
            return None
        offer = pb.NextWorkResponse()
        offer.CopyFrom(self._offer)
        if held != inbox.query.round - 1:
            offer.ClearField("release")
        return offer

    async def tell_of_waiting(self, site: str) -> None:
        """Have whoever watches see that `site` waits."""
        inbox = self.inbox
        if inbox is None:
            return
        study, round, event = self.digest, inbox.query.round, self._event(inbox)
        log.event("site-waits", study=study, round=round, site=site)
        await self._resources.writer.write(lambda change: study_writes.add_news(change, study, round, event))
        self._resources.news.ring()

    def answered_event(self) -> pb.StudyEvent:
        """The state of the open round, for whoever watches."""
        return self._event(self.inbox)


def _after(session: Session) -> str:
    """The digest of the last release; empty before the first."""
    return session.releases[-1].digest if session.releases else ""


async def _tick() -> None:
    await asyncio.sleep(TICK - asyncio.get_running_loop().time() % TICK)
