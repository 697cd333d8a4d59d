"""An analyst's calls where no event loop is seen: from a command, a script or a notebook."""

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

GLANCE_SECONDS = 0.2  # a wait without end cannot be interrupted everywhere
STOP_SECONDS = 5.0

T = TypeVar("T")


class Talk:
    """A profile, and a thread whose event loop makes its calls: `with Talk(profile) as talk`.

    Calls block, also within a running event loop, and may come from any thread: each has a connection of its
    own, so that none can break another's. Ctrl-C ends a call, and what was asked may have been done.

    Raises:
        EigenveilError: there is no usable identity in the profile.
    """

    def __init__(self, profile: Path | None = None) -> None:
        self.profile = profile
        self.identity = load_profile(profile)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="eigenveil", daemon=True)
        self._thread.start()
        self._end = weakref.finalize(self, _stop, self._loop, self._thread)  # at the latest as Python ends

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """End the thread and every call; again is harmless."""
        self._end()

    def ask(self, work: Callable[[Analyst], Coroutine[Any, Any, T]]) -> T:
        """What `work` gives.

        Raises:
            EigenveilError: as `Analyst`.
        """
        future = self._begin(work)
        try:
            while not self._over(future):
                wait([future], GLANCE_SECONDS)
        finally:
            future.cancel()
        return _given(future)

    def each(self, work: Callable[[Analyst], AsyncIterator[T]]) -> Iterator[T | None]:
        """What `work` gives, as it comes, in the caller's thread; None whenever nothing came for a moment.

        Raises:
            EigenveilError: as `Analyst`.
        """
        found: SimpleQueue[T] = SimpleQueue()

        async def pump(analyst: Analyst) -> None:
            async for one in work(analyst):
                found.put(one)

        future, ended = self._begin(pump), False
        try:
            while not ended:
                ended = self._over(future)  # before looking: what came before the end is in the queue
                yield from _taken(found)
                if not ended:
                    yield None
        finally:
            future.cancel()
        _given(future)

    @property
    def _open(self) -> bool:
        """Also where a process was forked: the thread is in its parent."""
        return self._end.alive and self._thread.is_alive()

    def _over(self, future: Future[T]) -> bool:
        return future.done() or not self._open

    def _begin(self, work: Callable[[Analyst], Coroutine[Any, Any, T]]) -> Future[T]:
        if not self._open:
            raise _closed()

        async def connected() -> T:
            async with Analyst(self.identity) as analyst:
                return await work(analyst)

        return asyncio.run_coroutine_threadsafe(connected(), self._loop)


def _taken(found: SimpleQueue[T]) -> Iterator[T]:
    """All that is there, waiting a moment for the first."""
    with suppress(Empty):
        yield found.get(timeout=GLANCE_SECONDS)
        while True:
            yield found.get_nowait()


def _given(future: Future[T]) -> T:
    try:
        return future.result()
    except EigenveilError as problem:  # its words say it all, where in the thread it arose says nothing more
        raise problem.with_traceback(None) from None
    except CancelledError:
        raise _closed() from None


def _closed() -> RequestError:
    return RequestError(Code.CANCELLED, "this connection was closed; connect again")


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """End what runs on the loop, then the loop, then its thread."""

    async def end() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    if threading.current_thread() is thread:  # as a cycle is collected, which any thread may do
        loop.stop()
        return
    with suppress(TimeoutError):
        asyncio.run_coroutine_threadsafe(end(), loop).result(STOP_SECONDS)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(STOP_SECONDS)
    if not thread.is_alive():
        loop.close()


def at(profile: Path | None, work: Callable[[Analyst], Coroutine[Any, Any, T]]) -> T:
    """One call as whoever `profile` is."""
    with Talk(profile) as talk:
        return talk.ask(work)
