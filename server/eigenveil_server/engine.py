"""All studies of one coordinator: submit, run, resume, cancel, and what sites find to do."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Collection

from eigenveil.errors import Code, RequestError
from eigenveil.plan import Plan, make_plan, plan_from_json
from eigenveil.rehearsal import rehearse
from eigenveil.study import Study
from eigenveil.study_toml import parse_study
from eigenveil.wire import query_to_proto
from eigenveil_common import log
from eigenveil_common.rpc import MESSAGE_BYTES
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server import changes
from eigenveil_server.database import audit
from eigenveil_server.resources import Resources
from eigenveil_server.run import StudyRun
from eigenveil_server.states import StudyState
from eigenveil_server.studies import StoredStudy
from eigenveil_server.uploads import Uploads

SUBMISSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
ENVELOPE_BYTES = 64 * 1024  # what a message holds besides the plan and the query
Place = tuple[str, int]  # a study's digest and a round
OFFER_AGAIN = 1.0  # seconds after which a round is offered to a site that says it answered it [R5]


class Engine:
    """The running studies. `closing` makes every long poll answer at once."""

    def __init__(self, resources: Resources, federation: str, uploads: Uploads) -> None:
        self._resources = resources
        self.uploads = uploads
        self._federation = federation
        self._submitting = asyncio.Lock()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._runs: dict[str, StudyRun] = {}
        self._ended: dict[str, StudyState] = {}
        self.closing = False

    async def start(self) -> None:
        """Take up every study where the last process left it."""
        for stored in self._resources.studies.all():
            if stored.state is StudyState.RUNNING:
                log.event("study-resumed", study=stored.digest)
                self._launch(stored, await self._resources.compute(plan_from_json, stored.plan_json))
            else:
                self._ended[stored.digest] = stored.state

    async def stop(self) -> None:
        """Stop driving; every study resumes at the next start."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _launch(self, stored: StoredStudy, plan: Plan) -> None:
        run = StudyRun(stored, plan, self._resources)
        self._runs[stored.digest] = run
        self._tasks[stored.digest] = asyncio.create_task(self._drive(run))

    async def _drive(self, run: StudyRun) -> None:
        await run.drive()
        self._ended[run.digest] = run.state
        del self._runs[run.digest], self._tasks[run.digest]
        self.uploads.drop_closed(lambda upload: self.is_open(upload.study, upload.round))
        self._resources.bell.ring()

    # ------------------------------------------------------------ analysts

    async def submit(
        self, analyst: str, study_toml: str, submission: str, enrolled: Collection[str]
    ) -> StoredStudy:
        """The study of this submission: a new one, charged for and started, or the one made before.

        Raises:
            RequestError: the study is refused, does not fit the budget, or the submission was used
                for another study.
        """
        if SUBMISSION.fullmatch(submission) is None:
            raise RequestError(
                Code.BAD_ARGUMENT,
                "a submission id has 1 to 64 letters, digits, dots, hyphens or underscores",
            )
        async with self._submitting:
            study = await self._resources.compute(parse_study, study_toml)
            known = self._resources.studies.by_submission(analyst, submission)
            if known is not None:
                await self._resources.compute(_check_same, known, study)
                return known
            self._check_sites(study, enrolled)
            plan, stored = await self._resources.compute(self._new_study, study, analyst, submission)
            self._launch(stored, plan)
        log.event("study-submitted", study=stored.digest, analyst=analyst)
        return stored

    def _check_sites(self, study: Study, enrolled: Collection[str]) -> None:
        strange = sorted(set(study.federation.sites) - set(enrolled))
        if strange:
            raise RequestError(
                Code.BAD_STUDY,
                f"not enrolled in {self._federation}: {', '.join(strange)} "
                f"(enrolled sites: {', '.join(sorted(enrolled)) or 'none'})",
            )

    def _new_study(self, study: Study, analyst: str, submission: str) -> tuple[Plan, StoredStudy]:
        plan = make_plan(study, federation=self._federation, submission=submission)
        rounds = _rehearsed(plan)
        if self._resources.studies.state(plan.digest) is not None:
            raise RequestError(
                Code.CONFLICT, "another analyst used this submission id for this study; choose another"
            )
        stored = StoredStudy(
            digest=plan.digest,
            name=study.name,
            analyst=analyst,
            submission=submission,
            plan_json=plan.to_json(),
            signature=self._resources.keys.sign_plan(plan.to_json()),
            micro_rho=plan.micro_rho,
            expected_rounds=rounds,
            state=StudyState.RUNNING,
            failure="",
            submitted_at=self._resources.clock(),
        )

        def insert(change: sqlite3.Connection) -> None:
            stored.insert(change)
            changes.add_event(change, stored.digest, _first_event(stored))
            audit(change, stored.submitted_at, "submitted", f"analyst/{analyst}", stored.digest)

        self._resources.books.reserve(stored.digest, plan.cost, insert)
        return plan, stored

    async def cancel(self, digest: str, analyst: str) -> None:
        """Stop a study of this analyst; what it spent stays spent.

        Raises:
            RequestError: not theirs, or ended otherwise already.
        """
        stored = self._resources.studies.get(digest)
        if stored.analyst != analyst:
            raise RequestError(Code.NOT_FOUND, f"study {digest[:12]} is not yours to cancel")
        run, task = self._runs.get(digest), self._tasks.get(digest)
        if run is not None and task is not None:
            run.cancel()
            await asyncio.wait({task})
        state = self._resources.studies.get(digest).state
        if state is not StudyState.CANCELLED:
            raise RequestError(Code.CONFLICT, f"study {digest[:12]} has ended already: it is {state.value}")

    # ------------------------------------------------------------ sites

    def run(self, digest: str) -> StudyRun:
        """A running study.

        Raises:
            RequestError: code `not-found` or `conflict`: there is none of that digest, or it ended.
        """
        run = self._runs.get(digest)
        if run is not None:
            return run
        stored = self._resources.studies.get(digest)
        raise RequestError(Code.CONFLICT, f"study {digest[:12]} is {stored.state.value}; ask for work")

    def is_open(self, digest: str, round: int) -> bool:
        """Whether this is the round that a study is at."""
        run = self._runs.get(digest)
        return run is not None and run.inbox is not None and run.inbox.query.round == round

    async def next_work(
        self, site: str, known: frozenset[str], answered: frozenset[Place], seconds: float
    ) -> pb.NextWorkResponse:
        """What `site` should do next; waits up to `seconds` for something [R5]."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        while True:
            waited = loop.time() - start
            claims = answered if waited < OFFER_AGAIN else self._moving(site, answered)
            found = self._work(site, known, claims)
            if found is not None or waited >= seconds or self.closing:
                return found or pb.NextWorkResponse()
            left = seconds - waited
            await self._resources.bell.wait(min(left, OFFER_AGAIN) if answered else left)

    def _moving(self, site: str, answered: frozenset[Place]) -> frozenset[Place]:
        return frozenset(place for place in answered if self.uploads.moving((*place, site)))

    def _work(
        self, site: str, known: frozenset[str], answered: frozenset[Place]
    ) -> pb.NextWorkResponse | None:
        ended = [
            pb.StudyEnd(plan_digest=bytes.fromhex(digest), state=self._ended[digest].proto)
            for digest in sorted(known)
            if digest in self._ended
        ]
        for run in self._runs.values():
            offer = run.offer(site, answered)
            if offer is not None:
                plan = None if run.digest in known else run.stored.signed_plan
                return pb.NextWorkResponse(
                    plan=plan,
                    query=offer.query,
                    deadline_unix_ms=offer.deadline_unix_ms,
                    ended=ended,
                )
        return pb.NextWorkResponse(ended=ended) if ended else None


def _check_same(known: StoredStudy, study: Study) -> None:
    if known.plan.study != study:
        raise RequestError(
            Code.CONFLICT,
            f"submission {known.submission} made another study before; choose a new submission id",
        )


def _rehearsed(plan: Plan) -> int:
    """How many rounds the plan expects to ask; refuses one whose questions do not fit a message."""
    queries = rehearse(plan)
    largest = max(query_to_proto(query).ByteSize() for query in queries)
    if largest + len(plan.to_json()) + ENVELOPE_BYTES > MESSAGE_BYTES:
        raise RequestError(
            Code.OVERFLOW,
            f"a question of this study has {largest} bytes, and a message holds {MESSAGE_BYTES} with "
            "the plan; ask for fewer components or columns",
        )
    return len(queries)


def _first_event(stored: StoredStudy) -> pb.StudyEvent:
    return pb.StudyEvent(
        state=pb.STUDY_STATE_RUNNING,
        round_state="planned",
        micro_rho=stored.micro_rho,
        expected_rounds=stored.expected_rounds,
    )
