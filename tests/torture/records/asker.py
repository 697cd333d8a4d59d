"""A process that asks readers as a site's daemon does, with its engine, and holds a good study meanwhile.

It makes no file: what it has of memory is what asking takes. It is spoken to through pipes."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from eigenveil.planning.choose import make_plan, rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.study.study import Study
from eigenveil_client.records.column_quality import NO_RANGES
from eigenveil_client.records.isolated import process
from eigenveil_client.records.isolated.fork_server import SERVER
from eigenveil_client.records.isolated.process import ReaderLimits
from eigenveil_client.records.isolated.reader import Reader
from eigenveil_client.records.scratch_files import SYSTEM
from eigenveil_client.records.summary import RecordsSummary, RowSink
from eigenveil_client.records.tables.source import BadRecords, RecordsConfig
from eigenveil_client.site.config import EngineConfig
from eigenveil_client.site.engine.engine import LocalEngine, LocalRecords
from tests.client.records.isolated.hostile import ABSENT, HANGS, SEGFAULT, Ends
from tests.client.records.isolated.test_reader import study_of
from tests.fuzz.hunt import resident_bytes

MOST_RECORDS = 100_000  # as a site.toml has it that says nothing
LIMITS = ReaderLimits(memory_mib=1024, seconds=60)
PAUSE_SECONDS = 0.02
USUAL, SHORT, SMALL = ReaderLimits(), ReaderLimits(seconds=0.05), ReaderLimits(memory_mib=8)
# How a reader ends before it has read anything; of a file, where it has too little memory for any.
DEATHS: Mapping[str, tuple[Ends | None, ReaderLimits]] = {
    "SIGSEGV": (SEGFAULT, USUAL), "SIGBUS": (Ends(signal.raise_signal, signal.SIGBUS), USUAL),
    "SIGABRT": (Ends(os.abort), USUAL), "SIGKILL": (Ends(signal.raise_signal, signal.SIGKILL), USUAL),
    "reader-time": (HANGS, SHORT), "reader-memory": (None, SMALL),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """Outcome of a file or a death: "read", "refused" or how its reader ended; a `fault` if that is one."""

    outcome: str
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Bytes that the asker and its fork server have, the seconds that each good answer took since the last
    time, and whether any of them was wrong."""

    asker: int
    server: int
    seconds: tuple[float, ...]
    changed: bool


def outcome_of(way: Connection, message: RecordsConfig | None, name: str) -> Came:
    """Outcome of a file of a kind, or, without one, of a reader that dies of one of `DEATHS`."""
    way.send((message, name))
    came: Came = way.recv()
    return came


class Asker:
    """The process, as the check sees it, with `ways` to it that are used side by side."""

    def __init__(self, good: RecordsConfig, ways: int) -> None:
        context = get_context("spawn")
        pairs = [context.Pipe() for _ in range(ways + 1)]
        (self._control, *self.ways), theirs = zip(*pairs, strict=True)
        self._process = context.Process(target=serve, args=(good, *theirs))
        self._process.start()
        for one in theirs:
            one.close()

    def taken(self) -> Taken:
        self._control.send(None)
        found: Taken = self._control.recv()
        return found

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def close(self) -> None:
        for one in (self._control, *self.ways):
            one.close()
        self._process.join()


@contextmanager
def asker(good: RecordsConfig, ways: int) -> Iterator[Asker]:
    found = Asker(good, ways)
    try:
        yield found
    finally:
        found.close()


def serve(good: RecordsConfig, control: Connection, *ways: Connection) -> None:
    """Ask for each file that comes, and answer a study until nobody is there."""
    logging.disable()
    for path in ways:
        threading.Thread(target=_take, args=(path, good)).start()
    loading, study = Loading(), study_of("good.csv")
    round_query, stored = rehearse(loading.plan(study))[0], loading(good, study)
    first, seconds, changed = stored.answer(round_query.query, round_query.priced.frame), list[float](), False
    while True:
        began = time.monotonic()
        changed |= not (stored.answer(round_query.query, round_query.priced.frame) == first).all()
        seconds.append(time.monotonic() - began)
        if not control.poll(PAUSE_SECONDS):
            continue
        try:
            control.recv()
        except EOFError:
            return stored.close()
        found = tuple(seconds)
        control.send(Taken(asker=resident_bytes(), server=_of_server(), seconds=found, changed=changed))
        seconds.clear()


def _of_server() -> int:
    return 0 if SERVER._process is None else resident_bytes(SERVER._process.pid)


def _take(path: Connection, good: RecordsConfig) -> None:
    loading = Loading()
    while True:
        try:
            message, name = path.recv()
        except EOFError:
            return
        if message is not None:
            path.send(_came(partial(loading, message, study_of(name)), name))
        else:
            path.send(_died(name, partial(loading, good, study_of("good.csv"))))


class Loading:
    def __init__(self) -> None:
        self._reader: Reader | None = None
        self._engine = LocalEngine(self._read, EngineConfig(), SYSTEM, MOST_RECORDS)
        self._plans: dict[Study, Plan] = {}

    def __call__(self, message: RecordsConfig, study: Study, limits: ReaderLimits = LIMITS) -> LocalRecords:
        self._reader = Reader(message, (), NO_RANGES, SYSTEM, limits, MOST_RECORDS)
        return self._engine.load(self.plan(study))

    def _read(self, study: Study, retain: RowSink) -> RecordsSummary:
        assert self._reader is not None
        return self._reader(study, retain)

    def plan(self, study: Study) -> Plan:
        if study not in self._plans:
            self._plans[study] = make_plan(replace(study, max_records=MOST_RECORDS))
        return self._plans[study]


def _came(read: Callable[[], Any], name: str) -> Came:
    try:
        read().close()
    except BadRecords as problem:
        several = len(str(problem).splitlines()) != 1
        return Came(outcome=_outcome(problem), fault=f"{name}: a refusal of several lines" if several else "")
    except Exception as surprise:  # noqa: BLE001 - whatever else comes is a finding
        return Came(outcome="surprise", fault=f"{name}: {type(surprise).__name__}: {surprise}")
    return Came(outcome="read")


def _outcome(problem: BadRecords) -> str:
    if ended := re.search(r"was ended by (SIG\w+)", str(problem)):
        return ended[1]
    return problem.about if problem.about.startswith("reader") else "refused"


def _died(name: str, read: Callable[..., Any]) -> Came:
    ends, limits = DEATHS[name]
    if ends is not None:
        read = partial(process.run_task, ABSENT, ends, check=lambda one: one)  # type: ignore[arg-type]
    came = _came(partial(read, limits=limits), name)
    if came.fault or came.outcome == name:
        return came
    return Came(outcome=came.outcome, fault=f"a death by {name} is told as {came.outcome}")
