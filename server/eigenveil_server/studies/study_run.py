"""One running study: drives its session round by round; can be killed and resumed at any point.

The order within a round never changes: query durable -> sites answer -> set of sites frozen -> noise added ->
a tick -> price charged and release sealed, in one transaction -> published -> fed to the algorithm -> next
query durable. Before that transaction nothing depends on the draw: neither what this process computes nor
whether it lives on [P27]. Masked rounds draw nothing and are charged for each attempt before that is told:
`masked.driver` has their order.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial

from eigenveil import barrier
from eigenveil.errors import Code, EigenveilError, InternalError, RequestError, spoken
from eigenveil.mechanisms import noise_ahead
from eigenveil.noise.source import NoiseSource
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.release import Release
from eigenveil.protocol.round import RoundState
from eigenveil.queries import NAMES, released
from eigenveil.reporting.document import build, seal_bundle
from eigenveil.secure_aggregation.attempt import Attempt
from eigenveil_common import log
from eigenveil_common.failpoints import failpoint
from eigenveil_common.storage.database import Connection
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.following.session import StudySession
from eigenveil_server.masked.driver import MaskedDriver
from eigenveil_server.rounds.driver import ExactDriver, RoundDriver
from eigenveil_server.rounds.journal import RoundJournal
from eigenveil_server.rounds.offer import Offer, after
from eigenveil_server.rounds.open_round import OpenRound
from eigenveil_server.rounds.prepared_noise import NoiseAhead
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.consents import Consent
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.study_reads import StoredStudy
from eigenveil_server.studies.consent import ConsentPhase, Patience
from eigenveil_server.studies.poll import Poll
from eigenveil_server.studies.runtime import Runtime

# Integers of noise that are drawn while the sites compute. More are drawn once all answers are in: the sum,
# its noise and an answer that is being checked would be in memory at once.
MOST_AHEAD = 2**20


class Cancelled(Exception):
    """The analyst called the study off."""


class StudyRun:
    """One study under way: `state` is RUNNING until `drive` returns, `opened` is the latest round. `moved` is
    called once an attempt at one has taken the place of another."""

    def __init__(
        self,
        stored: StoredStudy,
        plan: Plan,
        runtime: Runtime,
        patience: Patience,
        moved: Callable[[], None],
    ) -> None:
        self.stored = stored
        self.plan = plan
        self.state = StudyState.RUNNING
        self._runtime = runtime
        self._repository = runtime.repository
        self._noise = NoiseAhead(runtime.noise, runtime.compute.draws)
        self._offer: Offer | None = None
        self._cancelled = False
        self.consent = ConsentPhase(
            stored, plan.study.federation, runtime.repository, runtime.signals.news, patience
        )
        self._moved = moved
        self._driver = self._driver_of(plan)

    def _driver_of(self, plan: Plan) -> RoundDriver:
        repository, sign = self._repository, self._runtime.keys.release.sign
        if not plan.masked:
            federation = plan.study.federation
            return ExactDriver(federation=federation, repository=repository, sign=sign, tell=self._told)
        return MaskedDriver(
            study=plan.study, repository=repository, sign=sign, tell=self._told,
            compute=self._runtime.compute, waiting=self.consent.waiting,
            check=self._stop_if_cancelled, switch=self._switch,
        )  # fmt: skip

    @property
    def digest(self) -> str:
        return self.stored.digest

    @property
    def opened(self) -> OpenRound | None:
        """The latest round; None before the first, and after the end."""
        return None if self._offer is None else self._offer.opened

    async def drive(self) -> None:
        """Run to the end, whatever it is. A storage error ends the process."""
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
            wide = any(session.apart(one.release.values.size) for one in sealed)
            run = compute.alone if wide else compute.run
            await run(session.replay, [one.release for one in sealed])
            del sealed
            data = await self._driven(session)
        finally:  # apart from threads all of which may wait for what this ends
            await asyncio.to_thread(session.close)
        failpoint("bundle-built")
        await self._end(StudyState.RELEASED, release=data)

    async def _driven(self, session: StudySession) -> bytes:
        """Round by round; the signed release."""
        compute = self._runtime.compute
        self._runtime.signals.work.ring()
        await self.consent.complete(self._stop_if_cancelled)
        failpoint("consent-complete")
        self._stop_if_cancelled()
        offer = await compute.run(self._driver.first, session)
        while offer is not None:
            self._offer = offer
            self._stop_if_cancelled()
            with self._runtime.metrics.round():
                offer = await self._one_round(offer, session)
        return await compute.run(self._bundle, session)

    async def _fail_for_defect(self, problem: Exception) -> None:
        log.logger.error("study-stopped study=%s", self.digest[:12], exc_info=problem)
        detail = str(problem) if isinstance(problem, InternalError) else type(problem).__name__
        await self._end(
            StudyState.FAILED, f"a defect of the coordinator stopped the study: {detail}; tell its operator"
        )

    def _stop_if_cancelled(self) -> None:
        if self._cancelled:
            raise Cancelled

    async def _one_round(self, offer: Offer, session: StudySession) -> Offer | None:
        """From an open question to its release, and on to the next one; None if nothing more is asked."""
        self._announce(offer)
        try:
            spec = noise_ahead(offer.opened.asked, self.plan.study)
            late = spec is not None and spec.length > MOST_AHEAD
            if spec is not None and not late:
                self._noise.prepare(spec)  # only now: the question leaves first, then the sites compute
            offer = await self._driver.answered(offer)
            opened = offer.opened
            present = await self._close(opened)
            if late and spec is not None:
                self._noise.prepare(spec)
            await self._noise.drawn()
            failpoint("noise-drawn")
            journal = self._journal(offer, session)
            noise = self._runtime.noise if spec is None else self._noise
            compute = self._runtime.compute
            run = compute.alone if session.apart(released(opened.asked.query)) else compute.run
            release = await run(self._release, opened, present, journal, noise)
        except asyncio.CancelledError:  # the process stops; whatever else ends the round ends the study
            if self.opened is not None:
                self.opened.settle(durable=False)
            raise
        opened.settle(durable=True)
        failpoint("round-released")
        self._enter(opened, RoundState.RELEASED)
        self._runtime.signals.news.ring()
        follow = self._driver.following(offer, session)
        return await run(self._followed, session, release, lambda: follow(journal.last))

    def _followed(
        self, session: StudySession, release: Release, follow: Callable[[], Offer | None]
    ) -> Offer | None:
        """Off the event loop: the algorithm sees a release that is charged and stored [P27]."""
        session.feed(release)
        failpoint("round-followed")
        if session.pending is not None:
            self._stop_if_cancelled()  # an attempt at a masked round is charged when it is opened
        return follow()

    def _announce(self, offer: Offer) -> None:
        """Tell sites and watchers of a question that is durably open."""
        self._runtime.signals.work.ring()
        self._runtime.signals.news.ring()
        asked = offer.opened.asked
        log.event("round-open", study=self.digest, round=asked.round, kind=NAMES[type(asked.query)])
        self._tell_set(offer.opened.attempt)

    def _tell_set(self, attempt: Attempt | None) -> None:
        if attempt is not None:
            self._runtime.metrics.attempted()
            number, sites = attempt.number, ",".join(attempt.sites)
            log.event("set-fixed", study=self.digest, round=attempt.round, attempt=number, sites=sites)
            failpoint("set-fixed")

    def _switch(self, offer: Offer) -> None:
        """Another attempt, durable and charged, is what sites are offered from here on."""
        self._offer = offer
        self._moved()
        self._runtime.signals.work.ring()
        self._runtime.signals.news.ring()
        self._tell_set(offer.opened.attempt)

    async def _close(self, opened: OpenRound) -> tuple[str, ...]:
        """Freeze the set of sites, in this process only: nobody is told of it before the release."""
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
            why = f"{spoken(opened.asked.round)}: {problem} ({opened.reasons(self.consent.waiting())})"
            raise RequestError(problem.code, why) from problem

    def _journal(self, offer: Offer, session: StudySession) -> RoundJournal:
        opened, driver = offer.opened, self._driver
        spent = driver.spent(opened.asked, session)
        return RoundJournal(
            study=self.digest,
            attempt=opened.number,
            macs=opened.macs(),
            absent=opened.absent(),
            query=offer.message.query,
            after=after(session),
            sign=self._runtime.keys.release.sign,
            event=self._event(opened, RoundState.RELEASED, spent=spent),
            book=driver.book,
            repository=self._repository,
        )

    def _told(self, opened: OpenRound, spent: int) -> pb.StudyEvent:
        return self._event(opened, opened.state, spent=spent)

    def _release(
        self, opened: OpenRound, present: tuple[str, ...], journal: RoundJournal, noise: NoiseSource
    ) -> Release:
        """Off the event loop in one go, because every site waits for it."""
        return barrier.release(
            opened.asked, opened.total(), present, plan=self.plan, journal=journal, noise=noise
        )

    def _enter(self, opened: OpenRound, state: RoundState) -> None:
        opened.enter(state)
        if state is RoundState.RELEASED:
            log.event("round-released", study=self.digest)

    def _bundle(self, session: StudySession) -> bytes:
        document = build(
            self.plan,
            session.result,
            session.releases,
            rounds=self._repository.studies.records(self.digest),
            private=self._noise.private,
            sites=json.loads(self.stored.stated),
            authorization=self.stored.authorization,
        )
        keys = self._runtime.keys
        return seal_bundle(document, sign=keys.release.sign, public_key=keys.release_public)

    async def _end(self, state: StudyState, failure: str = "", release: bytes | None = None) -> None:
        self._noise.discard()
        # Nothing was open if all that a study asks was sealed by an earlier process, or if it failed before.
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
                macs, round = opened.macs(), opened.asked.round
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
        self.state, self._offer = state, None
        log.event(f"study-{state.value}", study=self.digest, analyst=self.stored.analyst)
        self._runtime.signals.news.ring()

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
            event.round, event.query_kind = opened.asked.round, NAMES[type(opened.asked.query)]
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

    def offer(self, site: str, poll: Poll) -> pb.NextWorkResponse | None:
        """What waits for `site`: its word, before the first round; then the open round, or an attempt at it,
        unless it says that it answers that, or that a person there has to agree first."""
        if self.consent.open:
            return self.consent.offer(site, poll)
        if self._offer is None or self.digest in poll.awaiting:
            return None
        opened = self._offer.opened
        place = self.digest, opened.asked.round, opened.number_for(site)
        if not opened.wants(site) or place in poll.answered:
            return None
        return self._offer.to(site, poll.known.get(self.digest, 0))

    def deny(self, sites: frozenset[str]) -> None:
        """Other sites than before are shut out: look again at whom this waits for."""
        self.consent.wake()
        if self.opened is not None:
            self.opened.deny(sites)

    async def note(self, site: str, said: Consent) -> None:
        """Remember what `site` says of the study, and have whoever watches see it."""
        opened = self.opened
        if opened is None or opened.closed or opened.state not in (RoundState.OPEN, RoundState.FIXED):
            await self.consent.note(site, said)
        else:
            await self.consent.note(site, said, partial(self._telling, opened))

    def _telling(self, opened: OpenRound) -> Callable[[Connection], None]:
        """Stores what is so now, whenever that is: nobody hears of a close before its release [P27]."""
        round, event = opened.asked.round, self.news(opened)
        return partial(study_writes.add_news, study=self.digest, round=round, event=event)

    def news(self, opened: OpenRound) -> pb.StudyEvent:
        return self._event(opened, opened.state)
