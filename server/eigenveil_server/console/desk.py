"""What every page of the console works with, and the threads on which it reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from eigenveil.accounting.zcdp import Cost
from eigenveil_common.storage.database import Database
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_server.config import Config
from eigenveil_server.front.door import Door
from eigenveil_server.pki.registry import Registry
from eigenveil_server.rpc.admissions import Admissions
from eigenveil_server.rpc.directory import SiteDirectory
from eigenveil_server.rpc.site_sessions import SiteSessions
from eigenveil_server.storage.database import Store, existing_store
from eigenveil_server.storage.repository import Repository
from eigenveil_server.storage.study_lists import StudyLists
from eigenveil_server.storage.study_reads import Studies
from eigenveil_server.studies.engine import Engine
from eigenveil_server.studies.runtime import Runtime

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 2  # so that many pages at once leave the rounds their processors


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What the daemon has, as far as the console needs it."""

    config: Config
    runtime: Runtime
    engine: Engine
    registry: Registry
    admissions: Admissions
    directory: SiteDirectory
    sessions: SiteSessions
    front: Door

    def online(self) -> dict[str, int]:
        """Sites whose daemon holds a connection now, and since when it does."""
        at_work = self.sessions.at_work()
        return {site: since for site, (peer, since) in at_work.items() if self.front.holds(peer)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """What pages read: a connection to the database that nobody else waits for, and the ledger in memory."""

    config: Config
    store: Store
    studies: Studies
    lists: StudyLists
    registry: Registry
    ledger: LedgerStore

    @classmethod
    def of(cls, config: Config, repository: Repository) -> Books:
        """Opens its connection.

        Raises:
            InternalError: code `storage`.
        """
        store = existing_store(config)
        return cls(
            config=config,
            store=store,
            studies=Studies(store.reader),
            lists=StudyLists(store.reader),
            registry=Registry(store, config.federation, repository.clock),
            ledger=repository.ledger,
        )

    @property
    def reader(self) -> Database:
        return self.store.reader

    def left(self) -> Cost:
        """What is neither spent nor set aside."""
        totals = self.ledger.totals
        limit, committed = totals.limit, totals.committed
        return Cost(
            micro_rho=max(0, limit.micro_rho - committed.micro_rho),
            atto_delta=max(0, limit.atto_delta - committed.atto_delta),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """The daemon and the books, and `look`, by which they are read off the event loop."""

    serving: Serving
    books: Books
    _threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(THREADS, thread_name_prefix="console")
    )

    async def look(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `work` finds, on one of the console's threads."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: work(*args, **kwargs))

    def close(self) -> None:
        self._threads.shutdown()
        self.books.store.close()
