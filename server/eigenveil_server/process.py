"""Basics of one process: the wall clock, the immediate end after a fatal error, and the worker threads.
Arithmetic, checks of uploads, work of minutes, and noise each have a thread pool."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import NoReturn, ParamSpec, TypeVar

from eigenveil.errors import InternalError
from eigenveil.numerics.linalg import single_blas_thread
from eigenveil_common import log
from eigenveil_common.concurrency import CORES

Clock = Callable[[], int]


def unix_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def as_datetime(milliseconds: int) -> datetime:
    """Return the same time as a UTC datetime."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def time_text(milliseconds: int) -> str:
    """Return the same time in ISO 8601, to the second."""
    return as_datetime(milliseconds).isoformat(timespec="seconds")


Fatal = Callable[[InternalError], NoReturn]


def end_process(problem: InternalError) -> NoReturn:
    """End the process at once after a failed write or driver, so that nothing more is released."""
    log.logger.critical("%s-failed %s; the process ends", problem.code.value, problem)
    os._exit(problem.exit_code)


P = ParamSpec("P")
T = TypeVar("T")

ARITHMETIC_THREADS = 4
NOISE_THREADS = 2
CHECK_THREADS = 2  # that check one larger answer
# Uploads that are checked at the same time. One core is for the event loop and other processes.
CHECKS = max(1, min(ARITHMETIC_THREADS, (CORES - 1) // CHECK_THREADS))
SWITCH_SECONDS = 0.0005  # that a thread runs Python while another waits to


@contextmanager
def short_turns() -> Iterator[None]:
    """Limit what delays the event loop of this process. Linear algebra runs on the calling thread alone, not
    on all cores. A thread runs Python for at most SWITCH_SECONDS while the loop waits; Python's default is 5
    ms."""
    default = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        with single_blas_thread():
            yield
    finally:
        sys.setswitchinterval(default)


class Compute:
    """Thread pools for work off the event loop. `draws` is the pool that draws noise in advance."""

    def __init__(self) -> None:
        self._arithmetic = ThreadPoolExecutor(ARITHMETIC_THREADS, thread_name_prefix="arithmetic")
        self._alone = ThreadPoolExecutor(1, thread_name_prefix="alone")
        self._checks = ThreadPoolExecutor(CHECKS, thread_name_prefix="check")
        self.draws = ThreadPoolExecutor(NOISE_THREADS, thread_name_prefix="noise")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._arithmetic, lambda: work(*args, **kwargs))

    async def check(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Check an uploaded answer, in turn: the checks of several would take all cores from the event
        loop."""
        return await asyncio.get_running_loop().run_in_executor(self._checks, lambda: work(*args, **kwargs))

    async def alone(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run work of minutes and gigabytes, one at a time on its own thread."""
        return await asyncio.get_running_loop().run_in_executor(self._alone, lambda: work(*args, **kwargs))

    def close(self) -> None:
        """Wait for running work, and stop the threads."""
        self._alone.shutdown()
        self._checks.shutdown()
        self._arithmetic.shutdown()
        self.draws.shutdown(cancel_futures=True)
