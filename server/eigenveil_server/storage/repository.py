"""All that is durable of studies: what is stored of them, the ledger, and changes that share a sync."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from eigenveil.errors import Code, InternalError
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_server.clock import Clock
from eigenveil_server.config import Config
from eigenveil_server.fatal import Fatal
from eigenveil_server.storage.database import Store
from eigenveil_server.storage.group_commit import GroupCommit
from eigenveil_server.storage.study_lists import StudyLists
from eigenveil_server.storage.study_reads import Studies

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """`clock` stamps the rows; `fatal` ends the process when the disk fails."""

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
        """What an open store holds.

        Raises:
            InternalError: the ledger's chain is broken.
            RequestError: code `budget-exhausted`: the budget is below what is committed already.
        """
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
        """Do `work` to its end, even when the call that asked for it is cancelled: a change that is on
        its way to the disk must not be forgotten here. A storage error ends the process."""
        return await asyncio.shield(self.begin(work))

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """The same for what several calls wait for; each shields it."""
        task = asyncio.create_task(self._whole(work))
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        return task

    async def _whole(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        except InternalError as problem:
            if problem.code is Code.STORAGE:
                self.fatal(problem)
            raise

    async def finished(self) -> None:
        """Wait for every `finish` under way, also those that nobody waits for any more."""
        await asyncio.gather(*self._unfinished, return_exceptions=True)

    def close(self) -> None:
        """Wait for the last transaction, then close the database."""
        self.writer.close()
        self.store.close()
