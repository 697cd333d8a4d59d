"""[R31] A state from before analysts signed is read, and what it had answered keeps its id."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from eigenveil.errors import Code
from eigenveil.planning.choose import rehearse
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.state.received_plans import ConsentStatus
from eigenveil_client.site.state.store import VERSION
from eigenveil_common.storage.sqlite import SqliteDatabase
from tests.client.site.state import schema_8
from tests.client.site.state.schema_8 import make_older_state
from tests.client.site.stated import work
from tests.client.site.support import Stage, a_plan, a_stage, a_study

ENDED, DECLINED = a_plan(submission="ended"), a_plan(submission="declined")
SIGNED = {"declined", "decline_counts", "submissions"}
LATER = {"declined_proofs", "confirmed_kinds", "put_aside"}
NEW = {8: SIGNED | LATER, 9: LATER}
KILLED = """
import os, signal, sys
from pathlib import Path
from eigenveil_client.site.state.store import MIGRATIONS, SCHEMA, VERSION
from eigenveil_common.storage.sqlite import SqliteDatabase
name, path = sys.argv[1:]
done = getattr(SqliteDatabase, name)
def killed(*words):
    done(*words)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(SqliteDatabase, name, killed)
SqliteDatabase(Path(path), SCHEMA, VERSION, migrations=MIGRATIONS)
"""


@pytest.fixture(params=NEW)
def older(stage: Stage, request: pytest.FixtureRequest) -> Stage:
    """A site with a state of a version before, in which one study ended and one was declined."""
    make_older_state(stage, {ENDED: ConsentStatus.ENDED, DECLINED: ConsentStatus.DECLINED})
    steps = ((schema_8.NEXT_VERSION, schema_8.STEP),) if request.param == schema_8.NEXT_VERSION else ()
    SqliteDatabase(stage.config.state, schema_8.SCHEMA, request.param, migrations=steps).close()
    return stage


def tables(state: Path) -> dict[str, Any]:
    """The columns of each table, its indices, and the triggers; nobody here has the file open."""
    with closing(apsw.Connection(str(state))) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found: dict[str, Any] = {
            name: [
                sorted(database.execute(f"PRAGMA {about}({name})"), key=str)
                for about in ("table_xinfo", "index_list")
            ]
            for name in names
        }
        return found | {
            "triggers": list(
                database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name")
            )
        }


def version(state: Path) -> int:
    with closing(apsw.Connection(str(state))) as database:
        return int(next(iter(database.execute("PRAGMA user_version")))[0])


def test_an_older_state_is_brought_up_and_its_ids_stay_used(older: Stage) -> None:
    with closing(older.store()) as store:
        assert store.studies.find(ENDED.digest).signed is None
        assert store.declined.counts() == []
        again = {name: a_plan(a_study(epsilon=0.5), submission=name) for name in ("ended", "declined")}
        replies = {
            name: older.worker(store).work(work(rehearse(plan)[0], older.signed(plan)))
            for name, plan in again.items()
        }
        assert {name: isinstance(reply, Refusal) for name, reply in replies.items()} == {
            "ended": True,
            "declined": False,
        }
        declined = store.declined.get(again["ended"].digest)
        assert declined is not None
        assert declined.reason is Code.CONFLICT


def test_what_was_brought_up_has_the_tables_of_a_new_state(older: Stage, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    new = a_stage(tmp_path / "new")
    before, added = tables(older.config.state), NEW[version(older.config.state)]
    for one in (older, new):
        one.store().close()
    assert added.isdisjoint(before)
    assert tables(older.config.state) == tables(new.config.state)
    assert tables(older.config.state).keys() == before.keys() | added


@pytest.mark.parametrize("at", ["back_up_before_migration", "set_version"])
def test_a_kill_while_it_is_brought_up_leaves_the_older_state(older: Stage, at: str) -> None:
    state = older.config.state
    before = version(state), tables(state)
    for _ in range(2):
        ended = subprocess.run([sys.executable, "-c", KILLED, at, str(state)], check=False)
        assert ended.returncode == -signal.SIGKILL
        assert (version(state), tables(state)) == before
    with closing(older.store()) as store:
        assert {seen.plan for seen in store.studies.all()} == {ENDED.digest, DECLINED.digest}
    assert version(state) == VERSION
