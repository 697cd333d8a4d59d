"""What every running study shares."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NoReturn, ParamSpec, TypeVar

from eigenveil.errors import InternalError
from eigenveil.noise import NoiseSource
from eigenveil_server.bell import Bell
from eigenveil_server.books import Books
from eigenveil_server.clock import Clock
from eigenveil_server.config import Config
from eigenveil_server.database import Store
from eigenveil_server.keys import Keys
from eigenveil_server.studies import Studies
from eigenveil_server.writer import Writer

P = ParamSpec("P")
T = TypeVar("T")
Fatal = Callable[[InternalError], NoReturn]

ARITHMETIC_THREADS = 4
NOISE_THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Storage, secrets, threads and the bell. `fatal` ends the process when the disk fails."""

    keys: Keys
    store: Store
    studies: Studies
    books: Books
    writer: Writer
    bell: Bell
    clock: Clock
    noise: NoiseSource
    arithmetic: ThreadPoolExecutor
    draws: ThreadPoolExecutor
    fatal: Fatal

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
            books=Books(store.writer, config.budget, clock),
            writer=Writer(store.writer),
            bell=Bell(),
            clock=clock,
            noise=noise,
            arithmetic=ThreadPoolExecutor(ARITHMETIC_THREADS, thread_name_prefix="arithmetic"),
            draws=ThreadPoolExecutor(NOISE_THREADS, thread_name_prefix="noise"),
            fatal=fatal,
        )

    async def compute(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` off the event loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.arithmetic, lambda: work(*args, **kwargs))

    def close(self) -> None:
        """Wait for what is under way, then close the database."""
        self.arithmetic.shutdown()
        self.draws.shutdown(cancel_futures=True)
        self.writer.close()
        self.store.close()
