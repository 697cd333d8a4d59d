"""Blocking calls to the coordinator, from a command, a script or a notebook."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Self, TypeVar

from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.analyst.profile import load_profile

POLL_SECONDS = 0.2  # as an endless wait cannot be interrupted on every system
STOP_SECONDS = 5.0

T = TypeVar("T")


class BlockingCoordinator:
    """Blocking client of the coordinator: `with BlockingCoordinator(profile) as coordinator`.

    A thread with an event loop makes the calls. They block, also within a running event loop, and may come
    from any thread. Each has its own connection, so that none can break another's. Ctrl-C ends a call, which
    may have taken effect."""

    def __init__(self, profile: Path | None = None) -> None:
        self.profile = profile
        self.identity = load_profile(profile)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="eigenveil", daemon=True)
        self._thread.start()
        self._end = weakref.finalize(self, _stop, self._loop, self._thread)  # at the latest when Python ends

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """End the thread and every call; studies continue. May be repeated."""
        self._end()

    def call(self, work: Callable[[Analyst], Coroutine[Any, Any, T]]) -> T:
        """Return the result of `work`. Raises as `Analyst`."""
        future = self._begin(work)
        try:
            while self._open and not future.done():
                wait([future], POLL_SECONDS)
        finally:
            future.cancel()
        return _result_of(future)

    def each(self, work: Callable[[Analyst], AsyncIterator[T]]) -> Iterator[T | None]:
        """Yield the items of `work` in the caller's thread, None while there is none. Raises as `Analyst`."""
        found: SimpleQueue[T] = SimpleQueue()

        async def pump(analyst: Analyst) -> None:
            async for one in work(analyst):
                found.put(one)

        future, ended = self._begin(pump), False
        try:
            while not ended:
                # before the queue is read, which then has all items
                ended = future.done() or not self._open
                with suppress(Empty):  # all that are queued, after a short wait for the first
                    yield found.get(timeout=POLL_SECONDS)
                    while True:
                        yield found.get_nowait()
                if not ended:
                    yield None
        finally:
            future.cancel()
        _result_of(future)

    @property
    def _open(self) -> bool:
        """False after `close`, and in a forked process, as the thread is in its parent."""
        return self._end.alive and self._thread.is_alive()

    def _begin(self, work: Callable[[Analyst], Coroutine[Any, Any, T]]) -> Future[T]:
        if not self._open:
            raise _closed_error()

        async def connected() -> T:
            async with Analyst(self.identity) as analyst:
                return await work(analyst)

        return asyncio.run_coroutine_threadsafe(connected(), self._loop)


def _result_of(future: Future[T]) -> T:
    try:
        return future.result()
    except EigenveilError as problem:  # the traceback in the thread is of no use to the caller
        raise problem.with_traceback(None) from None
    except CancelledError:
        raise _closed_error() from None


def _closed_error() -> RequestError:
    return RequestError(Code.CANCELLED, "this connection was closed. Connect again")


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """Cancel the tasks of the loop, then end the loop and its thread."""

    async def end() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    if threading.current_thread() is thread:  # when garbage collection runs in that thread
        loop.stop()
        return
    with suppress(TimeoutError):
        asyncio.run_coroutine_threadsafe(end(), loop).result(STOP_SECONDS)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(STOP_SECONDS)
    if not thread.is_alive():
        loop.close()


def call_coordinator(profile: Path | None, work: Callable[[Analyst], Coroutine[Any, Any, T]]) -> T:
    """Make one call with the identity in `profile`, and return its result."""
    with BlockingCoordinator(profile) as coordinator:
        return coordinator.call(work)
