"""Cost of keeping a masked answer before it leaves: rows of so many bytes, in one transaction that takes the
place of the last one's, in the product's database; and one file beside it, synced.

`python -m benchmarks.secure.storing` prints milliseconds, and how many bytes went to the disk for each kept.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from eigenveil.queries.limits import triangle
from eigenveil_common.files import sync
from eigenveil_common.storage.sqlite import SqliteDatabase

NUMBERS = (50_000, triangle(1000), triangle(5000))
ROWS = (2**18, 2**20, 2**22, 2**27)  # bytes
ENOUGH = 60_000_000  # bytes of one measurement
SCHEMA = "CREATE TABLE probe (piece INTEGER PRIMARY KEY, data BLOB) STRICT"


def in_rows(database: SqliteDatabase, data: memoryview, size: int) -> None:
    """As a site does it."""
    with database.transaction() as change:
        change.execute("DELETE FROM probe")
        for piece, start in enumerate(range(0, len(data), size)):
            change.execute("INSERT INTO probe VALUES (?, ?)", (piece, data[start : start + size]))


def in_file(folder: Path, data: memoryview) -> None:
    """As it could be done: durable before the transaction that names it."""
    path = folder / "answer"
    path.write_bytes(data)
    sync(path)


def said(work: Callable[[], None], size: int) -> str:
    """Medians by the clock and of processor time, and bytes written for each that is kept."""
    before, times = _written(), []
    for _ in range(max(4, ENOUGH // size)):
        clock, processor = time.perf_counter(), time.process_time()
        work()
        times.append((time.perf_counter() - clock, time.process_time() - processor))
    took = [1e3 * statistics.median(column) for column in zip(*times, strict=True)]
    more = (_written() - before) / size / len(times)
    return f"{took[0]:.1f} ms, {took[1]:.1f} of processor time, {more:.2f} bytes to the disk for each"


def _written() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("write_bytes")))


def main() -> None:
    """Print them."""
    for numbers in NUMBERS:
        data, mb = memoryview(os.urandom(8 * numbers)), 8e-6 * numbers
        for size in ROWS:
            with tempfile.TemporaryDirectory() as folder:
                with closing(SqliteDatabase(Path(folder) / "probe.db", SCHEMA, 1)) as remaining:
                    result = said(partial(in_rows, remaining, data, size), len(data))
                print(f"{mb:.1f} MB in rows of {size / 2**20:g} MiB: {result}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            result = said(partial(in_file, Path(folder), data), len(data))
            print(f"{mb:.1f} MB in a file: {result}", flush=True)


if __name__ == "__main__":
    main()
