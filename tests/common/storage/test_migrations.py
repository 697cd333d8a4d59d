"""Old schemas are migrated step by step or refused, without loss."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from eigenveil.errors import Code
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
from tests.common.storage.test_migrations import NEWEST, STEPS
name, where = sys.argv[1:]
place = Place(where if "://" in where else Path(where))
kind = sqlite.SqliteDatabase if place.is_file else postgres.PostgresDatabase
done = getattr(kind, name)
def killed(*arguments):
    found = done(*arguments)
    if name != "_run" or STEPS[0][1] in arguments:
        os.kill(os.getpid(), signal.SIGKILL)
    return found
setattr(kind, name, killed)
place.open(NEWEST, 3, migrations=STEPS)
"""


def old(place: Place, version: int = 1) -> None:
    """A database of the first schema that says it is of `version`."""
    database = place.open(FIRST, version)
    with database.transaction() as change:
        change.execute("INSERT INTO t VALUES ('kept')")
    place.close()


def test_an_old_schema_is_brought_up_to_date(place: Place) -> None:
    old(place)
    database = place.open(NEWEST, 3, migrations=STEPS)
    assert [dict(row) for row in database.rows("SELECT * FROM t")] == [{"name": "kept", "size": 7}]
    assert len(database.rows("SELECT * FROM u")) == 1
    again = place.open(NEWEST, 3, migrations=STEPS)
    assert len(again.rows("SELECT * FROM u")) == 1


def test_a_step_that_fails_leaves_the_last_that_did_not(place: Place) -> None:
    old(place)
    broken = (STEPS[0], (3, STEPS[1][1] + "INSERT INTO nothing VALUES (1);"))
    with refused(Code.STORAGE, "nothing"):
        place.open(NEWEST, 3, migrations=broken)
    database = place.open(NEWEST, 2, migrations=STEPS)
    assert database.rows("SELECT size FROM t")[0]["size"] == 7
    assert len(place.open(NEWEST, 3, migrations=STEPS).rows("SELECT * FROM u")) == 1


@pytest.mark.parametrize("moment", ["back_up_before_migration", "_run", "set_version"])
def test_a_migration_that_is_killed_changes_nothing(place: Place, moment: str) -> None:
    old(place)
    command = [sys.executable, "-c", KILLED, moment, str(place.where)]
    for _ in range(2):
        ended = subprocess.run(
            command, check=False, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        )
        assert ended.returncode == -signal.SIGKILL
        with closing(place.open(FIRST, 1)) as database:
            assert [tuple(dict(row)) for row in database.rows("SELECT * FROM t")] == [("name",)]
    assert len(place.open(NEWEST, 3, migrations=STEPS).rows("SELECT * FROM u")) == 1


def test_a_newer_schema_is_refused(place: Place) -> None:
    old(place, 4)
    with refused(Code.STORAGE, "schema version 4", "needs 3", "Install that program again"):
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
    place.open(NEWEST, 3, migrations=STEPS)
    place.close()
    assert copy.stat().st_mode & 0o777 == 0o600
    remaining = SqliteDatabase(copy, FIRST, 1)
    assert [dict(row) for row in remaining.rows("SELECT * FROM t")] == [{"name": "kept"}]
    remaining.close()
