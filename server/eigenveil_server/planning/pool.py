"""Planning beside everything else: in processes that may be killed, small studies apart from wide ones.

One analyst plans one study at a time, and nobody's second wish queues before another's first. Whatever turns
out not to be small goes on in the wide lane, and so does all that the same analyst asks for a while, whether
anybody still waits for it or not.
"""

from __future__ import annotations

import asyncio
import atexit
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, ClassVar

from eigenveil.errors import Code, RequestError, error
from eigenveil_common.apart import apart, ended
from eigenveil_server.planning import planner

SMALL_BYTES = 32 * 1024  # 500 columns, planned in a quarter of a second
MOST_BYTES = 2 * 2**20  # 20,000 columns with names, units and bounds as they are
SMALL_SECONDS, WIDE_SECONDS = 0.5, 120.0  # of processor time; refined-cov of 1,000 columns takes ten
SMALL_MEMORY = 512 * 2**20  # a process that has planned nothing yet has 101 MiB of data, 74 of them resident
MOST_MEMORY = 4 * 2**30
# refined-cov of 2,048 columns and 180 components, nearly all that fit a message, takes 581 MB.
WIDE_MEMORY, WIDE_BYTES = 256 * 2**20, 160  # to begin with, and for each pair of columns of a study
IDLE_BYTES = 128 * 2**20  # a process that holds more is not kept for the next wish
SMALL_NICE, WIDE_NICE = 5, 15  # rounds and calls go first, then small studies
WIDE_AGAIN_SECONDS = 300.0  # for an analyst whose study was not small
LINGER_SECONDS = 1.0  # for which work goes on that nobody waits for: a new process takes longer to start


def wide_memory(most_columns: int) -> int:
    """Return the bytes that planning may take where studies have at most so many columns and as many
    components."""
    return min(MOST_MEMORY, max(SMALL_MEMORY, WIDE_MEMORY + WIDE_BYTES * most_columns**2))


