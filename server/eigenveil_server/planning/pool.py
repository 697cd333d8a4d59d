"""Planning of studies in isolated processes, with a small and a wide lane, and a cache of plans. An analyst
plans one study at a time. One that exceeds the small lane goes on in the wide one, as do all further tasks of
the analyst for a while, also when their callers are gone."""

from __future__ import annotations

import asyncio
import atexit
import signal
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, ClassVar

from eigenveil.errors import Code, error
from eigenveil.numerics.encoding import digest_of
from eigenveil.reporting.release_file import Data
from eigenveil.study.checks import need, study_error
from eigenveil_common.concurrency import kill_process, start_isolated
from eigenveil_server.planning import planner
from eigenveil_server.rounds.study_session import read, write

SMALL_BYTES = 32 * 1024  # 500 columns, planned in a quarter of a second
MAX_STUDY_BYTES = 2 * 2**20  # 20,000 columns with names, units and bounds as they are
SMALL_SECONDS, WIDE_SECONDS = 0.5, 120.0  # of processor time; refined-cov of 1,000 columns takes ten
SMALL_MEMORY = 512 * 2**20  # a fresh process has 101 MiB of data, 74 of them resident
MOST_MEMORY = 4 * 2**30
# refined-cov of 2,048 columns and 180 components, almost the largest that fit a message, takes 581 MB.
WIDE_MEMORY, WIDE_BYTES = 256 * 2**20, 160  # fixed, and for each pair of columns of a study
IDLE_BYTES = 128 * 2**20  # a larger process is not used for the next task
SMALL_NICE, WIDE_NICE = 5, 15  # rounds and calls go first, then small studies
WIDE_AGAIN_SECONDS = 300.0  # for an analyst whose study was not small
LINGER_SECONDS = 1.0  # that a cancelled task goes on: starting a new process takes longer


def wide_memory(most_columns: int) -> int:
    """Return the bytes that planning may take, with so many columns and as many components at most."""
    return min(MOST_MEMORY, max(SMALL_MEMORY, WIDE_MEMORY + WIDE_BYTES * most_columns**2))


