"""Time of the disk for a transaction like a round's, of as many writers, in the product's mode."""

from __future__ import annotations

import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

from eigenveil_common.storage.sqlite import SqliteDatabase

REPEATS = 60


def sync_ms(folder: Path, name: str, size: int, writers: int) -> float:
    """Median milliseconds until `writers` databases in `folder` have each `size` bytes more, all at once."""
    data, times = os.urandom(size), []

    def write(database: SqliteDatabase) -> None:
        with database.transaction() as change:
            change.execute("INSERT INTO probe VALUES (?)", (data,))

    with ExitStack() as open_files, ThreadPoolExecutor(writers) as threads:
        schema = "CREATE TABLE probe (data BLOB) STRICT"
        databases = [
            open_files.enter_context(closing(SqliteDatabase(folder / f"{name}-{i}.db", schema, 1)))
            for i in range(writers)
        ]
        for _ in range(REPEATS):
            begin = time.perf_counter()
            list(threads.map(write, databases))
            times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)
