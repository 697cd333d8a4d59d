"""Studies that wait for the operator's approval, and the operator's decisions. A waiting study reserves
nothing. `approve` and `refuse` run in their own processes and write one line of the audit log. The serving
coordinator reads it there, also after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.protocol.plan import Plan
from eigenveil_common import log
from eigenveil_common.storage.database import Database
from eigenveil_server.config import Config
from eigenveil_server.process import unix_ms
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.database import audit, existing_store
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.study_reads import StoredStudy, Studies
from eigenveil_server.storage.submissions import ListedStudy, StudyLists
from eigenveil_server.studies.runtime import Runtime

APPROVED, REFUSED = "study-approved", "study-refused"
LOOK_SECONDS = 0.5
MIN_DIGEST_DIGITS = 6  # of a study's digest


@dataclass(frozen=True, slots=True)
class OperatorApprovals:
    """Approvals in the serving coordinator. `launch` drives a study; starts share the lock."""

    _runtime: Runtime
    _start_lock: asyncio.Lock
    _launch: Callable[[StoredStudy, Plan], Awaitable[None]]

    async def apply_decisions(self) -> None:
        """Begin or end the studies that the operator has decided on, in a loop."""
        while True:
            store = self._runtime.repository.store
            for stored, approved in await store.read(decided, store.reader):
                act = self._begin(stored) if approved else self.end_waiting(stored, "refused by the operator")
                await self._runtime.repository.finish(act)
            await asyncio.sleep(LOOK_SECONDS)

    async def _begin(self, stored: StoredStudy) -> None:
        """Reserve the budget and start the study; end it if the budget is gone or its version is another."""
        try:
            plan = await self._runtime.plan(stored)
        except PeerError as problem:
            if problem.code is not Code.VERSION:
                raise
            await self.end_waiting(stored, str(problem), StudyState.FAILED)
            return
        begun = replace(stored, state=StudyState.RUNNING, started_at=self._runtime.repository.clock())
        begin = partial(study_writes.begin_study, begun=begun)
        async with self._start_lock:
            if not await self._awaits(stored):
                return  # cancelled meanwhile
            reserve = partial(self._runtime.repository.ledger.reserve, gaussian=plan.gaussian)
            try:
                await self._runtime.compute.run(reserve, stored.digest, plan.cost, begin)
            except RequestError as problem:
                failure = str(problem)
            else:
                await self._launch(begun, plan)
                log.event(APPROVED, study=stored.digest, analyst=stored.analyst)
                self._runtime.news.notify()
                return
        await self.end_waiting(stored, failure, StudyState.FAILED)

    async def end_waiting(
        self, stored: StoredStudy, why: str, state: StudyState = StudyState.CANCELLED
    ) -> None:
        """End a study that still waits."""
        async with self._start_lock:
            if not await self._awaits(stored):
                return
            at = self._runtime.repository.clock()
            await self._runtime.repository.writer.write(
                lambda change: study_writes.end_unstarted(change, stored, state, at, why)
            )
        log.event(f"study-{state.value}", study=stored.digest, analyst=stored.analyst)
        self._runtime.news.notify()

    async def _awaits(self, stored: StoredStudy) -> bool:
        state = await self._runtime.repository.store.read(
            self._runtime.repository.studies.state, stored.digest
        )
        return state is StudyState.AWAITING


def decided(reader: Database) -> list[tuple[StoredStudy, bool]]:
    """Return the waiting studies that the operator has decided on; `decide` allows one decision each."""
    rows = reader.rows(
        "SELECT s.digest, a.kind FROM studies s JOIN audit a ON a.subject = s.digest "
        "WHERE s.state = ? AND a.kind IN (?, ?) ORDER BY a.id",
        (StudyState.AWAITING.value, APPROVED, REFUSED),
    )
    studies = Studies(reader)
    return [(studies.get(row["digest"]), row["kind"] == APPROVED) for row in rows]


def decide(config: Config, study: str, kind: str) -> ListedStudy:
    """Store the operator's decision on the study whose digest begins with `study`. Raises RequestError: no
    waiting study begins so, or several do, or it was decided on before."""
    with closing(existing_store(config)) as store:
        found = _waiting(StudyLists(store.reader).in_states(StudyState.AWAITING), study)
        with store.writer.transaction() as change:
            decided_before = "SELECT 1 FROM audit WHERE subject = ? AND kind IN (?, ?)"
            if change.execute(decided_before, (found.digest, APPROVED, REFUSED)):
                raise RequestError(Code.CONFLICT, f"study {found.digest[:12]} is decided already")
            audit(change, unix_ms(), kind, found.digest)
    return found


def _waiting(waiting: Sequence[ListedStudy], beginning: str) -> ListedStudy:
    found = [one for one in waiting if one.digest.startswith(beginning)]
    if len(beginning) < MIN_DIGEST_DIGITS or len(found) != 1:
        names = ", ".join(one.digest[:12] for one in waiting) or "none"
        raise RequestError(
            Code.NOT_FOUND,
            f"{beginning!r} does not begin the digest of exactly one waiting study "
            f"({MIN_DIGEST_DIGITS} digits or more); waiting studies: {names}",
        )
    return found[0]
