"""All studies of one coordinator: take up, run, resume, cancel, and what sites find to do."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from eigenveil.errors import Code, EigenveilError, InternalError, PeerError, RequestError
from eigenveil.protocol.plan import Plan
from eigenveil_common import log
from eigenveil_common.failpoints import failpoint
from eigenveil_common.storage.database import Connection
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.config import Config
from eigenveil_server.planning.submissions import Prepared, Submission, Submissions, used
from eigenveil_server.recovery.checkpoints import awaited
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.consents import shut_out
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.study_reads import StoredStudy
from eigenveil_server.storage.submissions import PlanSummary, SubmissionQuota, summary_of
from eigenveil_server.studies.consent import Patience
from eigenveil_server.studies.operator_approvals import OperatorApprovals
from eigenveil_server.studies.poll import Place, Poll
from eigenveil_server.studies.runtime import Runtime
from eigenveil_server.studies.study_run import StudyRun
from eigenveil_server.studies.uploads import Uploads

CHECKPOINTS_SECONDS = 0.5  # how often to look whether every checkpoint is there
OFFER_AGAIN = 1.0  # seconds after which a round is offered to a site that says it answered it [R5]


class Engine:
    """The running studies. `closing` makes every long poll answer at once."""

    def __init__(self, runtime: Runtime, config: Config) -> None:
        self._runtime = runtime
        self._repository = runtime.repository
        self._read = runtime.repository.store.read
        self.submissions = Submissions(
            runtime.repository, runtime.keys, runtime.planning, runtime.compute, config
        )
        self._patience = Patience.of(config)
        self._quota = SubmissionQuota.of(config)
        self.uploads = Uploads(config.max_uploads, self.is_open)
        self._taking = asyncio.Lock()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._runs: dict[str, StudyRun] = {}
        self._states: dict[str, StudyState] = {}  # of every study there is
        self._approvals = OperatorApprovals(
            runtime.repository, runtime.compute, runtime.signals, self._taking, self._launch
        )
        self._waiting: list[asyncio.Task[None]] = []
        self._hurried: set[str] = set()
        self._denied = shut_out(runtime.repository.store.reader)
        self.closing = False

    async def start(self) -> None:
        """Take up every study where the last process left it; after a restore, once every site has shown
        its checkpoint of the ledger [R20]."""
        self._states = await self._read(self._repository.studies.states)
        if await self._awaited():
            self._waiting.append(asyncio.create_task(self._unattended(self._resume_when_complete())))
        else:
            await self._resume()
            self._waiting.append(asyncio.create_task(self._unattended(self._approvals.heed())))

    async def _resume_when_complete(self) -> None:
        while missing := await self._awaited():
            log.event("checkpoints-awaited", sites=",".join(missing))
            while await self._awaited() == missing:
                await asyncio.sleep(CHECKPOINTS_SECONDS)
        log.event("checkpoints-complete")
        await self._resume()
        await self._approvals.heed()

    async def _unattended(self, work: Coroutine[Any, Any, None]) -> None:
        """Nobody waits for this: what fails here ends the process, as it does at an ordinary start."""
        try:
            await work
        except InternalError as problem:
            self._repository.fatal(problem)
        except Exception as problem:  # noqa: BLE001 - logged; the process ends
            log.logger.error("studies-not-resumed", exc_info=problem)
            detail = str(problem) if isinstance(problem, EigenveilError) else type(problem).__name__
            self._repository.fatal(InternalError(Code.BUG, f"the studies cannot be resumed: {detail}"))

    async def _awaited(self) -> list[str]:
        return await self._read(awaited, self._repository.store.reader)

    async def _check_complete(self) -> None:
        if missing := await self._awaited():
            raise RequestError(
                Code.NOT_READY,
                "the coordinator was restored from a backup and waits for its sites to say what they have "
                f"seen; still missing: {', '.join(missing)}; try again later",
            )

    async def _resume(self) -> None:
        for stored in await self._read(self._repository.studies.under_way):
            if stored.state is StudyState.RUNNING and stored.digest not in self._runs:
                log.event("study-resumed", study=stored.digest)
                failpoint("study-resumed")
                try:
                    plan = await self._runtime.plan(stored)
                except PeerError as problem:
                    if problem.code is not Code.VERSION:
                        raise
                    # Begun by another version: nothing goes on from here.
                    await self._runtime.compute.run(self._abandon, stored, str(problem))
                else:
                    await self._launch(stored, plan)

    def _abandon(self, stored: StoredStudy, why: str) -> None:
        """End a study whose plan this version cannot run; what it spent stays spent."""
        at = self._repository.clock()
        self._repository.ledger.settle(
            stored.digest, lambda change: study_writes.end_unrun(change, stored, StudyState.FAILED, at, why)
        )
        self._states[stored.digest] = StudyState.FAILED
        log.event("study-failed", study=stored.digest, analyst=stored.analyst)

    async def stop(self) -> None:
        """Stop driving; every study resumes at the next start."""
        tasks = [*self._tasks.values(), *self._waiting]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _launch(self, stored: StoredStudy, plan: Plan) -> None:
        """Drive a running study, unless it is driven already."""
        digest = stored.digest
        if await self._read(self._repository.studies.state, digest) is not StudyState.RUNNING:
            return
        moved = self.uploads.drop_closed
        run = await self._read(StudyRun, stored, plan, self._runtime, self._patience, moved)
        known = self._states.get(digest)
        if digest in self._runs or (known is not None and known.ended):
            return  # begun, or begun and ended, while the database was read
        self._states[digest] = StudyState.RUNNING
        self._runs[digest] = run
        self._tasks[digest] = asyncio.create_task(self._drive(run))

    async def _drive(self, run: StudyRun) -> None:
        try:
            await run.drive()
        finally:
            self._states[run.digest] = run.state
            del self._runs[run.digest], self._tasks[run.digest]
        self.uploads.drop_closed()
        self._runtime.signals.work.ring()

    # ------------------------------------------------------------ analysts

    async def submit(self, submission: Submission) -> Prepared:
        """The study of this submission: a new one, charged for and started, or the one made before.

        Planning changes nothing and may be abandoned; from the lock on, the work is done to its end.

        Raises:
            RequestError: the study is refused, does not fit the budget, or the submission was used
                for another study.
        """
        wanted = await self.submissions.prepare(submission)
        stored = await self._repository.finish(self._take(wanted.stored, wanted.plan))
        return replace(wanted, stored=stored)

    async def _take(self, wanted: StoredStudy, plan: Plan) -> StoredStudy:
        async with self._taking:
            await self._check_complete()
            studies = self._repository.studies
            known = await self._read(studies.by_submission, wanted.analyst, wanted.submission)
            if known is not None and known.digest != wanted.digest:
                raise used(known)
            if known is None:
                await self._read(self.submissions.check_quota, wanted.analyst, wanted.micro_rho)
                failpoint("study-planned")
                awaiting, compute = wanted.state is StudyState.AWAITING, self._runtime.compute
                summary = await compute.run(summary_of, wanted.plan_json)
                if awaiting:
                    await compute.run(self._approvals.hold, wanted, self._quota, summary)
                else:
                    await compute.run(self._reserve, wanted, plan, summary)
                failpoint("study-reserved")
                event = "study-awaits-approval" if awaiting else "study-submitted"
                log.event(event, study=wanted.digest, analyst=wanted.analyst)
            await self._launch(known or wanted, plan)
        return known or wanted

    def _reserve(self, stored: StoredStudy, plan: Plan, summary: PlanSummary) -> None:
        def insert(change: Connection) -> None:
            study_writes.add_study(change, stored, "submitted", self._quota, summary)
            failpoint("study-reserving")

        self._repository.ledger.reserve(stored.digest, plan.cost, insert, gaussian=plan.gaussian)

    async def cancel(self, digest: str, analyst: str) -> None:
        """Stop a study of this analyst; what it spent stays spent.

        Raises:
            RequestError: not theirs, or ended otherwise already.
        """
        await self._check_complete()
        stored = await self._read(self._repository.studies.get, digest)
        if stored.analyst != analyst:
            raise RequestError(Code.NOT_FOUND, f"study {digest[:12]} is not yours to cancel")
        if stored.state is StudyState.AWAITING:
            await self._repository.finish(self._approvals.drop(stored, "cancelled by its analyst"))
        if stored.state is StudyState.RUNNING and digest not in self._runs:
            await self._launch(stored, await self._runtime.plan(stored))
        run, task = self._runs.get(digest), self._tasks.get(digest)
        if run is not None and task is not None:
            failpoint("study-cancelling")
            run.cancel()
            await asyncio.wait({task})
        state = (await self._read(self._repository.studies.get, digest)).state
        if state is not StudyState.CANCELLED:
            raise RequestError(Code.CONFLICT, f"study {digest[:12]} has ended already: it is {state.value}")

    # ------------------------------------------------------------ sites

    def running(self, digest: str) -> StudyRun | None:
        """A study, if it is under way."""
        return self._runs.get(digest)

    async def run(self, digest: str) -> StudyRun:
        """A running study.

        Raises:
            RequestError: code `not-found` or `conflict`: there is none of that digest, or it ended.
        """
        run = self.running(digest)
        if run is not None:
            return run
        stored = await self._read(self._repository.studies.get, digest)
        raise RequestError(Code.CONFLICT, f"study {digest[:12]} is {stored.state.value}; ask for work")

    def is_open(self, study: str, round: int, attempt: int) -> bool:
        """Whether a round, and an attempt at it, is the one that its study is at."""
        run = self._runs.get(study)
        opened = None if run is None else run.opened
        return opened is not None and (opened.asked.round, opened.number) == (round, attempt)

    async def hear(self, site: str, poll: Poll) -> None:
        """What `site` says of the studies under way, as of now; whoever watches is told."""
        for run in tuple(self._runs.values()):
            said = run.consent.heard(site, poll)
            if said is not None:
                await self._repository.finish(run.note(site, said))

    async def sweep(self) -> None:
        """Have the studies that wait for sites look again once one is denied, or let in again."""
        denied = await self._read(shut_out, self._repository.store.reader)
        if denied != self._denied:
            self._denied = denied
            for run in self._runs.values():
                run.deny(denied)

    async def next_work(self, site: str, poll: Poll, seconds: float) -> pb.NextWorkResponse:
        """What `site` should do next; waits up to `seconds` for something [R5]."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        while True:
            waited = loop.time() - start
            if waited >= OFFER_AGAIN:
                poll = replace(poll, answered=self._moving(site, poll.answered))
            found = self._work(site, poll)
            if found is not None or waited >= seconds or self.closing or self._hurries(site):
                return found or pb.NextWorkResponse()
            left = seconds - waited
            left = min(left, OFFER_AGAIN) if poll.answered else left
            await self._runtime.signals.work.wait(left, site)

    def hurry(self, site: str) -> None:
        """Answer the site's long-poll now, even with nothing, to see whether anybody asks again [R18]."""
        self._hurried.add(site)
        self._runtime.signals.work.ring(site)

    def _hurries(self, site: str) -> bool:
        hurried = site in self._hurried
        self._hurried.discard(site)
        return hurried

    def _moving(self, site: str, answered: frozenset[Place]) -> frozenset[Place]:
        return frozenset(place for place in answered if self.uploads.moving((*place, site)))

    def _work(self, site: str, poll: Poll) -> pb.NextWorkResponse | None:
        ended = [
            pb.StudyEnd(plan_digest=bytes.fromhex(digest), state=self._end_of(digest))
            for digest in sorted(poll.known)
            if self._states.get(digest) is not StudyState.RUNNING
        ]
        for run in self._runs.values():
            offer = run.offer(site, poll)
            if offer is not None:
                failpoint("round-offered")
                if run.digest not in poll.known:
                    offer.plan.CopyFrom(run.stored.signed_plan)
                offer.ended.extend(ended)
                return offer
        return pb.NextWorkResponse(ended=ended) if ended else None

    def _end_of(self, digest: str) -> pb.StudyState.ValueType:
        """UNSPECIFIED for a study that this coordinator has never heard of, or has forgotten [R5]."""
        state = self._states.get(digest)
        return pb.STUDY_STATE_UNSPECIFIED if state is None else state.proto
