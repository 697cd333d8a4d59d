"""One running study: drives its session round by round; can be killed and resumed at any point.

The order within a round never changes: query durable -> sites answer -> set of sites frozen -> noise added ->
a tick -> cost charged and release sealed, in one transaction -> published -> fed to the algorithm -> next
query durable. Before that transaction nothing depends on the draw: neither what this process computes nor if
it survives [P27]. Masked rounds draw nothing and are charged for each attempt before its dispatch:
`rounds.masked_driver` has their order.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial

from eigenveil import barrier
from eigenveil.errors import Code, EigenveilError, InternalError, RequestError, round_label
from eigenveil.mechanisms import data_independent_noise
from eigenveil.noise.source import NoiseSource
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.rounds import Release, RoundState
from eigenveil.queries import NAMES, released_length
from eigenveil.reporting.document import release_document, signed_bundle
from eigenveil.secure_aggregation.masking import Attempt
from eigenveil_common import log
from eigenveil_common.files import failpoint
from eigenveil_common.storage.database import Connection
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.rounds.driver import ExactDriver, RoundAssignment, RoundDriver, RoundJournal, after
from eigenveil_server.rounds.masked_driver import MaskedDriver
from eigenveil_server.rounds.open_round import OpenRound, PreparedNoise
from eigenveil_server.rounds.study_session import StudySession
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.states import SiteConsent, StudyState
from eigenveil_server.storage.study_reads import StoredStudy
from eigenveil_server.studies.consent import ConsentPhase, ConsentTimeouts
from eigenveil_server.studies.runtime import Poll, Runtime

# Integers of noise drawn while the sites compute. Longer noise is drawn once all answers are in: otherwise
# the sum, its noise and an answer under check would be in memory at once.
MOST_AHEAD = 2**20


class Cancelled(Exception):
    """The analyst cancelled the study."""


class StudyRun:
    """One running study. `state` is RUNNING until `drive` returns, `opened` is the latest round.
    `on_next_attempt` is called when another attempt at it replaces the last."""

    def __init__(
        self,
        stored: StoredStudy,
        plan: Plan,
        runtime: Runtime,
        consent_timeouts: ConsentTimeouts,
        on_next_attempt: Callable[[], None],
    ) -> None:
        self.stored = stored
        self.plan = plan
        self.state = StudyState.RUNNING
        self._runtime = runtime
        self._repository = runtime.repository
        self._noise = PreparedNoise(runtime.noise, runtime.compute.draws)
        self._assignment: RoundAssignment | None = None
        self._cancelled = False
        self.consent = ConsentPhase(
            stored, plan.study.federation, runtime.repository, runtime.change_events.news, consent_timeouts
        )
        self._on_next_attempt = on_next_attempt
        self._driver = self._driver_of(plan)

    def _driver_of(self, plan: Plan) -> RoundDriver:
        repository, sign = self._repository, self._runtime.keys.release.sign
        if not plan.masked:
            federation = plan.study.federation
            return ExactDriver(
                federation=federation, repository=repository, sign=sign, make_event=self._stage_event
            )
        return MaskedDriver(
            study=plan.study, repository=repository, sign=sign, make_event=self._stage_event,
            compute=self._runtime.compute, waiting=self.consent.waiting,
            check=self._stop_if_cancelled, on_next_attempt=self._switch,
        )  # fmt: skip

    @property
    def digest(self) -> str:
        return self.stored.digest

    @property
    def opened(self) -> OpenRound | None:
        """Return the latest round; None before the first, and after the end."""
        return None if self._assignment is None else self._assignment.opened

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
            data = await self._run_rounds(session)
        finally:  # not on a thread of the pool: all of them may wait for the session
            await asyncio.to_thread(session.close)
        failpoint("bundle-built")
        await self._end(StudyState.RELEASED, release=data)

    async def _run_rounds(self, session: StudySession) -> bytes:
        """Run all rounds; return the signed release."""
        compute = self._runtime.compute
        self._runtime.change_events.work.notify()
        await self.consent.complete(self._stop_if_cancelled)
        failpoint("consent-complete")
        self._stop_if_cancelled()
        assignment = await compute.run(self._driver.first, session)
        while assignment is not None:
            self._assignment = assignment
            self._stop_if_cancelled()
            with self._runtime.metrics.round():
                assignment = await self._one_round(assignment, session)
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

    async def _one_round(self, assignment: RoundAssignment, session: StudySession) -> RoundAssignment | None:
        """Run from an open query to its release, and open the next query; None if there is none."""
        self._announce(assignment)
        try:
            spec = data_independent_noise(assignment.opened.round_query.priced, self.plan.study)
            draw_late = spec is not None and spec.length > MOST_AHEAD
            if spec is not None and not draw_late:
                self._noise.prepare(spec)  # after the query has left, while the sites compute
            assignment = await self._driver.answered(assignment)
            opened = assignment.opened
            present = await self._close(opened)
            if draw_late and spec is not None:
                self._noise.prepare(spec)
            await self._noise.wait_until_drawn()
            failpoint("noise-drawn")
            journal = self._journal(assignment, session)
            noise = self._runtime.noise if spec is None else self._noise
            compute = self._runtime.compute
            run = (
                compute.alone
                if session.uses_subprocess(released_length(opened.round_query.query))
                else compute.run
            )
            release = await run(self._release, opened, present, journal, noise)
        except asyncio.CancelledError:  # the process stops; any other exception ends the study
            if self.opened is not None:
                self.opened.settle(durable=False)
            raise
        opened.settle(durable=True)
        failpoint("round-released")
        self._enter(opened, RoundState.RELEASED)
        self._runtime.change_events.news.notify()
        open_next = self._driver.following(assignment, session)
        return await run(self._followed, session, release, lambda: open_next(journal.last))

    def _followed(
        self, session: StudySession, release: Release, open_next: Callable[[], RoundAssignment | None]
    ) -> RoundAssignment | None:
        """Feed a charged and stored release to the algorithm, off the event loop [P27]."""
        session.feed(release)
        failpoint("round-followed")
        if session.pending is not None:
            self._stop_if_cancelled()  # an attempt at a masked round is charged when it is opened
        return open_next()

    def _announce(self, assignment: RoundAssignment) -> None:
        """Notify sites and watchers of a query that is durably open."""
        self._runtime.change_events.work.notify()
        self._runtime.change_events.news.notify()
        round_query = assignment.opened.round_query
        log.event(
            "round-open", study=self.digest, round=round_query.round, kind=NAMES[type(round_query.query)]
        )
        self._log_set(assignment.opened.attempt)

    def _log_set(self, attempt: Attempt | None) -> None:
        if attempt is not None:
            self._runtime.metrics.attempted()
            number, sites = attempt.number, ",".join(attempt.sites)
            log.event("set-fixed", study=self.digest, round=attempt.round, attempt=number, sites=sites)
            failpoint("set-fixed")

    def _switch(self, assignment: RoundAssignment) -> None:
        """Assign another attempt, which is durable and charged, from here on."""
        self._assignment = assignment
        self._on_next_attempt()
        self._runtime.change_events.work.notify()
        self._runtime.change_events.news.notify()
        self._log_set(assignment.opened.attempt)

    async def _close(self, opened: OpenRound) -> tuple[str, ...]:
        """Freeze the set of sites, in this process only: it is published with the release."""
        present = await opened.close()
        self._stop_if_cancelled()
        self._check_present(opened, present)
        self._enter(opened, RoundState.CLOSED)
        failpoint("round-closed")
        return present

    def _check_present(self, opened: OpenRound, present: tuple[str, ...]) -> None:
        try:
            self.plan.study.federation.check_present(present)
        except RequestError as problem:
            why = (
                f"{round_label(opened.round_query.round)}: {problem} "
                f"({opened.reasons(self.consent.waiting())})"
            )
            raise RequestError(problem.code, why) from problem

    def _journal(self, assignment: RoundAssignment, session: StudySession) -> RoundJournal:
        opened, driver = assignment.opened, self._driver
        spent = driver.spent(opened.round_query, session)
        return RoundJournal(
            study=self.digest,
            attempt=opened.number,
            macs=opened.macs(),
            absent=opened.absent(),
            query=assignment.message.query,
            after=after(session),
            sign=self._runtime.keys.release.sign,
            event=self._event(opened, RoundState.RELEASED, spent=spent),
            book=driver.book,
            repository=self._repository,
        )

    def _stage_event(self, opened: OpenRound, spent: int) -> pb.StudyEvent:
        return self._event(opened, opened.state, spent=spent)

    def _release(
        self, opened: OpenRound, present: tuple[str, ...], journal: RoundJournal, noise: NoiseSource
    ) -> Release:
        """Release the round in one go off the event loop, because every site waits for it."""
        return barrier.release(
            opened.round_query, opened.total(), present, plan=self.plan, journal=journal, noise=noise
        )

    def _enter(self, opened: OpenRound, state: RoundState) -> None:
        opened.enter(state)
        if state is RoundState.RELEASED:
            log.event("round-released", study=self.digest)

    def _bundle(self, session: StudySession) -> bytes:
        document = release_document(
            self.plan,
            session.result,
            session.releases,
            rounds=self._repository.studies.records(self.digest),
            private=self._noise.private,
            sites=json.loads(self.stored.site_rules_json),
            authorization=self.stored.authorization,
        )
        keys = self._runtime.keys
        return signed_bundle(document, sign=keys.release.sign, public_key=keys.release_public)

    async def _end(self, state: StudyState, failure: str = "", release: bytes | None = None) -> None:
        self._noise.discard()
        # No round is open if an earlier process sealed the last one, or if the study failed before the first.
        last = RoundState.RELEASED if state is StudyState.RELEASED else RoundState.FAILED
        opened = self.opened
        if opened is not None:
            if opened.state is not RoundState.RELEASED:
                self._enter(opened, RoundState.FAILED)
            last = opened.state
        event = self._event(opened, last, state=state, failure=failure)
        at = self._repository.clock()
        if opened is not None:
            await opened.close()

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
        self.state, self._assignment = state, None
        log.event(f"study-{state.value}", study=self.digest, analyst=self.stored.analyst)
        self._runtime.change_events.news.notify()

    def _event(
        self,
        opened: OpenRound | None,
        round_state: RoundState,
        *,
        state: StudyState = StudyState.RUNNING,
        spent: int | None = None,
        failure: str = "",
    ) -> pb.StudyEvent:
        event = pb.StudyEvent(
            state=state.proto,
            round_state=round_state.value,
            spent_micro_rho=self._repository.ledger.spent(self.digest) if spent is None else spent,
            micro_rho=self.plan.cost.micro_rho,
            failure=failure,
            expected_rounds=self.stored.expected_rounds,
        )
        if opened is not None:
            event.round, event.query_kind = opened.round_query.round, NAMES[type(opened.round_query.query)]
            event.attempt = opened.number
            statuses = opened.statuses(self.consent.waiting())
            event.sites.extend(pb.SiteStatus(site=site, status=said) for site, said in statuses.items())
        return event

    def cancel(self) -> None:
        """Stop before the next close; a round whose set of sites is frozen is released first."""
        self._cancelled = True
        self.consent.wake()
        if self.opened is not None:
            self.opened.ready.set()

    def assignment(self, site: str, poll: Poll) -> pb.NextWorkResponse | None:
        """Return the message that waits for `site`, else None. Before the first round it is the request for
        consent, then the open round or attempt. None if the site is answering, or if a person there must
        agree first."""
        if self.consent.open:
            return self.consent.assignment(site, poll)
        if self._assignment is None or self.digest in poll.awaiting_approval:
            return None
        opened = self._assignment.opened
        attempt_key = self.digest, opened.round_query.round, opened.number_for(site)
        if not opened.awaits(site) or attempt_key in poll.answered:
            return None
        return self._assignment.for_site(site, poll.known.get(self.digest, 0))

    def deny(self, sites: frozenset[str]) -> None:
        """Look again after a change of the denied sites."""
        self.consent.wake()
        if self.opened is not None:
            self.opened.deny(sites)

    async def note(self, site: str, said: SiteConsent) -> None:
        """Store the consent of `site`, and notify watchers."""
        opened = self.opened
        if opened is None or opened.closed or opened.state not in (RoundState.OPEN, RoundState.FIXED):
            await self.consent.note(site, said)
        else:
            await self.consent.note(site, said, partial(self._event_writer, opened))

    def _event_writer(self, opened: OpenRound) -> Callable[[Connection], None]:
        """Return a writer of the current event. Nothing of a close is published before its release [P27]."""
        round, event = opened.round_query.round, self.news(opened)
        return partial(study_writes.add_round_event, study=self.digest, round=round, event=event)

    def news(self, opened: OpenRound) -> pb.StudyEvent:
        return self._event(opened, opened.state)
