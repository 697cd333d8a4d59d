"""Damaged files of every kind that a site reads: each is read, or refused in one line, and its asker goes on.

Bits are flipped, files cut off (also while they are read), put together wrongly, lengthened, made to bite:
far cells, bombs, stated sizes, a hostile schema. The process that asks holds a good study meanwhile, as a
daemon does, and answers it: no answer is lost or late, and its memory does not grow.
"""

from __future__ import annotations

import os
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from eigenveil.planning.dry_run import rehearse
from eigenveil.planning.resolve import make_plan
from eigenveil_client.records.apart import process, reader
from eigenveil_client.records.apart.process import Limits
from eigenveil_client.records.overflow.scratch import SYSTEM
from eigenveil_client.records.quality import NO_RANGES
from eigenveil_client.records.tables.config import RecordsConfig
from eigenveil_client.records.tables.table import BadRecords
from eigenveil_client.site.engine.local import LocalEngine
from eigenveil_client.site.engine_config import EngineConfig
from tests.client.records.apart import hostile
from tests.client.records.apart.support import NOBODY, STUDY
from tests.client.records.apart.test_reader import study_of
from tests.fuzz.mutations import mutate_bytes
from tests.torture.line import Line

TITLE, NUMBER = "damaged records", 12
FILES, AT_ONCE = 10_000, 2
LIMITS = Limits(memory_mib=1024, seconds=60)
MIB, MOST_GROWTH = 2**20, 128 * 2**20
LATE_SECONDS, PAUSE_SECONDS = 1.0, 0.02
BITES: tuple[Callable[[Path], RecordsConfig], ...] = (
    lambda folder: hostile.far_cell(folder / "far.xlsx", dimension=False),
    lambda folder: hostile.far_cell(folder / "stated.xlsx", dimension=True),
    lambda folder: hostile.bombed_workbook(folder / "bomb.xlsx"),
    lambda folder: hostile.packed(folder / "line.csv.gz", b"1", 6),
    lambda folder: hostile.packed(folder / "lines.csv.gz", b"1" * 2**19 + b",2,3\n", 20),
    lambda folder: hostile.wide_zarr(folder / "wide.zarr"),
    lambda folder: hostile.endless_view(folder / "view.db"),
)
EVERY_DEATH = 4
EVERY_BITE = 200  # files between two that are made to bite: they take long


@dataclass(slots=True)
class Found:
    """What came of the files, and what is wrong."""

    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def run(scale: float) -> Line:
    """10,000 files at scale 1."""
    files, found = max(len(hostile.GOOD), round(FILES * scale)), Found()
    with tempfile.TemporaryDirectory(prefix="eigenveil-damaged-") as folder:
        here, over = Path(folder), threading.Event()
        hostile.csv(here / "good.csv")
        _warm(here / "warm")
        before = _memory()
        answering = threading.Thread(target=_answer, args=(here / "good.csv", over, found))
        answering.start()
        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(lambda number: _one(here / str(number), number, found), range(files)))
        over.set()
        answering.join()
        growth = _memory() - before
    late = sorted(found.seconds)[int(0.99 * (len(found.seconds) - 1))] if found.seconds else LATE_SECONDS
    if late >= LATE_SECONDS:
        found.faults.append(f"answers took {late:.2f} s (p99)")
    if growth > MOST_GROWTH:
        found.faults.append(f"memory grew by {growth / MIB:.0f} MiB")
    told = ", ".join(f"{count} {name}" for name, count in sorted(found.outcomes.items()))
    beside = f"{len(found.seconds)} answers beside, p99 {late * 1000:.0f} ms; +{growth / MIB:.0f} MiB"
    detail = f"{files} files: {told}; {beside}"
    return Line(
        number=NUMBER, title=TITLE, passed=not found.faults, detail="; ".join(found.faults[:5]) or detail,
        growth=growth, most_growth=MOST_GROWTH,
    )  # fmt: skip


