"""Studies that wait for the operator's word, and the word itself.

A study that waits reserves nothing. `eigenveil-coordinator approve` and `refuse` run in their own processes
and write one line of the audit; the serving coordinator finds it there, also after a restart.
"""

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
from eigenveil_server.clock import unix_ms
from eigenveil_server.compute import Compute
from eigenveil_server.config import Config
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.database import audit, existing_store
from eigenveil_server.storage.repository import Repository
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.study_lists import ListedStudy, StudyLists
from eigenveil_server.storage.study_reads import StoredStudy, Studies
from eigenveil_server.storage.submissions import PlanSummary, SubmissionQuota
from eigenveil_server.studies.signal import Signals

APPROVED, REFUSED = "study-approved", "study-refused"
LOOK_SECONDS = 0.5
SHORTEST = 6  # digits of a study's digest


@dataclass(frozen=True, slots=True)
class OperatorApprovals:
    """The serving coordinator's side. `launch` drives a study; `taking` is held while one begins."""

    _repository: Repository
    _compute: Compute
    _signals: Signals
    _taking: asyncio.Lock
    _launch: Callable[[StoredStudy, Plan], Awaitable[None]]

    def hold(self, stored: StoredStudy, quota: SubmissionQuota, summary: PlanSummary) -> None:
        """Store a study that may never begin; nothing is set aside for it. In a transaction of its own, since
        it may be refused. Raises as `add_study`."""
        with self._repository.store.writer.transaction() as change:
            study_writes.add_study(change, stored, "awaiting", quota, summary)

    async def heed(self) -> None:
        """Begin or end what the operator has decided on, again and again."""
        while True:
            store = self._repository.store
            for stored, approved in await store.read(decided, store.reader):
                act = self._begin(stored) if approved else self.drop(stored, "refused by the operator")
                await self._repository.finish(act)
            await asyncio.sleep(LOOK_SECONDS)

    async def _begin(self, stored: StoredStudy) -> None:
        """Set its budget aside, as at a submission; if that is gone by now, or this version of the program
        does not run such a plan, the study ends."""
        try:
            plan = await self._compute.run(self._repository.studies.plan_of, stored)
        except PeerError as problem:
            if problem.code is not Code.VERSION:
                raise
            await self.drop(stored, str(problem), StudyState.FAILED)
            return
        begun = replace(stored, state=StudyState.RUNNING, begun_at=self._repository.clock())
        begin = partial(study_writes.begin_study, begun=begun)
        async with self._taking:
            if not await self._awaits(stored):
                return  # cancelled meanwhile
            try:
                reserve = partial(self._repository.ledger.reserve, gaussian=plan.gaussian)
                await self._compute.run(reserve, stored.digest, plan.cost, begin)
            except RequestError as problem:
                gone = str(problem)
            else:
                await self._launch(begun, plan)
                log.event(APPROVED, study=stored.digest, analyst=stored.analyst)
                self._signals.news.ring()
                return
        await self.drop(stored, gone, StudyState.FAILED)

    async def drop(self, stored: StoredStudy, why: str, state: StudyState = StudyState.CANCELLED) -> None:
        """End a study that still waits."""
        async with self._taking:
            if not await self._awaits(stored):
                return
            at = self._repository.clock()
            await self._repository.writer.write(
                lambda change: study_writes.end_unrun(change, stored, state, at, why)
            )
        log.event(f"study-{state.value}", study=stored.digest, analyst=stored.analyst)
        self._signals.news.ring()

    async def _awaits(self, stored: StoredStudy) -> bool:
        state = await self._repository.store.read(self._repository.studies.state, stored.digest)
        return state is StudyState.AWAITING


def decided(reader: Database) -> list[tuple[StoredStudy, bool]]:
    """Studies that still wait although the operator has decided, which `decide` lets happen once."""
    rows = reader.rows(
        "SELECT s.digest, a.kind FROM studies s JOIN audit a ON a.subject = s.digest "
        "WHERE s.state = ? AND a.kind IN (?, ?) ORDER BY a.id",
        (StudyState.AWAITING.value, APPROVED, REFUSED),
    )
    studies = Studies(reader)
    return [(studies.get(row["digest"]), row["kind"] == APPROVED) for row in rows]


def decide(config: Config, study: str, kind: str) -> ListedStudy:
    """Write down the operator's word on the study whose digest begins with `study`.

    Raises:
        RequestError: no study that waits begins so, or several do, or it was decided on before.
    """
    with closing(existing_store(config)) as store:
        found = _waiting(StudyLists(store.reader).in_states(StudyState.AWAITING), study)
        with store.writer.transaction() as change:
            said = "SELECT 1 FROM audit WHERE subject = ? AND kind IN (?, ?)"
            if change.execute(said, (found.digest, APPROVED, REFUSED)):
                raise RequestError(Code.CONFLICT, f"study {found.digest[:12]} was decided on before")
            audit(change, unix_ms(), kind, found.digest)
    return found


def _waiting(waiting: Sequence[ListedStudy], beginning: str) -> ListedStudy:
    found = [one for one in waiting if one.digest.startswith(beginning)]
    if len(beginning) < SHORTEST or len(found) != 1:
        names = ", ".join(one.digest[:12] for one in waiting) or "none"
        raise RequestError(
            Code.NOT_FOUND,
            f"{beginning!r} is not the beginning ({SHORTEST} digits or more) of one study that waits for "
            f"approval; these do: {names}",
        )
    return found[0]
