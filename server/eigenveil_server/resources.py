"""What every running study shares."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NoReturn, ParamSpec, TypeVar

from eigenveil.errors import Code, InternalError
from eigenveil.noise.source import NoiseSource
from eigenveil_server.clock import Clock
from eigenveil_server.config import Config
from eigenveil_server.metrics import Metrics
from eigenveil_server.pki.keys import Keys
from eigenveil_server.storage.database import Store
from eigenveil_server.storage.group_commit import GroupCommit
from eigenveil_server.storage.ledger import FederationLedger
from eigenveil_server.storage.study_reads import Studies
from eigenveil_server.studies.lanes import Lanes
from eigenveil_server.studies.signal import Signal

P = ParamSpec("P")
T = TypeVar("T")
Fatal = Callable[[InternalError], NoReturn]

ARITHMETIC_THREADS = 4
NOISE_THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Storage, secrets, threads and two bells: `work` rings for sites, `news` for whoever watches.
    `fatal` ends the process when the disk fails."""

    keys: Keys
    store: Store
    studies: Studies
    books: FederationLedger
    writer: GroupCommit
    work: Signal
    news: Signal
    clock: Clock
    noise: NoiseSource
    arithmetic: ThreadPoolExecutor
    draws: ThreadPoolExecutor
    lanes: Lanes
    fatal: Fatal
    metrics: Metrics = field(default_factory=Metrics)
    _unfinished: set[asyncio.Task[Any]] = field(default_factory=set)

    @classmethod
    def of(
        cls, config: Config, keys: Keys, store: Store, *, clock: Clock, noise: NoiseSource, fatal: Fatal
    ) -> Resources:
        """Build everything around an open store.

        Raises:
            InternalError: the ledger's chain is broken.
            RequestError: code `budget-exhausted`: the budget is below what is committed already.
        """
        return cls(
            keys=keys,
            store=store,
            studies=Studies(store.reader),
            books=FederationLedger(store.writer, config.budget, clock),
            writer=GroupCommit(store.writer),
            work=Signal(),
            news=Signal(),
            clock=clock,
            noise=noise,
            arithmetic=ThreadPoolExecutor(ARITHMETIC_THREADS, thread_name_prefix="arithmetic"),
            draws=ThreadPoolExecutor(NOISE_THREADS, thread_name_prefix="noise"),
            lanes=Lanes(),
            fatal=fatal,
        )

    async def compute(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` off the event loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.arithmetic, lambda: work(*args, **kwargs))

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work` to its end, even when the call that asked for it is cancelled: a change that is on
        its way to the disk must not be forgotten here. A storage error ends the process."""
        task = asyncio.create_task(self._whole(work))
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        return await asyncio.shield(task)

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
        """Wait for what is under way, then close the database."""
        self.lanes.close()
        self.arithmetic.shutdown()
        self.draws.shutdown(cancel_futures=True)
        self.writer.close()
        self.store.close()
