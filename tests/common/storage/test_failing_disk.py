"""SQLite on a failing disk: no write follows an error, and no committed row is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest

from eigenveil.errors import Code, InternalError
from eigenveil_common.storage import sqlite
from eigenveil_common.storage.database import Row
from eigenveil_common.storage.sqlite import SqliteDatabase
from tests.support import Patch, refused

SCHEMA = "CREATE TABLE t (i INTEGER PRIMARY KEY) STRICT;"


@dataclass(slots=True)
class Disk:
    """Count of syncs that succeed, of files whose names end in `suffix`."""

    syncs: int = 1_000_000
    suffix: str = ""

    def sync(self, name: str) -> None:
        if name.endswith(self.suffix):
            self.syncs -= 1
            if self.syncs < 0:
                raise apsw.IOError("planted")


class Files(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        super().__init__("failing", "")
        self.disk = disk

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return File(name, flags, self.disk)


class File(apsw.VFSFile):
    def __init__(self, name: str | apsw.URIFilename | None, flags: list[int], disk: Disk) -> None:
        super().__init__("", name, flags)
        self.path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self.disk = disk

    def xSync(self, flags: int) -> None:
        self.disk.sync(self.path)
        super().xSync(flags)


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    files = Files(disk)
    yield disk
    files.unregister()


def insert(database: SqliteDatabase, number: int) -> None:
    with database.transaction() as change:
        change.execute("INSERT INTO t VALUES (?)", (number,))


def test_nothing_is_written_after_a_sync_that_failed(tmp_path: Path, disk: Disk) -> None:
    """A second sync succeeds on Linux although the pages of the first are gone."""
    database = SqliteDatabase(tmp_path / "x.db", SCHEMA, 1, "failing")
    insert(database, 1)
    disk.syncs, disk.suffix = 0, "-wal"
    with refused(Code.STORAGE, "planted"):
        insert(database, 2)
    disk.syncs = 1_000_000
    with refused(Code.STORAGE, "planted"):
        insert(database, 3)
    database.close()
    again = SqliteDatabase(tmp_path / "x.db", SCHEMA, 1)
    assert [row["i"] for row in again.rows("SELECT i FROM t ORDER BY i")] in ([1], [1, 2])
    again.close()


def test_an_error_of_the_checkpoint_is_one_of_the_commit(
    tmp_path: Path, disk: Disk, monkeypatch: Patch
) -> None:
    """SQLite's own copying says nothing of it, and empties the log at the next attempt."""
    database = SqliteDatabase(tmp_path / "x.db", SCHEMA, 1, "failing")
    insert(database, 1)
    monkeypatch.setattr(sqlite, "LOG_PAGES", 1)
    disk.syncs, disk.suffix = 0, "x.db"
    with refused(Code.STORAGE, "planted"):
        insert(database, 2)
    with refused(Code.STORAGE):
        insert(database, 3)
    disk.syncs = 1_000_000
    database.close()


def test_the_log_does_not_grow_for_ever(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(sqlite, "LOG_PAGES", 10)
    database = SqliteDatabase(tmp_path / "x.db", SCHEMA, 1)
    for number in range(200):
        insert(database, number)
    assert (tmp_path / "x.db-wal").stat().st_size < 20 * 4200
    database.close()


@pytest.mark.parametrize("syncs", range(12))
def test_a_database_is_made_whole_or_not_at_all(tmp_path: Path, disk: Disk, syncs: int) -> None:
    disk.syncs, code = syncs, None
    try:
        with closing(SqliteDatabase(tmp_path / "x.db", SCHEMA, 1, "failing")) as database:
            insert(database, 1)
    except InternalError as problem:
        code = problem.code
    assert code is Code.STORAGE or disk.syncs >= 0  # every sync that failed was told
    disk.syncs = 1_000_000
    again = SqliteDatabase(tmp_path / "x.db", SCHEMA, 1)
    assert len(again.rows("SELECT * FROM t")) in (0, 1)
    again.close()


def test_a_failed_commit_is_rolled_back_and_no_write_follows(tmp_path: Path) -> None:
    """Read on, it would be believed; and its locks would keep every other process waiting."""
    ran: list[str] = []

    class FailingCommit(SqliteDatabase):
        def _has_begun(self, *, last: bool) -> bool:
            ran.append(self.begin)
            return super()._has_begun(last=last)

        def _run(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
            ran.append(statement)
            if statement == "COMMIT":
                raise InternalError(Code.STORAGE, "the disk failed")
            return super()._run(statement, parameters)

    SqliteDatabase(tmp_path / "x.db", SCHEMA, 1).close()
    database = FailingCommit(tmp_path / "x.db", SCHEMA, 1)
    ran.clear()
    for _ in range(2):
        with refused(Code.STORAGE, "the disk failed"), database.transaction():
            pass
    assert ran == ["BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"]
    database.close()
