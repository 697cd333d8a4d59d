"""One running study: drives its session round by round; can be killed and resumed at any point. The order
within a round never changes: query durable -> sites answer -> set of sites frozen -> noise added -> a tick ->
cost charged and release sealed, in one transaction -> published -> fed to the algorithm -> next query
durable. Before that transaction nothing depends on the draw: neither what this process computes nor if it
survives [P27]. Masked rounds draw nothing and are charged for each attempt before its dispatch.
`rounds.round` has the states, `rounds.drivers` the steps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from functools import partial

from eigenveil import barrier
from eigenveil.errors import Code, EigenveilError, InternalError
from eigenveil.mechanisms import data_independent_noise
from eigenveil.noise.source import NoiseSource
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.rounds import Release, RoundEvent, RoundState
from eigenveil.queries import NAMES, released_length
from eigenveil.reporting.document import release_document, signed_parts
from eigenveil.reporting.release_file import Data
from eigenveil_common import log
from eigenveil_common.files import failpoint
from eigenveil_common.storage.database import Connection
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.config import Config
from eigenveil_server.rounds.drivers import CentralDriver, MaskedDriver, RoundDriver
from eigenveil_server.rounds.round import Round
from eigenveil_server.rounds.sealing import PreparedNoise, RoundJournal
from eigenveil_server.rounds.study_session import StudySession
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.pieces import split
from eigenveil_server.storage.release_pieces import NO_PIECES, StoredPieces, store_piece
from eigenveil_server.storage.states import SiteConsent, StudyState
from eigenveil_server.storage.study_reads import StoredStudy
from eigenveil_server.studies.consent import ConsentPhase
from eigenveil_server.studies.runtime import Poll, Runtime

# Integers of noise drawn while the sites compute. Longer noise is drawn once all answers are in: otherwise
# the sum, its noise and an answer under check would be in memory at once.
MOST_AHEAD = 2**20


class Cancelled(Exception):
    """The analyst cancelled the study."""


class StudyRun:
    """One running study. `state` is RUNNING until `drive` returns. `opened` is the latest round in its latest
    attempt; None before the first, and after the end. `on_next_attempt` is called when another attempt
    replaces the last."""

    def __init__(
        self,
        stored: StoredStudy,
        plan: Plan,
        runtime: Runtime,
        config: Config,
        on_next_attempt: Callable[[], None],
    ) -> None:
        self.stored = stored
        self.digest = stored.digest
        self.plan = plan
        self.sites = plan.study.federation.sites  # only these are invited, and know of it
        self.state = StudyState.RUNNING
        self.opened: Round | None = None
        self._runtime = runtime
        self._repository = runtime.repository
        self._noise = PreparedNoise(runtime.noise, runtime.compute.draws)
        self.record_counts: dict[str, int] = {}  # of each site, in memory only [0014]
        self._cancelled = False
        self.consent = ConsentPhase(
            stored, plan.study.federation, runtime.repository, runtime.news, config, self._lacking
        )
        self._on_next_attempt = on_next_attempt
        self._driver = self._driver_of()

    def _lacking(self, site: str) -> str:
        """Return why the program of a site cannot run this plan; empty if it can, or is not known yet."""
        known = self._runtime.capabilities.get(site)
        return "" if known is None else known.lacking(self.plan)

    def _driver_of(self) -> RoundDriver:
        plan, repository, sign = self.plan, self._repository, self._runtime.keys.release.sign
        if not plan.masked:
            return CentralDriver(plan=plan, repository=repository, sign=sign, make_event=self.event)
        return MaskedDriver(
            plan=plan, repository=repository, sign=sign, make_event=self.event,
            compute=self._runtime.compute, waiting=self.consent.waiting,
            check=self._stop_if_cancelled, on_next_attempt=self._switch,
        )  # fmt: skip

    async def drive(self) -> None:
        """Run to the end. A storage error ends the process."""
        try:
            await self._rounds()
        except Cancelled:
            await self._end(StudyState.CANCELLED, "cancelled by its analyst")
        except InternalError as problem:
            if problem.code is Code.STORAGE:
                self._repository.fatal(problem)
            await self._fail_for_defect(problem)
        except EigenveilError as problem:
            await self._end(StudyState.FAILED, str(problem))
        except Exception as problem:  # noqa: BLE001 - logged; the other studies go on
            await self._fail_for_defect(problem)

    async def _rounds(self) -> None:
        compute = self._runtime.compute
        sealed = await compute.run(self._repository.studies.sealed_rounds, self.digest)
        session = await compute.run(StudySession, self.plan)
        try:
            wide = any(session.uses_subprocess(one.release.values.size) for one in sealed)
            run = compute.alone if wide else compute.run
            await run(session.replay, [one.release for one in sealed])
            del sealed
            parts = await self._run_rounds(session)
        finally:  # not on a thread of the pool: all of them may wait for the session
            await asyncio.to_thread(session.close)
        failpoint("bundle-built")
        await self._end(StudyState.RELEASED, release=await self._store_pieces(parts))

    async def _run_rounds(self, session: StudySession) -> list[Data]:
        """Run all rounds; return the signed release, in parts."""
        compute = self._runtime.compute
        self._runtime.work.notify(self.sites)
        await self.consent.complete(self._stop_if_cancelled)
        failpoint("consent-complete")
        self._stop_if_cancelled()
        opened = await compute.run(self._driver.resume, session)
        while opened is not None:
            self.opened = opened
            self._stop_if_cancelled()
            with self._runtime.metrics.round():
                opened = await self._one_round(opened, session)
        return await compute.run(self._bundle, session)

    async def _fail_for_defect(self, problem: Exception) -> None:
        log.logger.error("study-stopped study=%s", self.digest[:12], exc_info=problem)
        detail = str(problem) if isinstance(problem, InternalError) else type(problem).__name__
        await self._end(
            StudyState.FAILED, f"a defect of the coordinator stopped the study: {detail}; inform its operator"
        )

    def _stop_if_cancelled(self) -> None:
        if self._cancelled:
            raise Cancelled

    async def _one_round(self, opened: Round, session: StudySession) -> Round | None:
        """Run from an open query to its release, and open the next query; None if there is none."""
        query, compute = opened.round_query.query, self._runtime.compute
        run = compute.alone if session.uses_subprocess(released_length(query)) else compute.run
        log.event("round-open", study=self.digest, round=opened.round_query.round, kind=NAMES[type(query)])
        self._announce(opened)
        try:
            spec = data_independent_noise(opened.round_query.priced, self.plan.study)
            if spec is not None and spec.length <= MOST_AHEAD:
                self._noise.prepare(spec)  # after the query has left, while the sites compute
            opened = await self._driver.answered(opened)
            present = await self._close(opened)
            if spec is not None and spec.length > MOST_AHEAD:
                self._noise.prepare(spec)
            await self._noise.wait_until_drawn()
            failpoint("noise-drawn")
            journal = self._journal(opened, session)
            noise = self._runtime.noise if spec is None else self._noise
            release = await run(self._release, opened, present, journal, noise)
        except asyncio.CancelledError:  # the process stops; any other exception ends the study
            if self.opened is not None:
                self.opened.settle(durable=False)
            raise
        opened.settle(durable=True)
        failpoint("round-released")
        opened.enter(RoundEvent.RELEASE)
        log.event("round-released", study=self.digest)
        self._runtime.news.notify()
        return await run(self._follow, session, release, journal.last, opened.eligible())

    def _follow(
        self, session: StudySession, release: Release, last: pb.SealedRound | None, ready: Mapping[str, str]
    ) -> Round | None:
        """Feed a stored release to the algorithm, and open the next query, off the event loop [P27]."""
        session.feed(release)
        failpoint("round-followed")
        if session.pending is not None:
            self._stop_if_cancelled()  # an attempt at a masked round is charged when it is opened
        return self._driver.dispatch(session, last, ready)

    def _announce(self, opened: Round) -> None:
        """Notify sites and watchers of a round or an attempt that is durably open."""
        self._runtime.work.notify(self.sites)
        self._runtime.news.notify()
        attempt = opened.attempt
        if attempt is not None:
            self._runtime.metrics.attempts.inc()
            number, sites = attempt.number, ",".join(attempt.sites)
            log.event("set-fixed", study=self.digest, round=attempt.round, attempt=number, sites=sites)
            failpoint("set-fixed")

    def _switch(self, opened: Round) -> None:
        """Go on with another attempt, which is durable and charged."""
        self.opened = opened
        self._on_next_attempt()
        self._announce(opened)

    async def _close(self, opened: Round) -> tuple[str, ...]:
        """Freeze the set of sites, in this process only: it is published with the release."""
        present = await opened.freeze()
        self._stop_if_cancelled()
        opened.check_present(present, self.consent.waiting())
        opened.close()
        failpoint("round-closed")
        return present

    def _journal(self, opened: Round, session: StudySession) -> RoundJournal:
        due = 0 if opened.masked else opened.round_query.cost.micro_rho  # attempts are charged already
        event = self.event(opened, self._repository.ledger.spent(self.digest) + due)
        event.round_state = RoundState.RELEASED.value
        return RoundJournal(
            opened=opened,
            after=session.after,
            sign=self._runtime.keys.release.sign,
            event=event,
            repository=self._repository,
        )

    def _release(
        self, opened: Round, present: tuple[str, ...], journal: RoundJournal, noise: NoiseSource
    ) -> Release:
        """Release the round in one go off the event loop, because every site waits for it."""
        return barrier.release(
            opened.round_query, opened.total(), present, plan=self.plan, journal=journal, noise=noise
        )

    def _bundle(self, session: StudySession) -> list[Data]:
        result = session.result
        document = release_document(
            self.plan,
            result,
            session.releases,
            rounds=self._repository.studies.records(self.digest),
            private=self._noise.private,
            sites=json.loads(self.stored.site_rules_json),
            authorization=self.stored.authorization,
        )
        keys = self._runtime.keys
        return signed_parts(document, result, sign=keys.release.sign, public_key=keys.release_public)

    async def _store_pieces(self, parts: list[Data]) -> StoredPieces:
        """Store all pieces of the release but the first, each in a transaction of its own: other studies'
        rounds come in between. They follow from sealed releases, and nothing reads them yet. Any error ends
        the process, and the next one resumes the study. It may be of another change in the same transaction,
        and the study is charged."""
        first, *others = split(parts)
        try:
            for number, piece in enumerate(others, start=1):
                write = partial(store_piece, study=self.digest, number=number, data=piece)
                await self._repository.writer.write(write)
                failpoint("release-piece-stored")
        except InternalError as problem:
            self._repository.fatal(problem)
        return StoredPieces(first=first, count=1 + len(others))

    async def _end(self, state: StudyState, failure: str = "", release: StoredPieces = NO_PIECES) -> None:
        self._noise.discard()
        opened, at = self.opened, self._repository.clock()
        if opened is not None and opened.state is not RoundState.RELEASED:
            opened.enter(RoundEvent.FAIL)
        event = self.event(opened, state=state, failure=failure)
        if opened is not None:
            await opened.freeze()
        else:  # an earlier process sealed the last round, or the study failed before the first
            released = state is StudyState.RELEASED
            event.round_state = (RoundState.RELEASED if released else RoundState.FAILED).value

        def end(change: Connection) -> None:
            if opened is not None:
                macs, round = opened.macs(), opened.round_query.round
                study_writes.add_answers(change, self.digest, round, opened.number, macs)
            study_writes.end_study(change, self.digest, state, at, failure=failure, release=release)
            study_writes.add_event(change, self.digest, event)
            failpoint("study-settling")

        try:
            await self._runtime.compute.run(self._repository.ledger.settle, self.digest, end)
        except InternalError as problem:
            self._repository.fatal(problem)
        failpoint("study-settled")
        if opened is not None:
            opened.settle(durable=True)
        self.state, self.opened = state, None
        log.event(f"study-{state.value}", study=self.digest, analyst=self.stored.analyst)
        self._runtime.news.notify()

    def event(
        self,
        opened: Round | None,
        spent: int | None = None,
        *,
        state: StudyState = StudyState.RUNNING,
        failure: str = "",
    ) -> pb.StudyEvent:
        """Return the event of the study and its round with the micro-rho `spent` by then; None: by now."""
        event = pb.StudyEvent(
            state=state.proto,
            spent_micro_rho=self._repository.ledger.spent(self.digest) if spent is None else spent,
            micro_rho=self.plan.cost.micro_rho,
            failure=failure,
            expected_rounds=self.stored.expected_rounds,
        )
        if opened is not None:
            event.round_state, event.attempt = opened.state.value, opened.number
            event.round, event.query_kind = opened.round_query.round, NAMES[type(opened.round_query.query)]
            if state is StudyState.RUNNING and not opened.frozen:
                event.round_ends_unix_ms = opened.message.deadline_unix_ms
            statuses = opened.statuses(self.consent.waiting())
            event.sites.extend(pb.SiteStatus(site=site, status=status) for site, status in statuses.items())
        return event

    def cancel(self) -> None:
        """Stop before the next close; a round whose set of sites is frozen is released first."""
        self._cancelled = True
        self.consent.wake()
        if self.opened is not None:
            self.opened.ready.set()

    def assignment(self, site: str, poll: Poll) -> pb.NextWorkResponse | None:
        """Return the message for `site`: the request for consent, then the open round or attempt. None if
        it is answering, or if a person there must agree first."""
        if self.consent.open:
            return self.consent.assignment(site, poll)
        opened = self.opened
        if opened is None or self.digest in poll.awaiting_approval:
            return None
        attempt_key = self.digest, opened.round_query.round, opened.number_for(site)
        if not opened.awaits(site) or attempt_key in poll.answered:
            return None
        return opened.message_for(site, poll.known.get(self.digest, 0))

    def deny(self, sites: frozenset[str]) -> None:
        """Look again after a change of the denied sites."""
        self.consent.wake()
        if self.opened is not None:
            self.opened.deny(sites)

    async def note(self, site: str, said: SiteConsent) -> None:
        """Store the consent of `site`, and notify watchers. Nothing of a close is published before its
        release [P27]."""
        opened = self.opened
        writer = None if opened is None or opened.frozen else partial(self._event_writer, opened)
        await self.consent.note(site, said, writer)

    def _event_writer(self, opened: Round) -> Callable[[Connection], None]:
        round, event = opened.round_query.round, self.event(opened)
        return partial(study_writes.add_round_event, study=self.digest, round=round, event=event)
