"""Power cuts of upgrades: the databases of earlier versions' golden federations, cut at every write and sync
of their upgrade, to which one step is added: so an upgrade has at least two. What is left opens as the old
version or as the new one, with the tables of that version and all rows, and the same command completes it."""

from __future__ import annotations

import hashlib
import sqlite3
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random

from eigenveil.errors import Code, EigenveilError
from eigenveil_client.site.state import store as site_store
from eigenveil_common.storage.database import Connection, Expect, Migrations
from eigenveil_common.storage.sqlite import SqliteDatabase
from eigenveil_server.storage import database as coordinator_store
from tests.common.storage.places import tables_of
from tests.compat.golden import FEDERATION
from tests.compat.parties import HERE, SITES
from tests.fuzz.hunt import memory_folder
from tests.torture.crashes.vfs import Disk, powered

NAME, VFS = "state.db", "upgrade"
REPEATS = 3  # outcomes of each cut: what was not synced survives by chance
ADDED = "CREATE TABLE added (name TEXT NOT NULL) STRICT;"  # by the step after the last
DECLINED = f"INSERT INTO declined (plan, reason, at, ended) VALUES ('aa', '{Code.POLICY.value}', 1, 0)"
Image = dict[str, bytes]
Columns = Mapping[str, tuple[str, ...]]  # by table


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A database of an earlier version, and this program's schema of it with one more step."""

    title: str
    image: Image
    schema: str
    version: int
    migrations: Migrations

    def opened(self, folder: Path, expect: Expect, vfs: str | None = None) -> SqliteDatabase:
        path = folder / NAME
        return SqliteDatabase(path, self.schema, self.version, vfs, migrations=self.migrations, expect=expect)


def kinds() -> Iterator[Kind]:
    """Yield the databases of the coordinator and of each site of each earlier version."""
    for archive in sorted(HERE.glob(f"*/{FEDERATION}")):
        for folder in ("coordinator", *(f"sites/{name}" for name in SITES)):
            store = coordinator_store if folder == "coordinator" else site_store
            image, version = files(archive, folder), store.VERSION + 1
            yield Kind(
                title=f"{archive.parent.name} {folder}",
                image=image if store is coordinator_store else with_row(image, DECLINED),
                schema=store.SCHEMA + ADDED,
                version=version,
                migrations=(*store.MIGRATIONS, (version, ADDED)),
            )


def with_row(image: Image, statement: str) -> Image:
    """Return a database after a statement; its log stays as a killed program leaves it."""
    with memory_folder() as here:
        write(here, image)
        with closing(sqlite3.connect(here / NAME)) as connection:
            connection.execute(statement)
            connection.commit()
            return {path.name: path.read_bytes() for path in (here / NAME, here / f"{NAME}-wal")}


def files(archive: Path, folder: str) -> Image:
    """Return the files of a database in a folder of the archive."""
    with tarfile.open(archive) as opened:
        members = [one for one in opened if one.isfile() and Path(one.name).parent == Path(folder)]
        found = [one for one in members if Path(one.name).name in (NAME, f"{NAME}-wal")]
        return {Path(one.name).name: data.read() for one in found if (data := opened.extractfile(one))}


def columns_of(database: SqliteDatabase) -> Columns:
    tables = database.rows(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name != 'eigenveil_schema'"
    )
    return {
        name: tuple(row["name"] for row in database.rows(f"PRAGMA table_info({name})")) for (name,) in tables
    }


def content(database: SqliteDatabase, columns: Columns) -> dict[str, tuple[int, str]]:
    """Return the number and a digest of the rows of each table, of these columns."""
    found = {}
    for table, names in columns.items():
        listed = ", ".join(f'"{one}"' for one in names)
        rows = sorted(repr(tuple(row)) for row in database.rows(f"SELECT {listed} FROM {table}"))
        found[table] = len(rows), hashlib.sha256("\n".join(rows).encode()).hexdigest()
    return found


