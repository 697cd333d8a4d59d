"""Study engine: starts, resumes and cancels all studies of one coordinator, and gives sites their work."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from eigenveil.errors import Code, EigenveilError, InternalError, PeerError, RequestError
from eigenveil.protocol.plan import Plan
from eigenveil_common import log
from eigenveil_common.files import failpoint
from eigenveil_common.storage.database import Connection
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.config import Config
from eigenveil_server.planning.submissions import (
    PreparedStudy,
    Submission,
    SubmissionPlanner,
    submission_used_error,
)
from eigenveil_server.recovery.checkpoints import awaited_sites
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.states import StudyState, denied_sites
from eigenveil_server.storage.study_reads import StoredStudy
from eigenveil_server.storage.submissions import SubmissionQuota, summary_of
from eigenveil_server.studies.operator_approvals import OperatorApprovals
from eigenveil_server.studies.runtime import Poll, Runtime
from eigenveil_server.studies.study_run import StudyRun
from eigenveil_server.studies.uploads import Uploads

CHECKPOINTS_SECONDS = 0.5  # between looks for missing checkpoints
REASSIGN_SECONDS = 1.0  # until a round is assigned again to a site that reports an answer on its way [R5]


class StudyEngine:
    """Running studies of one coordinator. `closing` makes every long poll answer at once."""

    def __init__(self, runtime: Runtime, config: Config) -> None:
        self._runtime = runtime
        self._repository = runtime.repository
        self._read = runtime.repository.store.read
        self.submissions = SubmissionPlanner(
            runtime.repository, runtime.keys, runtime.planning, runtime.compute, config
        )
        self._config = config
        self._quota = SubmissionQuota.of(config)
        self.uploads = Uploads(config.max_uploads, self.is_open)
        self._start_lock = asyncio.Lock()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._runs: dict[str, StudyRun] = {}
        self._states: dict[str, StudyState] = {}  # of every study
        self._approvals = OperatorApprovals(runtime, self._start_lock, self._launch)
        self._background: list[asyncio.Task[None]] = []
        self._polls_to_end: set[str] = set()
        self._denied = denied_sites(runtime.repository.store.reader)
        self.closing = False

    async def start(self) -> None:
        """Resume all studies; after a restore, once every site has presented its checkpoint [R20]."""
        self._states = await self._read(self._repository.studies.states)
        if await self._awaited():
            work = self._resume_when_complete()
        else:
            await self._resume()
            work = self._approvals.apply_decisions()
        self._background.append(asyncio.create_task(self._run_in_background(work)))

    async def _resume_when_complete(self) -> None:
        while missing := await self._awaited():
            log.event("checkpoints-awaited", sites=",".join(missing))
            while await self._awaited() == missing:
                await asyncio.sleep(CHECKPOINTS_SECONDS)
        log.event("checkpoints-complete")
        await self._resume()
        await self._approvals.apply_decisions()

    async def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` without a caller: a failure ends the process, as it does at an ordinary start."""
        try:
            await work
        except InternalError as problem:
            self._repository.fatal(problem)
        except Exception as problem:  # noqa: BLE001 - logged; the process ends
            log.logger.error("studies-not-resumed", exc_info=problem)
            detail = str(problem) if isinstance(problem, EigenveilError) else type(problem).__name__
            self._repository.fatal(InternalError(Code.BUG, f"the studies cannot be resumed: {detail}"))

    async def _awaited(self) -> list[str]:
        return await self._read(awaited_sites, self._repository.store.reader)

    async def _check_complete(self) -> None:
        if missing := await self._awaited():
            raise RequestError(
                Code.NOT_READY,
                "the coordinator was restored from a backup and waits for the checkpoints of "
                f"{', '.join(missing)}; try again later",
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
                    # Another version started it: it cannot go on.
                    await self._runtime.compute.run(self._abandon, stored, str(problem))
                else:
                    await self._launch(stored, plan)

    def _abandon(self, stored: StoredStudy, why: str) -> None:
        """End a study whose plan this version cannot run; what it spent stays spent."""
        at = self._repository.clock()
        self._repository.ledger.settle(
            stored.digest,
            lambda change: study_writes.end_unstarted(change, stored, StudyState.FAILED, at, why),
        )
        self._states[stored.digest] = StudyState.FAILED
        log.event("study-failed", study=stored.digest, analyst=stored.analyst)

    async def stop(self) -> None:
        """Stop driving; every study resumes at the next start."""
        tasks = [*self._tasks.values(), *self._background]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _launch(self, stored: StoredStudy, plan: Plan) -> None:
        """Drive a running study, unless it is driven already."""
        digest = stored.digest
        if await self._read(self._repository.studies.state, digest) is not StudyState.RUNNING:
            return
        run = await self._read(StudyRun, stored, plan, self._runtime, self._config, self.uploads.drop_closed)
        known = self._states.get(digest)
        if digest in self._runs or (known is not None and known.ended):
            return  # started, or also ended, during the read
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
        self._runtime.work.notify(run.sites)

    # ------------------------------------------------------------ analysts

    async def submit(self, submission: Submission) -> PreparedStudy:
        """Return the study of this submission: a new one, charged for and started, or the one made before.
        Planning changes nothing and may be abandoned; from the lock on, the work runs to its end. Raises
        RequestError: the study is refused, does not fit the budget, or the submission id belongs to another
        study."""
        wanted = await self.submissions.prepare(submission)
        stored = await self._repository.finish(self._store_and_start(wanted.stored, wanted.plan))
        return replace(wanted, stored=stored)

    async def _store_and_start(self, wanted: StoredStudy, plan: Plan) -> StoredStudy:
        async with self._start_lock:
            await self._check_complete()
            studies = self._repository.studies
            known = await self._read(studies.by_submission, wanted.analyst, wanted.submission)
            if known is not None and known.digest != wanted.digest:
                raise submission_used_error(known)
            if known is None:
                await self._read(self.submissions.check_quota, wanted.analyst, wanted.micro_rho)
                failpoint("study-planned")
                await self._runtime.compute.run(self._store, wanted, plan)
                failpoint("study-reserved")
                awaits = wanted.state is StudyState.AWAITING
                event = "study-awaits-approval" if awaits else "study-submitted"
                log.event(event, study=wanted.digest, analyst=wanted.analyst)
            await self._launch(known or wanted, plan)
        return known or wanted

    def _store(self, wanted: StoredStudy, plan: Plan) -> None:
        """Store a study, with its reservation unless it waits for approval. Raises as `add_study`."""
        summary = summary_of(plan)
        if wanted.state is StudyState.AWAITING:
            with self._repository.store.writer.transaction() as change:
                study_writes.add_study(change, wanted, "awaiting", self._quota, summary)
            return

        def insert(change: Connection) -> None:
            study_writes.add_study(change, wanted, "submitted", self._quota, summary)
            failpoint("study-reserving")

        self._repository.ledger.reserve(wanted.digest, plan.cost, insert, gaussian=plan.gaussian)

    async def cancel(self, digest: str, analyst: str) -> None:
        """Stop a study of this analyst; what it spent stays spent. Raises RequestError: not theirs, or ended
        otherwise already."""
        await self._check_complete()
        stored = await self._read(self._repository.studies.get, digest)
        if stored.analyst != analyst:
            raise RequestError(Code.NOT_FOUND, f"study {digest[:12]} is not one of yours")
        if stored.state is StudyState.AWAITING:
            await self._repository.finish(self._approvals.end_waiting(stored, "cancelled by its analyst"))
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
        """Return a study, if it is under way."""
        return self._runs.get(digest)

    async def run(self, digest: str) -> StudyRun:
        """Return a running study. Raises RequestError: code `not-found` or `conflict`: there is none of that
        digest, or it ended."""
        run = self.running(digest)
        if run is not None:
            return run
        stored = await self._read(self._repository.studies.get, digest)
        raise RequestError(Code.CONFLICT, f"study {digest[:12]} is {stored.state.value}; poll for new work")

    def is_open(self, study: str, round: int, attempt: int) -> bool:
        """True if this round, and this attempt, is the current one of its study."""
        run = self._runs.get(study)
        opened = None if run is None else run.opened
        return opened is not None and (opened.round_query.round, opened.number) == (round, attempt)

    async def receive(self, site: str, poll: Poll) -> None:
        """Note the consents that `site` states in a poll, and notify watchers."""
        for run in tuple(self._runs.values()):
            said = run.consent.newly_stated(site, poll)
            if said is not None:
                await self._repository.finish(run.note(site, said))

    async def sweep(self) -> None:
        """Make waiting studies look again after a change of the deny-list."""
        denied = await self._read(denied_sites, self._repository.store.reader)
        if denied != self._denied:
            self._denied = denied
            for run in self._runs.values():
                run.deny(denied)

    async def next_work(self, site: str, poll: Poll, seconds: float) -> pb.NextWorkResponse:
        """Return the next work for `site`; wait up to `seconds` for some [R5]."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        while True:
            waited = loop.time() - start
            if waited >= REASSIGN_SECONDS:
                answered = (one for one in poll.answered if self.uploads.is_in_progress((*one, site)))
                poll = replace(poll, answered=frozenset(answered))
            found = self._work(site, poll)
            if found is not None or waited >= seconds or self.closing or self._is_poll_to_end(site):
                return found or pb.NextWorkResponse()
            left = seconds - waited
            left = min(left, REASSIGN_SECONDS) if poll.answered else left
            await self._runtime.work.wait(left, site)

    def end_poll(self, site: str) -> None:
        """Answer the site's long poll now, even without work, to see if the site polls again [R18]."""
        self._polls_to_end.add(site)
        self._runtime.work.notify((site,))

    def _is_poll_to_end(self, site: str) -> bool:
        to_end = site in self._polls_to_end
        self._polls_to_end.discard(site)
        return to_end

    def _work(self, site: str, poll: Poll) -> pb.NextWorkResponse | None:
        ended = [
            pb.StudyEnd(
                plan_digest=bytes.fromhex(digest),
                state=pb.STUDY_STATE_UNSPECIFIED if state is None else state.proto,  # unknown here [R5]
            )
            for digest in sorted(poll.known)
            if (state := self._states.get(digest)) is not StudyState.RUNNING
        ]
        for run in self._runs.values():
            assignment = run.assignment(site, poll)
            if assignment is not None:
                failpoint("round-offered")
                if run.digest not in poll.known:
                    assignment.plan.CopyFrom(run.stored.signed_plan)
                assignment.ended.extend(ended)
                return assignment
        return pb.NextWorkResponse(ended=ended) if ended else None
