"""Good files of every kind that a site reads, and what is done to them.

Bits are flipped, files cut off (also while they are read), put together wrongly, lengthened, or made to bite:
far cells, bombs, stated sizes, a hostile schema. All follows from a number."""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from eigenveil_client.records.tables.source import RecordsConfig
from tests.client.records.isolated import hostile, workbooks
from tests.fuzz.mutations import mutate_bytes

Make = Callable[[Path], RecordsConfig]
# By the name of a good file of their kind.
BITES: Mapping[str, tuple[Make, ...]] = {
    "records.xlsx": (
        partial(hostile.far_cell, dimension=False), partial(hostile.far_cell, dimension=True),
        hostile.bombed_workbook,
    ),
    "records.csv.gz": (
        partial(hostile.packed, piece=b"1", times=6),
        partial(hostile.packed, piece=b"1" * 2**19 + b",2,3\n", times=20),
    ),
    "records.zarr": (hostile.wide_zarr,),
    "records.db": (hostile.endless_view,),
    "records.ods": (partial(workbooks.ods, repeated=2**17),),
}  # fmt: skip
EVERY_BITE = 200  # files of a kind, of which the first are those that are made to bite: they take long
CUT = 0.1  # the share of files that are cut off while they are read
CUT_SECONDS = 0.05


def kinds() -> tuple[str, ...]:
    """A name for each way in which a good file is made: endings that mean the same are one."""
    found: dict[Make, str] = {}
    for name, make in hostile.GOOD.items():
        found.setdefault(make, name)
    return tuple(found.values())


def make_good(folder: Path, name: str) -> RecordsConfig:
    """A whole file, in an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return hostile.GOOD[name](folder / name)


def make_damaged(folder: Path, name: str, number: int) -> RecordsConfig:
    """The damaged file `number` of a kind, in a folder of its own."""
    message, bites = make_good(folder, name), BITES.get(name, ())
    if number % EVERY_BITE < len(bites):
        shutil.rmtree(folder)
        folder.mkdir()
        return bites[number % EVERY_BITE](folder / name)
    damage(folder, random.Random(f"{name} {number}"))
    return message


def damage(folder: Path, rng: random.Random) -> None:
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


@contextmanager
def perhaps_cut(folder: Path, number: int) -> Iterator[None]:
    """Cut a file off while it is read, of every tenth number or so."""
    rng = random.Random(number)
    if rng.random() >= CUT:
        yield
        return
    thread = threading.Thread(target=_cut_soon, args=(folder, rng))
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _cut_soon(folder: Path, rng: random.Random) -> None:
    time.sleep(CUT_SECONDS * rng.random())
    path = rng.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    os.truncate(path, path.stat().st_size // 2)