def defaults_of(database: SqliteDatabase) -> dict[tuple[str, str], str]:
    """Return the default of each column, by table and name, as SQL."""
    return {
        (table, row["name"]): row["dflt_value"] or "NULL"
        for table in columns_of(database)
        for row in database.rows(f"PRAGMA table_info({table})")
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """State of a database before its upgrade, and the tables and defaults of a new one."""

    columns: Columns
    rows: dict[str, tuple[int, str]]
    tables: list[tuple[str, ...]]
    new_tables: list[tuple[str, ...]]
    defaults: dict[tuple[str, str], str]
    steps: int

    @classmethod
    def of(cls, kind: Kind) -> Expected:
        with memory_folder() as here, closing(kind.opened(here, Expect.NEW)) as database:
            new_tables, defaults = tables_of(database), defaults_of(database)
        with memory_folder() as here:
            write(here, kind.image)
            with closing(kind.opened(here, Expect.TO_UPGRADE)) as database:
                columns = columns_of(database)
                return cls(
                    columns=columns, rows=content(database, columns), tables=tables_of(database),
                    new_tables=new_tables, defaults=defaults, steps=len(database.pending),
                )  # fmt: skip

    def faults(self, database: SqliteDatabase) -> Iterator[str]:
        """Yield what is wrong with a database that is either old or new."""
        if len(database.pending) not in (0, self.steps):
            yield "a part of the upgrade is there"
        if tables_of(database) != (self.tables if database.pending else self.new_tables):
            yield "tables differ"
        if content(database, self.columns) != self.rows:
            yield "rows differ"
        if any(self._changed(database)):
            yield "a new column has another value than its default"

    def _changed(self, database: SqliteDatabase) -> Iterator[bool]:
        """Yield, for each column that earlier tables did not have, if some value is not its default."""
        for table, names in columns_of(database).items():
            for one in set(names) - set(self.columns.get(table, names)):
                default = self.defaults[table, one]
                yield bool(database.rows(f'SELECT 1 FROM {table} WHERE "{one}" IS NOT ({default})'))


def cut(kind: Kind, at: int, random: Random) -> tuple[Image, bool]:
    """Return what a power cut at the `at`-th write or sync leaves, and True if the upgrade was complete."""
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


def faults_of(kind: Kind, image: Image, expected: Expected, *, complete: bool) -> list[str]:
    """Return what is wrong with what a cut left, and after a second run of the upgrade."""
    with memory_folder() as here:
        write(here, image)
        try:
            with closing(kind.opened(here, Expect.TO_UPGRADE)) as database:
                lost = ["a finished upgrade was lost"] if complete and database.pending else []
                found = [*lost, *expected.faults(database)]
                database.upgrade(unchecked)
                database.check_whole()
                return found + [f"{fault}, after the second run" for fault in expected.faults(database)]
        except EigenveilError as problem:
            return [str(problem)]


def judge(kind: Kind, repeats: int) -> tuple[list[str], int]:
    """Return the faults of all cuts, and their number."""
    expected = Expected.of(kind)
    found = [] if expected.steps > 1 else [f"{kind.title} needs no upgrade"]
    at = number = 0
    complete = False
    while not complete:
        at += 1
        for repeat in range(repeats):
            image, complete = cut(kind, at, Random(at * 1_000 + repeat))
            number += 1
            faults = faults_of(kind, image, expected, complete=complete)
            found += [f"{kind.title}, cut {at}: {fault}" for fault in faults]
    return found, number


def run(folder: Path, scale: float) -> tuple[list[str], str]:
    """Return the faults of every cut of every database, and the number of cuts."""
    faults: list[str] = []
    figures = []
    for kind in kinds():
        wrong, number = judge(kind, max(1, round(REPEATS * scale)))
        faults += wrong
        figures.append(f"{kind.title} {number} cuts")
    if not figures:
        faults.append("there is no federation of an earlier version")
    return faults, ", ".join(figures)