def _warm(folder: Path) -> None:
    """Start the fork server, and make one file of each kind: what that takes is not a reader's."""
    folder.mkdir()
    for name, make in hostile.GOOD.items():
        reader.columns(make(folder / name))
    for make in BITES:
        make(folder)


def _one(folder: Path, number: int, found: Found) -> None:
    """Make one file, read it, and count what came of it."""
    folder.mkdir()
    rng = random.Random(number)
    names = list(hostile.GOOD)
    name = names[number % len(names)]
    if number % EVERY_BITE == EVERY_BITE - 1:
        said, name = BITES[number // EVERY_BITE % len(BITES)](folder), "records"
    else:
        said = hostile.GOOD[name](folder / name)
        _damage(folder, rng)
    cut = threading.Thread(target=_cut_soon, args=(folder, rng)) if rng.random() < 0.1 else None
    if cut is not None:
        cut.start()
    found.outcomes[_outcome(said, name, found)] += 1
    if number % EVERY_DEATH == 0:
        found.outcomes[_death(found)] += 1
    if cut is not None:
        cut.join()


def _outcome(said: RecordsConfig, name: str, found: Found) -> str:
    try:
        reader.read(said, study_of(name), unreadable=lambda cells: None, limits=LIMITS)
    except BadRecords as problem:
        if len(str(problem).splitlines()) != 1:
            found.faults.append(f"{name}: a refusal of several lines")
        return problem.about if problem.about.startswith("reader") else "refused"
    except Exception as surprise:  # noqa: BLE001 - whatever else comes is a finding
        found.faults.append(f"{name}: {type(surprise).__name__}: {surprise}")
        return "surprise"
    return "read"


def _death(found: Found) -> str:
    """Have a reader end by SIGSEGV, as a parser's defect would."""
    try:
        process.ask(NOBODY, hostile.SEGFAULT, check=lambda one: one)  # type: ignore[arg-type]
    except BadRecords as problem:
        if "SIGSEGV" not in str(problem):
            found.faults.append(f"a death is told as: {problem}")
        return "dead and survived"
    return "surprise"


def _damage(folder: Path, rng: random.Random) -> None:
    """Do something wrong to one of the files there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = rng.choice(files)
    data = path.read_bytes()
    match rng.randrange(5):
        case 0:
            data = data[: rng.randrange(len(data) + 1)]
        case 1:
            data = data + rng.randbytes(rng.randrange(1, 200))
        case 2:
            other, at = rng.choice(files).read_bytes(), rng.randrange(len(data) + 1)
            data = data[:at] + other[rng.randrange(len(other) + 1) :]
        case 3:
            at = rng.randrange(max(1, len(data) - 8))
            data = data[:at] + rng.choice((b"\xff" * 8, b"\x7f" * 8, bytes(8))) + data[at + 8 :]
        case _:
            data = mutate_bytes(data, rng)
    path.write_bytes(data)


def _cut_soon(folder: Path, rng: random.Random) -> None:
    """Cut a file off while it is read."""
    time.sleep(0.05 * rng.random())
    path = rng.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    os.truncate(path, path.stat().st_size // 2)


def _answer(good: Path, over: threading.Event, found: Found) -> None:
    """Answer a study until all is over."""
    plan = make_plan(STUDY)
    asked = rehearse(plan)[0]
    read = reader.Reader(RecordsConfig(source=good), (), NO_RANGES, SYSTEM)
    held = LocalEngine(read, EngineConfig(), SYSTEM, STUDY.max_records).load(plan)
    first = held.answer(asked.query, asked.frame)
    while not over.wait(PAUSE_SECONDS):
        began = time.monotonic()
        if not (held.answer(asked.query, asked.frame) == first).all():
            found.faults.append("an answer changed")
        found.seconds.append(time.monotonic() - began)
    held.close()


def _memory() -> int:
    """Bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
