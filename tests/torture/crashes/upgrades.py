"""Power cuts of upgrades: the databases of earlier versions' golden federations, cut at every write and sync
of their upgrade. What is left opens as the old version or as the new one, with all that was in it, and the
same command completes it."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random

from eigenveil.errors import EigenveilError
from eigenveil_client.site.state import store as site_store
from eigenveil_common.storage.database import Connection, Expect, Migrations
from eigenveil_common.storage.sqlite import SqliteDatabase
from eigenveil_server.storage import database as coordinator_store
from tests.compat.golden import FEDERATION
from tests.compat.parties import HERE
from tests.fuzz.hunt import memory_folder
from tests.torture.crashes.vfs import Disk, powered

NAME, VFS = "state.db", "upgrade"
REPEATS = 3  # outcomes of each cut: what was not synced survives by chance
Image = dict[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A database of an earlier version, and this program's schema of it."""

    title: str
    image: Image
    schema: str
    version: int
    migrations: Migrations

    def opened(self, folder: Path, expect: Expect, vfs: str | None = None) -> SqliteDatabase:
        path = folder / NAME
        return SqliteDatabase(path, self.schema, self.version, vfs, migrations=self.migrations, expect=expect)


def kinds() -> Iterator[Kind]:
    """The coordinator's and a site's database of each earlier version."""
    coordinator = coordinator_store.SCHEMA, coordinator_store.VERSION, coordinator_store.MIGRATIONS
    site = site_store.SCHEMA, site_store.VERSION, site_store.MIGRATIONS
    for archive in sorted(HERE.glob(f"*/{FEDERATION}")):
        for folder, (schema, version, migrations) in {
            "coordinator": coordinator, "sites/hospital-1": site,
        }.items():  # fmt: skip
            image = files(archive, folder)
            title = f"{archive.parent.name} {folder}"
            yield Kind(title=title, image=image, schema=schema, version=version, migrations=migrations)


def files(archive: Path, folder: str) -> Image:
    """The files of a database in a folder of the archive."""
    with tarfile.open(archive) as opened:
        members = [one for one in opened if one.isfile() and Path(one.name).parent == Path(folder)]
        found = [one for one in members if Path(one.name).name in (NAME, f"{NAME}-wal")]
        return {Path(one.name).name: data.read() for one in found if (data := opened.extractfile(one))}


def content(database: SqliteDatabase) -> dict[str, tuple[int, str]]:
    """Number and digest of the rows of each table, of the columns that every version has."""
    tables = database.rows("SELECT name FROM sqlite_master WHERE type = 'table'")
    found = {}
    for (name,) in tables:
        if name in ("eigenveil_schema", "sqlite_sequence", "audit"):
            continue
        columns = [row["name"] for row in database.rows(f"PRAGMA table_info({name})")]
        shared = [one for one in columns if one != "rule" or name == "decline_counts"]
        listed = ", ".join(f'"{one}"' for one in shared)
        rows = sorted(repr(tuple(row)) for row in database.rows(f"SELECT {listed} FROM {name}"))
        found[name] = len(rows), hashlib.sha256("\n".join(rows).encode()).hexdigest()
    return found


def cut(kind: Kind, at: int, random: Random) -> tuple[Image, bool]:
    """What a power cut at the `at`-th write or sync leaves; True if the upgrade was complete before."""
    with memory_folder() as here:
        write(here, kind.image)
        disk, complete, database = Disk(cut=at), False, None
        disk.load(here)
        with powered(VFS, disk):
            try:
                database = kind.opened(here, Expect.TO_UPGRADE, VFS)
                database.upgrade(unchecked)
                complete = True
            except EigenveilError:
                if not disk.off:
                    raise
            finally:
                close(database)
        return {Path(name).name: data for name, data in disk.survived(random).items()}, complete


def unchecked(_: Connection) -> None:
    """The checks of both programs read only; tests of the commands make them."""


def close(database: SqliteDatabase | None) -> None:
    if database is not None:
        try:
            database.close()
        except EigenveilError:
            return  # the power is off


def write(here: Path, image: Image) -> None:
    for name, data in image.items():
        (here / name).write_bytes(data)


def faults_of(kind: Kind, image: Image, before: dict[str, tuple[int, str]], *, complete: bool) -> list[str]:
    """What is wrong with what a cut left."""
    with memory_folder() as here:
        write(here, image)
        try:
            with closing(kind.opened(here, Expect.TO_UPGRADE)) as database:
                waiting = len(database.pending)
                if complete and waiting:
                    return ["a finished upgrade was lost"]
                if waiting not in (0, len(steps(kind))):
                    return ["a part of the upgrade is there"]
                if content(database) != before:
                    return ["rows differ"]
                database.upgrade(unchecked)
                database.check_whole()
                return [] if content(database) == before else ["rows differ after the second run"]
        except EigenveilError as problem:
            return [f"all: {problem}"]


def steps(kind: Kind) -> Migrations:
    """The steps from the version of the image."""
    with memory_folder() as here:
        write(here, kind.image)
        with closing(kind.opened(here, Expect.TO_UPGRADE)) as database:
            return database.pending


def judge(kind: Kind, repeats: int) -> tuple[list[str], int]:
    """Faults of all cuts, and their number."""
    with memory_folder() as here:
        write(here, kind.image)
        with closing(kind.opened(here, Expect.TO_UPGRADE)) as database:
            before = content(database)
    found: list[str] = []
    at = number = 0
    complete = False
    while not complete:
        at += 1
        for repeat in range(repeats):
            image, complete = cut(kind, at, Random(at * 1_000 + repeat))
            number += 1
            faults = faults_of(kind, image, before, complete=complete)
            found += [f"{kind.title}, cut {at}: {fault}" for fault in faults]
    return found, number


def run(folder: Path, scale: float) -> tuple[list[str], str]:
    """Every cut of every database."""
    faults: list[str] = []
    figures = []
    for kind in kinds():
        wrong, number = judge(kind, max(1, round(REPEATS * scale)))
        faults += wrong
        figures.append(f"{kind.title} {number} cuts")
    return faults, ", ".join(figures)
