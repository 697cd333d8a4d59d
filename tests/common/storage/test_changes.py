"""[TM23] What was read of watched tables holds until `changes` differs: no change goes unnoticed."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from eigenveil.errors import Code
from eigenveil_common.files import file_version
from eigenveil_common.storage.sqlite import SqliteDatabase
from tests.support import refused

SCHEMA = "CREATE TABLE seen (x INTEGER) STRICT; CREATE TABLE other (x INTEGER) STRICT;"


def opened(path: Path) -> SqliteDatabase:
    database = SqliteDatabase(path, SCHEMA, 1)
    database.watch("seen")
    return database


STATEMENTS = {
    "INSERT INTO seen VALUES (2)": True,
    "UPDATE seen SET x = 3": True,
    "DELETE FROM seen WHERE x = 1": True,
    "INSERT INTO other VALUES (2)": False,
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_own_change_of_a_watched_table_counts_and_of_another_does_not(tmp_path: Path, statement: str) -> None:
    with closing(opened(tmp_path / "state.db")) as database:
        with database.transaction() as change:
            change.execute("INSERT INTO seen VALUES (1)")
        before = database.changes()
        assert database.changes() == before
        with database.transaction() as change:
            change.execute(statement)
            assert (database.changes() != before) == STATEMENTS[statement]
        assert (database.changes() != before) == STATEMENTS[statement]


def test_rolled_back_change_counts_as_one_more(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "state.db")) as database:
        with suppress(KeyError), database.transaction() as change:
            change.execute("INSERT INTO seen VALUES (1)")
            within = database.changes()
            raise KeyError
        assert database.changes() != within


@pytest.mark.parametrize("table", ["seen", "other"])
def test_commit_of_another_connection_counts(tmp_path: Path, table: str) -> None:
    with closing(opened(tmp_path / "state.db")) as database, closing(opened(tmp_path / "state.db")) as second:
        before = database.changes()
        with second.transaction() as change:
            change.execute(f"INSERT INTO {table} VALUES (1)")
            assert database.changes() == before
        assert database.changes() != before


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_text(path.read_text())
    other.replace(path)


def written_alike(path: Path) -> None:
    path.write_text("b")
    os.utime(path, (1, 1))  # at another time: clocks of file systems are coarse


def linked(path: Path) -> None:
    path.rename(path.with_name("other"))
    path.symlink_to("other")


FILE_CHANGES: dict[str, Callable[[Path], object]] = {
    "written": lambda path: path.write_text("ab"),
    "written in the same length": written_alike,
    "replaced by the same": replaced,
    "another mode": lambda path: path.chmod(0o644),
    "removed": Path.unlink,
    "a link in its place": linked,
}


@pytest.mark.parametrize("change", FILE_CHANGES)
def test_version_of_a_file_differs_after(tmp_path: Path, change: str) -> None:
    path = tmp_path / "file"
    path.write_text("a")
    path.chmod(0o600)
    before = file_version(str(path))
    assert file_version(str(path)) == before is not None
    FILE_CHANGES[change](path)
    assert file_version(str(path)) != before


def test_a_file_that_cannot_be_looked_at_is_not_taken_for_an_absent_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert file_version(str(tmp_path / "absent")) is None
    with refused(Code.STORAGE):
        file_version(str(tmp_path / "file" / "below"))
