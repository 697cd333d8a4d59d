"""Repository of everything durable: studies, ledger, changes that share a sync, and integrity checks. Changes
that arrive while a transaction is being synced share the next one (group commit). Checks are of pages and
indexes, then of every record with its own digest; the ledger's chain is replayed wherever it is opened.
Records are checked also when they are read, so a coordinator starts once unfinished studies are checked."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from eigenveil.errors import Code, EigenveilError, InternalError
from eigenveil_common.storage.database import Database
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_server.config import Config
from eigenveil_server.process import Clock, Fatal
from eigenveil_server.storage.database import Change, Store
from eigenveil_server.storage.sealed import check_plan, check_query, parse_attempt
from eigenveil_server.storage.study_reads import Studies
from eigenveil_server.storage.submissions import StudyLists


class GroupCommit:
    """Durable changes from the event loop, which does not wait for the disk. A change must not refuse."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self._waiting: list[tuple[Change, asyncio.Future[None]]] = []
        self._busy: asyncio.Task[None] | None = None

    async def write(self, change: Change) -> None:
        """Make `change`; durable on return. Raises InternalError: code `storage`."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((change, done))
        if self._busy is None:
            self._busy = asyncio.create_task(self._drain())
        await done

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = self._waiting, []
            problem: EigenveilError | None = None
            try:
                await loop.run_in_executor(self._thread, self._commit, [change for change, _ in batch])
            except EigenveilError as known:
                problem = known
            except Exception as unexpected:  # noqa: BLE001 - raised for the callers; the next change may work
                problem = InternalError(Code.BUG, f"a change failed: {type(unexpected).__name__}")
            for done in (done for _, done in batch if not done.done()):  # or its caller was cancelled
                if problem is None:
                    done.set_result(None)
                else:
                    done.set_exception(problem)
        self._busy = None

    def _commit(self, changes: list[Change]) -> None:
        with self._database.transaction() as connection:
            for change in changes:
                change(connection)

    def close(self) -> None:
        """Wait for the last transaction."""
        self._thread.shutdown()


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """Durable state of the coordinator. `clock` stamps rows; `fatal` ends the process when the disk fails."""

    store: Store
    studies: Studies
    lists: StudyLists
    ledger: LedgerStore
    writer: GroupCommit
    clock: Clock
    fatal: Fatal
    _unfinished: set[asyncio.Task[Any]] = field(default_factory=set)

    @classmethod
    def of(cls, config: Config, store: Store, clock: Clock, fatal: Fatal) -> Repository:
        """Return the repository of an open store. Raises InternalError: the ledger's chain is broken;
        RequestError: code `budget-exhausted`: the budget is below what is committed already."""
        return cls(
            store=store,
            studies=Studies(store.reader),
            lists=StudyLists(store.reader),
            ledger=LedgerStore(store.writer, config.budget, lambda: clock() // 1000),
            writer=GroupCommit(store.writer),
            clock=clock,
            fatal=fatal,
        )

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end, even when the calling RPC is cancelled: a change on its way to the disk must
        be noted here. A storage error ends the process."""
        return await asyncio.shield(self.begin(work))

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start `work` as `finish` does, as a task that several calls await; each shields it."""
        task = asyncio.create_task(self._run_whole(work))
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        return task

    async def _run_whole(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        except InternalError as problem:
            if problem.code is Code.STORAGE:
                self.fatal(problem)
            raise

    async def finished(self) -> None:
        """Wait for every `finish` under way, also those without a caller."""
        await asyncio.gather(*self._unfinished, return_exceptions=True)

    def close(self) -> None:
        """Wait for the last transaction, then close the database."""
        self.writer.close()
        self.store.close()


@contextmanager
def check_start(store: Store) -> Iterator[None]:
    """Check every page, on another thread while the block reads the ledger, and then the plans, queries and
    sealed rounds of unfinished studies. Raises InternalError: code `storage`, one is not what was written; a
    damaged page comes before what the block raised because of it."""
    with ThreadPoolExecutor(1) as thread:
        pages = thread.submit(store.check_whole)
        try:
            yield
        finally:
            pages.result()
    studies = Studies(store.reader)
    for stored in studies.under_way():
        _check_study(store, studies, stored.digest)


def check_whole(store: Store) -> None:
    """Check every page and every study. Raises as `check_start`."""
    store.check_whole()
    studies = Studies(store.reader)
    for row in store.reader.rows("SELECT digest FROM studies ORDER BY submitted_at"):
        _check_study(store, studies, row["digest"])


def _check_study(store: Store, studies: Studies, study: str) -> None:
    check_plan(study, studies.get(study).plan_json)
    studies.sealed_rounds(study)
    studies.release(study)
    for row in store.reader.rows("SELECT query, query_digest FROM rounds WHERE study = ?", (study,)):
        check_query(study, row["query"], row["query_digest"])
    for row in store.reader.rows("SELECT signed_json, digest FROM attempts WHERE study = ?", (study,)):
        parse_attempt(study, row["signed_json"], row["digest"])
