"""The threads of one process: arithmetic for all studies, what takes minutes, and noise, each apart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

ARITHMETIC_THREADS = 4
NOISE_THREADS = 2


class Compute:
    """Work off the event loop. `draws` are the threads on which noise is drawn ahead."""

    def __init__(self) -> None:
        self._arithmetic = ThreadPoolExecutor(ARITHMETIC_THREADS, thread_name_prefix="arithmetic")
        self._alone = ThreadPoolExecutor(1, thread_name_prefix="alone")
        self.draws = ThreadPoolExecutor(NOISE_THREADS, thread_name_prefix="noise")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._arithmetic, lambda: work(*args, **kwargs))

    async def alone(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What takes minutes and gigabytes: one after another, and nothing else waits for it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._alone, lambda: work(*args, **kwargs))

    def close(self) -> None:
        """Wait for what is under way."""
        self._alone.shutdown()
        self._arithmetic.shutdown()
        self.draws.shutdown(cancel_futures=True)