class Worker:
    """One process that plans, for one lane. It can be ended from another thread than the one that asks."""

    idle: ClassVar[list[Worker]] = []  # handed on, since each takes a second to start

    def __init__(self, lane: str) -> None:
        self.lane = lane
        self._process = apart("eigenveil_server.planning.planner")

    @classmethod
    def ready(cls, lane: str) -> Worker:
        """An idle one of that lane, unless it was ended meanwhile, or a new one."""
        for worker in [one for one in cls.idle if one.lane == lane]:
            with suppress(ValueError):  # another thread has just taken it
                cls.idle.remove(worker)
                if worker.alive:
                    return worker
        return cls(lane)

    def ask(self, wish: dict[str, Any]) -> dict[str, Any] | None:
        """The answer; None if the process was ended first."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            planner.write(stdin, wish)
            found: dict[str, Any] | None = planner.read(stdout)
        except BrokenPipeError:
            found = None
        if found is None or found.pop("resident") > IDLE_BYTES:
            ended(self._process)
        return found

    @property
    def alive(self) -> bool:
        """Whether nobody has ended it while it was idle."""
        if alive := self._process.poll() is None:
            return alive
        ended(self._process)
        return alive

    @property
    def exceeded(self) -> bool:
        """Whether it was ended for the processor time that it took."""
        return self._process.returncode == -signal.SIGPROF

    @property
    def serves(self) -> bool:
        """Whether it may be asked again."""
        return self._process.returncode is None

    def end(self) -> None:
        self._process.kill()


@atexit.register
def _end_the_idle() -> None:
    for worker in Worker.idle:
        ended(worker._process)


class Lane:
    """One wish at a time, on a thread and in a process of its own; a warm one has the next process ready.
    `exceeded` is told, on any thread, whose wish was too much for this lane, whoever still waits for it."""

    def __init__(
        self, name: str, *, seconds: float, memory: int, nice: int, exceeded: Callable[[str], None]
    ) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._name, self._seconds, self._nice = name, seconds, nice
        self.memory = memory
        self._exceeded = exceeded
        self._lock = threading.Lock()  # nobody is ended who has just answered
        self._busy: tuple[object, Worker] | None = None
        self._warm = False

    async def ask(self, analyst: str, work: str, words: planner.Words) -> dict[str, Any] | None:
        """The answer; None if it takes more seconds than this lane has. If the caller goes away, so does the
        work: at once if it has not begun, and soon if it has."""
        loop = asyncio.get_running_loop()
        limits = {"seconds": self._seconds, "memory": self.memory, "nice": self._nice}
        wish = {"work": work, "words": words, **limits}
        try:
            return await loop.run_in_executor(self._thread, self._ask, analyst, wish)
        except asyncio.CancelledError:
            loop.call_later(LINGER_SECONDS, self._give_up, analyst, wish)
            raise

    def _ask(self, analyst: str, wish: dict[str, Any]) -> dict[str, Any] | None:
        worker = Worker.ready(self._name)
        self._busy = (wish, worker)
        found = worker.ask(wish)
        with self._lock:
            self._busy = None
        if found is not None and worker.serves:
            Worker.idle.append(worker)
        elif self._warm:
            self.warm()
        if "memory" in found if found is not None else worker.exceeded:
            self._exceeded(analyst)
        return found

    def warm(self) -> None:
        """Have a process ready before anybody waits for it, from now on."""
        self._warm = True
        Worker.idle.append(Worker.ready(self._name))

    def _give_up(self, analyst: str, wish: object) -> None:
        with self._lock:
            busy = self._busy
            if busy is not None and busy[0] is wish:
                busy[1].end()
                self._exceeded(analyst)

    def close(self) -> None:
        self._warm = False
        with self._lock:
            if self._busy is not None:
                self._busy[1].end()
        self._thread.shutdown(cancel_futures=True)


class PlanningPool:
    """Where the wishes of all analysts go; studies have at most `most_columns`."""

    def __init__(self, most_columns: int) -> None:
        self._small = Lane(
            "small", seconds=SMALL_SECONDS, memory=SMALL_MEMORY, nice=SMALL_NICE, exceeded=self._not_small
        )
        self._wide = Lane(
            "wide", seconds=WIDE_SECONDS, memory=wide_memory(most_columns), nice=WIDE_NICE,
            exceeded=lambda analyst: None,
        )  # fmt: skip
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._wide_until: dict[str, float] = {}  # for whom the wide lane plans, and how long

    async def ask(self, analyst: str, work: str, /, **words: Any) -> Any:
        """What came of a work of `planner.WORKS`.

        Raises:
            EigenveilError: its own, or that it is too large.
        """
        size = sum(len(word) for word in words.values() if isinstance(word, str))
        if len(words.get("study_toml", "")) > MOST_BYTES:
            raise RequestError(
                Code.BAD_STUDY, f"a study has at most {MOST_BYTES // 1024} KiB; ask for fewer columns"
            )
        async with self._turns[analyst]:
            found = await self._found(analyst, size, work, words)
        if found is None:
            raise RequestError(
                Code.BAD_STUDY,
                f"planning this study was stopped: it takes over {WIDE_SECONDS:.0f} s of processor time, or "
                "more memory than there is; ask for fewer columns, components or batches",
            )
        if "memory" in found:
            raise RequestError(
                Code.BAD_STUDY,
                f"planning this study takes over {self._wide.memory // 2**20} MiB of memory, or more than "
                "there is; ask for fewer columns or components",
            )
        if "done" in found:
            return found["done"]
        raise error(Code(found["code"]), found["why"])

    async def _found(self, analyst: str, size: int, work: str, words: planner.Words) -> dict[str, Any] | None:
        now = time.monotonic()
        if size <= SMALL_BYTES and now >= self._wide_until.get(analyst, now):
            found = await self._small.ask(analyst, work, words)
            if found is not None and "memory" not in found:
                return found
        return await self._wide.ask(analyst, work, words)

    def _not_small(self, analyst: str) -> None:
        self._wide_until[analyst] = time.monotonic() + WIDE_AGAIN_SECONDS

    def warm(self) -> None:
        """Start a process for small studies before anybody waits for it."""
        self._small.warm()

    def close(self) -> None:
        self._small.close()
        self._wide.close()
