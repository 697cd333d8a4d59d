"""Old schemas are upgraded by a command, after a backup, or refused; nothing is lost where it is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from eigenveil import __version__
from eigenveil.errors import Code, InternalError
from eigenveil_common.storage import upgrade
from eigenveil_common.storage.database import Connection, Database, Expect, VersionedDatabase
from eigenveil_common.storage.sqlite import SqliteDatabase
from tests.common.storage.places import Place
from tests.support import refused

FIRST = "CREATE TABLE t (name TEXT PRIMARY KEY);"
NEWEST = """
CREATE TABLE t (name TEXT PRIMARY KEY, size INTEGER NOT NULL DEFAULT 7);
CREATE TABLE u (data TEXT);
"""
STEPS = (
    (2, "ALTER TABLE t ADD COLUMN size INTEGER NOT NULL DEFAULT 7;"),
    (3, "CREATE TABLE u (data TEXT); INSERT INTO u SELECT NULL FROM t;"),
)
KILLED = """
import os, signal, sys
from pathlib import Path
from eigenveil_common.storage import postgres, sqlite
from tests.common.storage.places import Place
from tests.common.storage.test_migrations import upgraded
name, where = sys.argv[1:]
place = Place(where if "://" in where else Path(where))
kind = sqlite.SqliteDatabase if place.is_file else postgres.PostgresDatabase
statements, run = int(name), kind._run
def killed(*arguments):
    global statements
    found = run(*arguments)
    statements -= 1
    if statements < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return found
kind._run = killed
upgraded(place)
print("done")
"""


def checked(change: Connection) -> None:
    change.execute("INSERT INTO u VALUES ('checked')")


def upgraded(place: Place) -> Database:
    """The database after its upgrade to the newest schema."""
    database = place.open(NEWEST, 3, migrations=STEPS, expect=Expect.TO_UPGRADE)
    assert isinstance(database, VersionedDatabase)
    database.upgrade(checked)
    return database


def old(place: Place, version: int = 1) -> None:
    """A database of the first schema that says it is of `version`."""
    database = place.open(FIRST, version)
    with database.transaction() as change:
        change.execute("INSERT INTO t VALUES ('kept')")
    place.close()


def test_an_old_schema_is_upgraded_by_a_command_alone(place: Place) -> None:
    old(place)
    for expect in (Expect.ANY, Expect.EXISTING):
        with refused(Code.STORAGE, "schema version 1", "needs 3", "upgrade"):
            place.open(NEWEST, 3, migrations=STEPS, expect=expect)
    database = upgraded(place)
    assert [dict(row) for row in database.rows("SELECT * FROM t")] == [{"name": "kept", "size": 7}]
    assert len(database.rows("SELECT * FROM u")) == 2
    again = place.open(NEWEST, 3, migrations=STEPS, expect=Expect.EXISTING)
    assert len(again.rows("SELECT * FROM u")) == 2


def refuse(change: Connection) -> None:
    raise ValueError("a chain is broken")


@pytest.mark.parametrize("cause", ["a step", "the check"])
def test_an_upgrade_that_fails_changes_nothing(place: Place, cause: str) -> None:
    old(place)
    broken = (STEPS[0], (3, STEPS[1][1] + "INSERT INTO nothing VALUES (1);"))
    steps = broken if cause == "a step" else STEPS
    database = place.open(NEWEST, 3, migrations=steps, expect=Expect.TO_UPGRADE)
    assert isinstance(database, VersionedDatabase)
    with pytest.raises((InternalError, ValueError), match=r"nothing|broken"):
        database.upgrade(refuse)
    assert database.version() == 1
    place.close()
    assert len(place.open(FIRST, 1).rows("SELECT name FROM t")) == 1
    place.close()
    assert len(upgraded(place).rows("SELECT * FROM u")) == 2


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_an_upgrade_that_is_killed_at_any_statement_is_whole_or_not_made(place: Place, step: int) -> None:
    old(place)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    for statements in range(0, 40, step):
        command = [sys.executable, "-c", KILLED, str(statements), str(place.where)]
        ended = subprocess.run(command, check=False, capture_output=True, env=environment)
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        database = place.open(NEWEST, 3, migrations=STEPS, expect=Expect.TO_UPGRADE)
        assert isinstance(database, VersionedDatabase)
        columns = {1: ("name",), 3: ("name", "size")}[database.version()]
        assert [tuple(dict(row)) for row in database.rows("SELECT * FROM t")] == [columns]
        whole = database.version() == 3
        place.close()
        if whole:
            break
    assert statements > 10
    assert len(place.open(NEWEST, 3, migrations=STEPS).rows("SELECT * FROM u")) == 2


def test_a_newer_schema_is_refused(place: Place) -> None:
    old(place, 4)
    with refused(Code.STORAGE, "schema version 4", "needs 3", f"Install {__version__} again"):
        place.open(NEWEST, 3, migrations=STEPS)


def test_a_schema_too_old_to_be_brought_up_is_refused(place: Place) -> None:
    old(place)
    with refused(Code.STORAGE, "no upgrade", "schema version 1", "reduced by what was spent"):
        place.open(NEWEST, 3, migrations=STEPS[1:])


@pytest.mark.parametrize("earlier", [False, True])
def test_a_file_is_copied_before_its_tables_change(tmp_path: Path, earlier: bool) -> None:
    path, copy = tmp_path / "state.db", tmp_path / "state.db.v1"
    if earlier:
        copy.write_bytes(b"left by a copying that was interrupted")
    place = Place(path)
    old(place)
    database = place.open(NEWEST, 3, migrations=STEPS, expect=Expect.TO_UPGRADE)
    assert isinstance(database, SqliteDatabase)
    plan = upgrade.describe(database, str(copy))
    assert (plan.schema_before, plan.schema_after, plan.backup, plan.seconds) == (1, 3, str(copy), None)
    done = upgrade.upgrade(database, plan, lambda: upgrade.back_up_file(database, copy), lambda _: None)
    assert done.seconds is not None
    assert done.bytes > 0
    place.close()
    assert copy.stat().st_mode & 0o777 == 0o600
    remaining = SqliteDatabase(copy, FIRST, 1)
    assert [dict(row) for row in remaining.rows("SELECT * FROM t")] == [{"name": "kept"}]
    remaining.close()


def test_a_damaged_copy_stops_the_upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, copy = Place(tmp_path / "state.db"), tmp_path / "state.db.v1"
    old(place)
    database = place.open(NEWEST, 3, migrations=STEPS, expect=Expect.TO_UPGRADE)
    assert isinstance(database, SqliteDatabase)
    copied = database.copy_to

    def damage(path: Path) -> None:
        copied(path)
        data = bytearray(path.read_bytes())
        data[4096:4200] = bytes(104)
        path.write_bytes(data)

    monkeypatch.setattr(database, "copy_to", damage)
    plan = upgrade.describe(database, str(copy))
    with refused(Code.STORAGE, "is not whole"):
        upgrade.upgrade(database, plan, lambda: upgrade.back_up_file(database, copy), lambda _: None)
    assert database.version() == 1
    place.close()


def test_an_upgrade_needs_room_for_its_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path / "state.db")
    old(place)
    database = place.open(NEWEST, 3, migrations=STEPS, expect=Expect.TO_UPGRADE)
    assert isinstance(database, SqliteDatabase)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2 * database.size()))
    with refused(Code.BAD_CONFIG, "make room"):
        upgrade.back_up_file(database, tmp_path / "copy")
    place.close()
