"""An event loop whose time passes only when there is nothing to do, so that a minute takes no time.

What is handed to a thread is done on the loop, a drawn moment later:
a run depends on its seed, and a little on the digests of keys and plans."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

T = TypeVar("T")
MOST_IDLE = 20_000  # turns of the loop in which no time passes
TURN = 1e-6  # seconds that a turn takes: a wait for less than a float can tell must come to an end
SLOWEST_THREAD = 0.004  # seconds


class Stuck(Exception):
    """Nothing will ever happen again."""


class _Selector(selectors.SelectSelector):
    loop: VirtualLoop
    idle = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found and timeout is None:
            raise Stuck("nobody waits for a time or an event")
        self.loop.now += TURN
        self.idle += 1
        if not found and timeout:
            self.loop.now += timeout
            self.idle = 0
        if self.idle > MOST_IDLE:
            raise Stuck(f"something goes round in circles at {self.loop.now:.3f} s")
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """Seconds from 0; `chance` decides how long threads take."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.chance = random.Random(seed)
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Call `func` on the loop, soon."""
        done: asyncio.Future[T] = self.create_future()

        def call() -> None:
            if done.cancelled():
                return
            try:
                result = func(*args)
            except BaseException as problem:  # noqa: BLE001 - it belongs to whoever waits
                done.set_exception(problem)
            else:
                done.set_result(result)

        self.call_later(self.chance.uniform(0, SLOWEST_THREAD), call)
        return done


class Inline(Executor):
    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as problem:  # noqa: BLE001 - it belongs to whoever asks for the result
            done.set_exception(problem)
        return done


def play(work: Callable[[VirtualLoop], Coroutine[Any, Any, T]], seed: int) -> T:
    """Run `work` in a loop of its own."""
    loop = VirtualLoop(seed)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(work(loop))
