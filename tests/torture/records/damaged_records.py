"""Damaged files of every kind that a site reads: each is read, or refused in one line, and its asker goes on.

One file in sixteen is read by a site's whole daemon (`site_daemons`), the others by a process that asks as a
daemon does (`asker`): it holds a good study meanwhile and answers it. No answer is lost or late, readers die
of every cause in between, and the memory of askers and fork servers does not grow."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import cycle, islice
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock

from tests.torture.records.asker import DEATHS, Asker, Came, Taken, asker, outcome_of
from tests.torture.records.damage import kinds, make_damaged, make_good, perhaps_cut
from tests.torture.records.site_daemons import Served, all_served

FILES, AT_ONCE = 10_000, 2
OF_DAEMONS = 16
MIB, MOST_GROWTH = 2**20, 32 * 2**20
LATE_SECONDS = 1.0
EVERY_DEATH = 4  # files
LOOK_SECONDS = 1.0
CAUSES = tuple(DEATHS)
# Their libraries are loaded by each reader anew, for half a second: one file where others have eight.
SLOW = {"records.bed", "records.zarr", "selected.csv", "selected.parquet"}
TIMES = 8
FEWEST = 4  # files of a kind


@dataclass(slots=True, kw_only=True)
class Found:
    """Outcomes of the files by kind and of the deaths by cause, and the faults."""

    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    deaths: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    before: Taken | None = None
    growth: int = 0

    def count(self, kind: str, came: Came) -> None:
        self.outcomes.setdefault(kind, Counter())[came.outcome] += 1
        self.faults += [came.fault] if came.fault else []

    def died(self, came: Came) -> None:
        self.deaths[came.outcome] += 1
        self.faults += [came.fault] if came.fault else []

    def look(self, taken: Taken) -> None:
        self.before = self.before or taken
        grown = (taken.asker - self.before.asker, taken.server - self.before.server)
        self.growth = max(self.growth, *grown)
        self.seconds += taken.seconds
        self.faults += ["an answer changed"] if taken.changed else []


def run(folder: Path, scale: float) -> tuple[list[str], str]:
    files = max(FEWEST * len(kinds()), round(FILES * scale))
    of_each = max(2, round(files / OF_DAEMONS / len(kinds())))
    found = Found()
    with asker(make_good(folder / "good", "records.csv"), AT_ONCE) as one:
        _read_all(one, folder, files - of_each * len(kinds()), found)
    return verdict(found, asyncio.run(all_served(folder, kinds(), of_each, AT_ONCE)))


def _read_all(one: Asker, here: Path, files: int, found: Found) -> None:
    """Read whole files of every kind, then damaged ones on each of its ways, and look at it meanwhile."""
    for kind in kinds():
        found.count(kind, outcome_of(one.ways[0], make_good(here / "whole", kind), kind))
    for cause in DEATHS:
        found.died(outcome_of(one.ways[0], None, cause))
    found.look(one.taken())
    numbered, lock = enumerate(order(files)), threading.Lock()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        tasks = [
            threads.submit(_read, path, here / f"of-way-{number}", numbered, lock, found)
            for number, path in enumerate(one.ways)
        ]
        while wait(tasks, LOOK_SECONDS).not_done and one.alive:
            found.look(one.taken())
    for task in tasks:
        task.result()
    if not one.alive:
        found.faults.append("the process that asks has ended")


def order(files: int) -> Iterator[tuple[str, int]]:
    attempts = [kind for turn in range(TIMES) for kind in kinds() if not turn or kind not in SLOW]
    numbers = Counter[str]()
    for kind in islice(cycle(attempts), files):
        yield kind, numbers[kind]
        numbers[kind] += 1


def _read(
    path: Connection, folder: Path, numbered: Iterator[tuple[int, tuple[str, int]]], lock: Lock, found: Found
) -> None:
    while True:
        with lock:
            place, (kind, number) = next(numbered, (0, ("", 0)))
        if not kind:
            return
        message = make_damaged(folder, kind, number)
        with perhaps_cut(folder, place):
            came = outcome_of(path, message, kind)
        with lock:
            found.count(kind, came)
        if place % EVERY_DEATH == 0:
            came = outcome_of(path, None, CAUSES[place // EVERY_DEATH % len(CAUSES)])
            with lock:
                found.died(came)


def verdict(found: Found, served: Sequence[Served]) -> tuple[list[str], str]:
    faults = [*found.faults, *(fault for one in served for fault in one.faults)]
    growth = max(found.growth, *(one.growth for one in served))
    late = sorted(found.seconds)[int(0.99 * (len(found.seconds) - 1))] if found.seconds else LATE_SECONDS
    if late >= LATE_SECONDS:
        faults.append(f"answers took {late:.2f} s (p99)")
    if growth > MOST_GROWTH:
        faults.append(f"memory grew by {growth / MIB:.0f} MiB")
    if not any(counts["refused"] for counts in found.outcomes.values()):
        faults.append("no file was refused")
    return faults, f"{_figures(found, served)}; p99 {late * 1000:.0f} ms"


def _figures(found: Found, served: Sequence[Served]) -> str:
    outcomes = sum(found.outcomes.values(), Counter[str]())
    of_daemons = sum((one.outcomes for one in served), Counter[str]())
    grown = max(one.growth for one in served)
    return (
        f"{outcomes.total() + of_daemons.total()} files of {len(found.outcomes)} kinds; an asker: "
        f"{_counted(outcomes)}, deaths besides: {_counted(found.deaths)}, +{found.growth / MIB:.1f} MiB; "
        f"{len(served)} daemons: {_counted(of_daemons)}, +{grown / MIB:.1f} MiB; "
        f"{len(found.seconds)} answers beside"
    )


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
