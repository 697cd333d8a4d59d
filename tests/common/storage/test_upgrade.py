"""Tables of version 11 become those of today, for a kill at any step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from eigenveil_common.storage import ledger_store, postgres, sqlite
from eigenveil_common.storage.database import Connection, Database
from eigenveil_server.storage import database as store_module
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.database import open_store
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.study_reads import StoredStudy, Studies
from eigenveil_server.storage.submissions import StudyLists, analyst_usage, summary_of
from tests.common.storage.places import Place
from tests.server.rig import UNLIMITED
from tests.support import a_plan

NEW = (
    "ALTER TABLE ",
    "CREATE TABLE submissions ",
    "CREATE INDEX submissions_by_analyst ",
    "CREATE INDEX studies_by_",
)
OLD_INDEXES = (
    "CREATE INDEX studies_by_state ON studies (state);\n"
    "CREATE INDEX studies_by_time ON studies (submitted_at, digest);\n"
)
ON_FILE = (
    (
        "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name <> 'studies' "
        "ORDER BY name"
    ),
    "SELECT name, type, \"notnull\", dflt_value, pk FROM pragma_table_xinfo('studies') ORDER BY name",
)
ON_SERVER = (
    (
        "SELECT table_name, column_name, data_type, collation_name, is_nullable, column_default "
        "FROM information_schema.columns WHERE table_schema = 'public' ORDER BY table_name, column_name"
    ),
    "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY indexname",
    (
        "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2"
    ),
    "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1",
    (
        "SELECT c.relname, a.attname, a.attstorage::text FROM pg_attribute a "
        "JOIN pg_class c ON c.oid = a.attrelid "
        "WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 ORDER BY 1, 2"
    ),
)
PLAN = a_plan()


def version_11(schema: str) -> str:
    """The coordinator's tables as of version 11, of those of today."""
    statements = [one.strip() for one in schema.split(";\n") if one.strip()]
    kept = "".join(f"{one};\n" for one in statements if not one.startswith(NEW))
    lines = [line for line in kept.splitlines() if not line.strip().startswith("authorization_json ")]
    assert len(lines) == len(kept.splitlines()) - 1
    return "\n".join(lines) + "\n" + OLD_INDEXES


def old(place: Place) -> Database:
    """A database of version 11 with a study that failed."""
    schema = (
        ledger_store.SCHEMA + version_11(store_module._SQLITE),
        ledger_store.POSTGRESQL_SCHEMA + version_11(store_module._POSTGRESQL),
    )
    database = place.open(schema, 11)
    values = {name: getattr(a_study("old"), name) for name in StoredStudy.__dataclass_fields__}
    del values["authorization_json"]
    with database.transaction() as change:
        change.insert("studies", values | {"state": "failed"})
    return database


def a_study(submission: str) -> StoredStudy:
    """The study of `PLAN`; any other than that of "old" has a digest that is not its plan's."""
    return StoredStudy(
        digest=PLAN.digest if submission == "old" else "e" * 64, name="tiny", analyst="ada",
        submission=submission, plan_json=PLAN.to_json(), signature=b"", micro_rho=5, expected_rounds=2,
        state=StudyState.RUNNING, failure="", submitted_at=1 if submission == "old" else 2,
    )  # fmt: skip


def shape(database: Database, *, on_file: bool) -> list[list[tuple[Any, ...]]]:
    """All tables, columns in any order, indexes and triggers."""
    looks = ON_FILE if on_file else ON_SERVER
    return [[tuple(dict(row).values()) for row in database.rows(look)] for look in looks]


@pytest.fixture
def another(request: pytest.FixtureRequest, place: Place, tmp_path: Path) -> Path | str:
    """Where a second database of the same kind can be made."""
    if place.is_file:
        return tmp_path / "another.db"
    made: str = request.getfixturevalue("server").database()
    return made


def test_tables_of_version_11_become_those_that_are_made_today_and_their_studies_count(
    place: Place, another: Path | str
) -> None:
    old(place)
    place.close()
    with closing(open_store(another)) as new, closing(open_store(place.where)) as store:
        assert shape(store.reader, on_file=place.is_file) == shape(new.reader, on_file=place.is_file)
        (told,) = analyst_usage(store.reader, 2)
        assert (told.studies_today, told.bytes_today) == (1, len(PLAN.to_json()))
        stored = Studies(store.reader).get(PLAN.digest)
        assert stored.authorization is None
        with store.writer.transaction() as change:
            summary = summary_of(PLAN.to_json())
            study_writes.add_study(change, a_study("new"), "submitted", UNLIMITED, summary)
        listed = StudyLists(store.reader).list_after("", 9)
        assert [(one.submission, one.signer) for one in listed] == [("old", ""), ("new", "")]
        assert listed[0].summary == listed[1].summary, "of the old one, from its plan"


def test_a_kill_on_the_way_leaves_version_11(place: Place) -> None:
    """After each statement, and once the version is noted: nothing of it is there before the commit."""
    old(place)
    place.close()
    code = "import sys; from tests.common.storage.test_upgrade import *; kill_at_each(sys.argv[1])"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(place.where)],
        env=environment, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    with closing(open_store(place.where)) as store:
        assert [one.submission for one in StudyLists(store.reader).list_after("", 9)] == ["old"]


def kill_at_each(place: str) -> None:
    """In a process without threads: kill an upgrade of `place` at every step, and compare what is left."""
    on_file = "://" not in place
    where = Path(place) if on_file else place
    _, statements = (store_module.MIGRATIONS if on_file else store_module.POSTGRESQL_MIGRATIONS)[0]
    steps = [one for one in statements.split(";\n") if one.strip()]
    assert len(steps) >= 8
    before = left(where)
    assert before[0] == 11
    for passed in range(len(steps) + 2):
        if (child := os.fork()) == 0:
            first = "".join(f"{one};\n" for one in steps[:passed])
            upgrade_and_die(where, first or "SELECT 1;", noted=passed > len(steps))
            os._exit(0)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        assert left(where) == before, passed


def upgrade_and_die(where: Path | str, statements: str, *, noted: bool) -> None:
    """Begin the upgrade with these `statements`, and die; `noted`: after the version is written."""
    store_module.MIGRATIONS = store_module.POSTGRESQL_MIGRATIONS = ((12, statements),)
    for kind in (sqlite.SqliteDatabase, postgres.PostgresDatabase):
        note: Callable[[Any, Connection, int], None] = kind.set_version

        def dying(self: Any, change: Connection, version: int, note: Any = note) -> None:
            if noted:
                note(self, change, version)
            os.kill(os.getpid(), signal.SIGKILL)

        kind.set_version = dying  # type: ignore[method-assign]
    open_store(where)


def left(where: Path | str) -> tuple[int, list[list[tuple[Any, ...]]]]:
    place = Place(where)
    database: Any = place.open("", 11)
    found = database.version(), shape(database, on_file=place.is_file)
    place.close()
    return found
