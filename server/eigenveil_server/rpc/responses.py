"""Responses about studies: the list in parts, its rows and errors; a site's next work [R5] [R26] [R27]."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field

from eigenveil.errors import Code, RequestError
from eigenveil.identity import Identity, Role
from eigenveil_common.rpc import MESSAGE_BYTES
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.front.quota import TokenBucket
from eigenveil_server.metrics import Metrics
from eigenveil_server.recovery.checkpoints import Checkpoints
from eigenveil_server.rpc.interceptor import CALLER, check_still_admitted
from eigenveil_server.rpc.sites import SiteDirectory
from eigenveil_server.storage.repository import Repository
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.study_reads import StoredStudy
from eigenveil_server.storage.submissions import ListedStudy
from eigenveil_server.studies.engine import StudyEngine
from eigenveil_server.studies.runtime import Poll, Runtime


def is_own_study(caller: Identity, analyst: str) -> bool:
    """Return True if the caller is the analyst of the study."""
    return caller.role is Role.ANALYST and caller.name == analyst


def clear_consent_texts(message: pb.StudyRow | pb.StudyEvent) -> None:
    """Remove what only the study's analyst may read: texts of persons at sites, and rules of sites [R9]."""
    for consent in message.consent:
        consent.ClearField("text")
        consent.ClearField("rule")


def federation_budget(repository: Repository, delta: float) -> pb.FederationBudget:
    """Return the federation's budget, and how much of it is spent or reserved. It reveals no more than the
    sum of the listed rows and a refusal. [R26]"""
    totals = repository.ledger.totals
    return pb.FederationBudget(
        delta=delta,
        gaussian=totals.exact,
        micro_rho=totals.limit.micro_rho,
        committed_micro_rho=totals.committed.micro_rho,
        atto_delta=totals.limit.atto_delta,
        committed_atto_delta=totals.committed.atto_delta,
    )


def no_release_error(stored: StoredStudy) -> RequestError:
    name = f"study {stored.digest[:12]}"
    code, message = {
        StudyState.FAILED: (Code.STUDY_FAILED, stored.failure),
        StudyState.CANCELLED: (Code.CANCELLED, f"{name} was {stored.failure}"),
        StudyState.AWAITING: (Code.NOT_READY, f"{name} waits for the approval of the coordinator's operator"),
    }.get(stored.state, (Code.NOT_READY, f"{name} is still running; watch it"))
    return RequestError(code, message)


STUDIES_AT_ONCE = 1000
ROOM = MESSAGE_BYTES // 2  # for the rows of one answer
LEAST_PAUSE = 0.05  # seconds
BURST, RATE = 40.0, 2.0  # reads of one caller; the burst covers 40,000 studies


