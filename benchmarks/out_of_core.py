"""Answers over a grid that memory does not hold: how fast, beside a plain read of the same file; peak memory.

    python -m benchmarks.out_of_core --records 100000000 --columns 20 --folder /somewhere/with/space

The file is made of random rows if it is not there, and stays. It is read plainly, then answered about by a
process of its own, as a site holds it: each once after the system forgot what it had of the file, as far as
it does, and once more from its memory. Ends with 1 if an answer from the disk comes at less than 60 % of the
plain read's rate, or takes 512 MiB."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eigenveil.numerics.linalg import single_blas_thread
from eigenveil.queries import Gradient, GradientSpec, Gram, Query
from eigenveil.site.site import Site
from eigenveil.study.grid import S
from eigenveil_client.records.scratch_files import GridFile, ScratchFile
from eigenveil_common.concurrency import CORES

BLOCK = 2**20  # rows
READ = 2**22  # bytes
LEAST_SHARE, MOST_MIB = 0.6, 512
KEY = bytes(32)  # of a file of random numbers


def make(path: Path, records: int, columns: int, key: bytes | None) -> None:
    """Rows around the middle; each block is the first with its rows turned, as drawing takes its time."""
    size = records * columns * np.dtype(np.int16).itemsize
    if path.exists() and path.stat().st_size == size:
        return
    rows = np.random.default_rng(0).normal(scale=S / 4, size=(min(BLOCK, records), columns))
    block = np.clip(np.rint(rows), -S, S).astype(np.int16)
    with path.open("wb", buffering=0) as raw:
        file = ScratchFile(raw, key=key)
        for start in range(0, records, BLOCK):
            part = np.roll(block, start // BLOCK, axis=0)[: records - start]
            file.append(part.tobytes())
        os.fsync(raw.fileno())


def queries(columns: int) -> Iterator[tuple[str, Query]]:
    """Radii that clip some of the records."""
    centre, directions = np.zeros(columns, dtype=np.int64), np.zeros((columns, 4), dtype=np.int64)
    directions[:4] = 2**18 * np.eye(4, dtype=np.int64)
    spec = GradientSpec(centre=centre, directions=directions, offset=np.zeros_like(directions), shift=12)
    yield "gradient, 4 directions", Gradient(spec=spec, radius=2**28)
    yield "products of columns", Gram(centre=centre, radius=int(1.1 * S / 4 * columns**0.5))


def forget(path: Path) -> None:
    """Ask the system to let go of what it has of a file."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def plain(path: Path) -> float:
    """Seconds of one read from the front to the back."""
    buffer, began = bytearray(READ), time.monotonic()
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.monotonic() - began


@dataclass(frozen=True, slots=True)
class Answered:
    """A query's name, the seconds and the seconds of processors that its answer took, and the most memory of
    the process by then in MiB."""

    name: str
    seconds: float
    processor: float
    mib: float


def answered(path: Path, columns: int, key: bytes | None, cold: bool) -> list[Answered]:
    """Cost of each query."""
    found = []
    with path.open("rb", buffering=0) as raw, ThreadPoolExecutor(CORES) as threads, single_blas_thread():
        site = Site(GridFile(ScratchFile(raw, key=key), columns, np.int16), workers=CORES)
        for name, query in queries(columns):
            if cold:
                forget(path)
            began, used = time.monotonic(), time.process_time()
            site.answer(query, threads.map)
            took = time.monotonic() - began, time.process_time() - used
            found.append(Answered(name, *took, most_memory()))
    return found


def most_memory() -> float:
    """Not getrusage: what it says began with the process that started this one."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


def measured(path: Path, columns: int, key: bytes | None, cold: bool) -> bool:
    """Say how the answers compare with a plain read of the same file; whether they keep up."""
    if cold:
        forget(path)
    read, gigabytes, stored = plain(path), path.stat().st_size / 1e9, True
    where = f"{'disk' if cold else 'memory'}{', encrypted' if key else ''}"
    print(f"{where}: a plain read {gigabytes / read:.2f} GB/s", flush=True)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as process:
        for one in process.submit(answered, path, columns, key, cold).result():
            share = read / one.seconds
            print(
                f"  {one.name:24} {gigabytes / one.seconds:5.2f} GB/s, {share:4.0%}; "
                f"{gigabytes / one.processor:5.2f} GB a second of one processor; {one.mib:4.0f} MiB",
                flush=True,
            )
            stored &= one.mib < MOST_MIB and (share >= LEAST_SHARE or not cold)
    return stored


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--folder", type=Path, required=True)
    round_query = parser.parse_args()
    stored = True
    for key in (None, KEY):
        path = (
            round_query.folder
            / f"grid-{round_query.records}-{round_query.columns}{'-encrypted' if key else ''}"
        )
        make(path, round_query.records, round_query.columns, key)
        for cold in (True, False):
            stored &= measured(path, round_query.columns, key, cold)
    return 0 if stored else 1


if __name__ == "__main__":
    sys.exit(main())