class Worker:
    """One planning process of a lane. Any thread may end it."""

    idle: ClassVar[list[Worker]] = []  # shared, since each takes a second to start

    def __init__(self, lane: str) -> None:
        self.lane = lane
        self._process = start_isolated("eigenveil_server.planning.planner")

    @classmethod
    def acquire(cls, lane: str) -> Worker:
        """Return an idle, living worker of that lane, or a new one."""
        for worker in [one for one in cls.idle if one.lane == lane]:
            with suppress(ValueError):  # another thread took it
                cls.idle.remove(worker)
                if worker.alive:
                    return worker
        return cls(lane)

    def ask(self, task: dict[str, Any], file: Data = b"") -> dict[str, Any] | None:
        """Return the result of a task, with its `file` if it has one; None if the process was ended first."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            write(stdin, task, file)
            message = read(stdout)
        except BrokenPipeError:
            message = None
        result = None if message is None else message[0]
        if result is None or result.pop("resident") > IDLE_BYTES:
            kill_process(self._process)
        return result

    @property
    def alive(self) -> bool:
        """True unless the process ended while it was idle."""
        if self._process.poll() is None:
            return True
        kill_process(self._process)
        return False

    @property
    def exceeded(self) -> bool:
        """True if the process was ended at its limit of processor time."""
        return self._process.returncode == -signal.SIGPROF

    @property
    def serves(self) -> bool:
        """True if it can run another task."""
        return self._process.returncode is None

    def end(self) -> None:
        self._process.kill()


@atexit.register
def _end_idle_workers() -> None:
    for worker in Worker.idle:
        kill_process(worker._process)


class Lane:
    """One task at a time, on one thread and in one process; a warm lane has the next process ready.
    `exceeded` gets, on any thread, the analyst whose task was too much here, also when the caller is gone."""

    def __init__(self, name: str, *, exceeded: Callable[[str], None], **limits: float) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._name, self._limits = name, limits  # seconds, memory and nice
        self._exceeded = exceeded
        self._lock = threading.Lock()  # a worker that has just answered is not ended
        self._busy: tuple[object, Worker] | None = None
        self._warm = False

    async def ask(
        self, analyst: str, task_name: str, inputs: planner.TaskInputs, file: Data = b""
    ) -> dict[str, Any] | None:
        """Return the result; None if it exceeds the lane's seconds. When the caller is cancelled, so is the
        task: at once if it has not begun, else soon."""
        loop = asyncio.get_running_loop()
        task = {"work": task_name, "inputs": inputs, **self._limits}
        try:
            return await loop.run_in_executor(self._thread, self._ask, analyst, task, file)
        except asyncio.CancelledError:
            loop.call_later(LINGER_SECONDS, self._give_up, analyst, task)
            raise

    def _ask(self, analyst: str, task: dict[str, Any], file: Data) -> dict[str, Any] | None:
        worker = Worker.acquire(self._name)
        self._busy = (task, worker)
        result = worker.ask(task, file)
        with self._lock:
            self._busy = None
        if result is not None and worker.serves:
            Worker.idle.append(worker)
        elif self._warm:
            self.warm()
        if "memory" in result if result is not None else worker.exceeded:
            self._exceeded(analyst)
        return result

    def warm(self) -> None:
        """Keep a process ready from now on."""
        self._warm = True
        Worker.idle.append(Worker.acquire(self._name))

    def _give_up(self, analyst: str, task: object) -> None:
        with self._lock:
            busy = self._busy
            if busy is not None and busy[0] is task:
                busy[1].end()
                self._exceeded(analyst)

    def close(self) -> None:
        self._warm = False
        with self._lock:
            if self._busy is not None:
                self._busy[1].end()
        self._thread.shutdown(cancel_futures=True)


class PlanningPool:
    """Planning lanes for all analysts; studies have at most `most_columns`."""

    def __init__(self, most_columns: int) -> None:
        self._small = Lane(
            "small", seconds=SMALL_SECONDS, memory=SMALL_MEMORY, nice=SMALL_NICE, exceeded=self._use_wide_lane
        )
        self._memory = wide_memory(most_columns)
        self._wide = Lane(
            "wide", seconds=WIDE_SECONDS, memory=self._memory, nice=WIDE_NICE, exceeded=lambda analyst: None
        )
        self._analyst_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._wide_until: dict[str, float] = {}  # by analyst

    async def ask(self, analyst: str, task_name: str, inputs: planner.TaskInputs, file: Data = b"") -> Any:
        """Return the result of a task of `planner.TASKS`; `file` is sent as it is. Raises EigenveilError: the
        task's own error, or the study is too large."""
        size = len(file) + sum(len(value) for value in inputs.values() if isinstance(value, str))
        fits = len(inputs.get("study_toml", "")) <= MAX_STUDY_BYTES
        need(fits, f"a study has at most {MAX_STUDY_BYTES // 1024} KiB; choose fewer columns")
        async with self._analyst_locks[analyst]:
            result = await self._run_in_lane(analyst, size, task_name, inputs, file)
        if result is None:
            raise study_error(
                f"planning this study was stopped: it takes over {WIDE_SECONDS:.0f} s of processor time, or "
                "more memory than there is; choose fewer columns, components or batches"
            )
        if "memory" in result:
            raise study_error(
                f"planning this study takes over {self._memory // 2**20} MiB of memory, or more than there "
                "is; choose fewer columns or components"
            )
        if "done" in result:
            return result["done"]
        raise error(Code(result["code"]), result["why"])

    async def _run_in_lane(
        self, analyst: str, size: int, task_name: str, inputs: planner.TaskInputs, file: Data
    ) -> dict[str, Any] | None:
        now = time.monotonic()
        if size <= SMALL_BYTES and now >= self._wide_until.get(analyst, now):
            result = await self._small.ask(analyst, task_name, inputs, file)
            if result is not None and "memory" not in result:
                return result
        return await self._wide.ask(analyst, task_name, inputs, file)

    def _use_wide_lane(self, analyst: str) -> None:
        self._wide_until[analyst] = time.monotonic() + WIDE_AGAIN_SECONDS

    def warm(self) -> None:
        """Start a process for small studies before the first task."""
        self._small.warm()

    def close(self) -> None:
        self._small.close()
        self._wide.close()


MAX_CACHED_PLANS = 16
MAX_CACHED_BYTES = 8 * 2**20  # of all plans together; a study of 4,096 columns has about half a MiB


class PlanCache:
    """The latest plans, each under all of its inputs. A study that is explained, then signed and submitted,
    is not planned twice. All cached plans are of the latest directory; older ones are dropped. Directories
    are compared by equality, not by digest: the statements of sites are the same objects from call to call.
    Equality then takes microseconds, where a digest of 50 sites with 2,000 columns each takes most of a
    second."""

    def __init__(self) -> None:
        self._plans: OrderedDict[str, Mapping[str, Any]] = OrderedDict()
        self._directory: object = None  # of all of them

    def put(self, inputs: Mapping[str, Any], planned: Mapping[str, Any]) -> None:
        """Store the plan that `planner.planned` made of these inputs; the oldest are dropped."""
        if inputs["directory"] != self._directory:
            self._plans.clear()
        self._directory = inputs["directory"]
        key = _key(inputs)
        self._plans.pop(key, None)
        self._plans[key] = {name: planned[name] for name in ("plan", "rounds", "warnings")}
        while len(self._plans) > MAX_CACHED_PLANS or self._bytes > MAX_CACHED_BYTES:
            self._plans.popitem(last=False)

    def take(self, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Remove and return the plan of these inputs; None if there is none."""
        return self._plans.pop(_key(inputs), None) if inputs["directory"] == self._directory else None

    @property
    def _bytes(self) -> int:
        return sum(len(one["plan"]) for one in self._plans.values())


def _key(inputs: Mapping[str, Any]) -> str:
    """Return the digest of all inputs but the directory."""
    parts = (f"{name} = {inputs[name]}".encode() for name in sorted(inputs.keys() - {"directory"}))
    return digest_of("plan-words", *parts)