class StudyList:
    """List of studies, read off the event loop. The consent of a running study is in memory only. One part of
    the list is read at a time for each caller, under a rate limit. Calls for the same part that come
    meanwhile share the next answer, which is read after they came. So sixty calls at once cost as much as
    two, and sixty clients in a loop as much as two reads a second."""

    def __init__(self, runtime: Runtime, engine: StudyEngine, budget_delta: float) -> None:
        self._runtime = runtime
        self._repository = runtime.repository
        self._engine = engine
        self._budget_delta = budget_delta
        self._queues: dict[str, CallerQueue] = defaultdict(CallerQueue)
        self._allowances: dict[str, TokenBucket] = {}  # of recent callers

    async def part(self, caller: Identity, after: str) -> pb.ListStudiesResponse:
        """Return the studies after `after` (from the oldest, if empty), as many as fit a message."""
        queue = self._queues[caller.uri]
        pending_part = queue.next.get(after)
        if pending_part is None:
            pending_part = queue.next[after] = self._start_part(queue, caller, after)
        pending_part.waiting += 1
        try:
            return await asyncio.shield(pending_part.answer)
        finally:
            pending_part.waiting -= 1
            # A read that has begun is finished.
            if not pending_part.waiting and queue.next.get(after) is pending_part:
                del queue.next[after]
                pending_part.answer.cancel()

    def _start_part(self, queue: CallerQueue, caller: Identity, after: str) -> PendingPart:
        pending_part = PendingPart(answer=asyncio.ensure_future(self._read_in_turn(queue, caller, after)))
        queue.pending_parts.append(pending_part)

        def ended(answer: asyncio.Future[pb.ListStudiesResponse]) -> None:
            if not answer.cancelled():
                answer.exception()  # retrieved, or asyncio would log it
            queue.pending_parts.remove(pending_part)
            if not queue.pending_parts:
                del self._queues[caller.uri]

        pending_part.answer.add_done_callback(ended)
        return pending_part

    async def _read_in_turn(self, queue: CallerQueue, caller: Identity, after: str) -> pb.ListStudiesResponse:
        async with queue.lock:
            await self._wait_for_allowance(caller.uri)
            del queue.next[after]  # calls from now on wait for the next read
            return await self._part(caller, after)

    async def _wait_for_allowance(self, caller: str) -> None:
        """Wait until the rate limit allows another read of this caller."""
        if caller not in self._allowances:
            recent = {name: one for name, one in self._allowances.items() if not one.full}
            self._allowances = recent | {caller: TokenBucket(burst=BURST, rate=RATE)}
        allowance = self._allowances[caller]
        while not allowance.spend(1.0):
            await asyncio.sleep(max(allowance.seconds, LEAST_PAUSE))

    async def _part(self, caller: Identity, after: str) -> pb.ListStudiesResponse:
        rows = await self._runtime.compute.run(self._rows, after, caller)
        answer = pb.ListStudiesResponse(budget=federation_budget(self._repository, self._budget_delta))
        answer.more, size = len(rows) > STUDIES_AT_ONCE, 0
        for row in rows[:STUDIES_AT_ONCE]:
            if (run := self._engine.running(row.plan_digest.hex())) is not None:
                run.consent.add_consent_status(row)
            if not is_own_study(caller, row.analyst):
                clear_consent_texts(row)
            size += row.ByteSize()
            if answer.studies and size > ROOM:
                answer.more = True
                break
            answer.studies.append(row)
        return answer

    def _rows(self, after: str, caller: Identity) -> list[pb.StudyRow]:
        """Return the rows of one part and of one study more, without the consent to running studies."""
        studies = self._repository.lists.list_after(after, STUDIES_AT_ONCE + 1)
        rounds = self._repository.studies.rounds_of([one.digest for one in studies])
        return [self._row(one, rounds.get(one.digest, 0), caller) for one in studies]

    def _row(self, stored: ListedStudy, rounds: int, caller: Identity) -> pb.StudyRow:
        is_own = is_own_study(caller, stored.analyst)
        return pb.StudyRow(
            plan_digest=bytes.fromhex(stored.digest),
            name=stored.name,
            state=stored.state.proto,
            analyst=stored.analyst,
            micro_rho=stored.micro_rho,
            atto_delta=stored.summary.atto_delta,
            spent_micro_rho=self._repository.ledger.spent(stored.digest),
            rounds=rounds,
            submitted_unix_ms=stored.submitted_at,
            failure=stored.failure,
            submission=stored.submission if is_own else "",
            study_digest=stored.summary.content if is_own else b"",
        )


@dataclass(slots=True, eq=False)
class PendingPart:
    """Part of the list that is being read, cancelled without waiting calls unless it has begun."""

    answer: asyncio.Future[pb.ListStudiesResponse]
    waiting: int = 0


@dataclass(slots=True)
class CallerQueue:
    """Unfinished parts of one caller; `next` are those not begun, by the study that they follow."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    next: dict[str, PendingPart] = field(default_factory=dict)
    pending_parts: list[PendingPart] = field(default_factory=list)

    @property
    def waiting(self) -> int:
        """Number of calls that wait for a part."""
        return sum(pending_part.waiting for pending_part in self.pending_parts)


@dataclass(eq=False)
class NextWork:
    """Long poll of sites for work, for at most `_seconds`."""

    _metrics: Metrics
    _engine: StudyEngine
    _checkpoints: Checkpoints
    _directory: SiteDirectory
    _seconds: float

    async def wait(self, poll: Poll, checkpoint_digest: bytes) -> pb.NextWorkResponse:
        """Process the poll of a site, then answer once there is work, if the site is still admitted."""
        site, checkpoints = CALLER.get().name, self._checkpoints
        self._directory.note_call(site)
        await checkpoints.refresh()
        if checkpoints.is_unknown_digest(checkpoint_digest):
            newer = checkpoints.checkpoint_if_newer(checkpoint_digest)
            return pb.NextWorkResponse(checkpoint=newer, ledger_diverged=True)
        with self._metrics.polling(site):
            await self._engine.receive(site, poll)
            found = await self._engine.next_work(site, poll, self._seconds)
        await check_still_admitted()
        await checkpoints.refresh()
        if (newer := checkpoints.checkpoint_if_newer(checkpoint_digest)) is not None:
            found.checkpoint.CopyFrom(newer)
        return found
