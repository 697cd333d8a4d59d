"""Databases with the tables of each earlier version, upgraded: every table, column, default, collation, index
and trigger is that of a new database, and this program reads the rows that were declined before."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eigenveil.errors import Code
from eigenveil_client.site.state import store as site_store
from eigenveil_client.site.state.declined_plans import DeclinedPlan, DeclinedPlans
from eigenveil_common.storage.database import Connection, Expect
from eigenveil_server.storage import database as coordinator_store
from eigenveil_server.storage.database import open_store, open_to_upgrade
from eigenveil_server.storage.states import ConsentState, SiteConsent, consents, store_consent
from tests.common.storage.places import Place, tables_of
from tests.compat.parties import WHEELS, environment, unpacked

SCHEMAS = """
import json
from eigenveil_client.site.state import store
from eigenveil_server.storage import database
coordinator = (database.SCHEMA, database.POSTGRESQL_SCHEMA), database.VERSION
print(json.dumps({"coordinator": coordinator, "site": (store.SCHEMA, store.VERSION)}))
"""
Schemas = dict[str, Any]
assert WHEELS, "there is no wheel of an earlier version"


@pytest.fixture(scope="session", params=WHEELS, ids=lambda path: path.parent.name)
def earlier(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Schemas:
    """The SQL of an earlier version's tables, and their version."""
    env = environment(unpacked(request.param, tmp_path_factory.mktemp("wheel") / "earlier"), 0.0)
    ended = subprocess.run([sys.executable, "-c", SCHEMAS], env=env, check=True, capture_output=True)
    found: Schemas = json.loads(ended.stdout)
    return found


@pytest.fixture
def new(place: Place, tmp_path: Path, request: pytest.FixtureRequest) -> Path | str:
    """A second empty database, on the same kind as `place`."""
    url: str = "" if place.is_file else request.getfixturevalue("server").database()
    return url or tmp_path / "new.db"


def unchecked(_: Connection) -> None:
    """The checks of both programs read only; tests of the commands make them."""


def fill(place: Place, schema: Any, version: int, tables: dict[str, list[dict[str, object]]]) -> None:
    """Make the tables of an earlier version, with rows."""
    with place.open(schema, version).transaction() as change:
        for table, rows in tables.items():
            for row in rows:
                change.insert(table, row)
    place.close()


STUDY = {
    "digest": "5d", "name": "small", "analyst": "ada", "submission": "s", "plan_json": b"{}",
    "signature": b"", "micro_rho": 1, "expected_rounds": 1, "state": "failed", "submitted_at": 1,
}  # fmt: skip
CONSENT: dict[str, Any] = {"study": "5d", "status": "declined", "text": "", "starts_at": 0, "at": 2}
CONSENTS = [{**CONSENT, "site": "anna", "reason": "policy"}, {**CONSENT, "site": "bert", "reason": "budget"}]


def test_an_upgraded_coordinator_has_the_tables_of_a_new_one(
    place: Place, new: Path | str, earlier: Schemas
) -> None:
    (sqlite, postgresql), version = earlier["coordinator"]
    fill(place, (sqlite, postgresql), version, {"studies": [STUDY], "consents": CONSENTS})
    store, database = open_to_upgrade(place.where)
    with closing(store):
        assert version < coordinator_store.VERSION
        database.upgrade(unchecked)
        upgraded = tables_of(database)
    with closing(open_store(new)) as store:
        assert upgraded == tables_of(store.writer)
    with closing(open_store(place.where, Expect.EXISTING)) as store:
        policy, budget = (SiteConsent(state=ConsentState.DECLINED, reason=one["reason"]) for one in CONSENTS)
        assert consents(store.reader, "5d") == {"anna": policy, "bert": budget}
        named = replace(policy, rule="analysts")
        with store.writer.transaction() as change:
            store_consent(change, "5d", "anna", named, 3)
        assert consents(store.reader, "5d") == {"anna": named, "bert": budget}


def test_an_upgraded_site_has_the_tables_of_a_new_one(tmp_path: Path, earlier: Schemas) -> None:
    (schema, version), place = earlier["site"], Place(tmp_path / "state.db")
    rows: list[dict[str, object]] = [
        {"plan": "aa", "reason": Code.POLICY.value, "at": 1, "ended": 0},
        {"plan": "bb", "reason": Code.BUDGET.value, "at": 2, "ended": 1},
    ]
    fill(place, schema, version, {"declined": rows})
    with closing(site_store.open_database(tmp_path / "state.db", Expect.TO_UPGRADE)) as database:
        assert version < site_store.VERSION
        database.upgrade(unchecked)
        upgraded = tables_of(database)
    with closing(site_store.open_database(tmp_path / "new.db")) as database:
        assert upgraded == tables_of(database)
    with closing(site_store.open_database(tmp_path / "state.db", Expect.EXISTING)) as database:
        declined = DeclinedPlans(database, lambda: 3)
        assert declined.get("aa") == DeclinedPlan(Code.POLICY, ended=False, rule="")
        assert declined.get("bb") == DeclinedPlan(Code.BUDGET, ended=True, rule="")
        assert declined.not_ended() == ["aa"]
        with database.transaction() as change:
            declined.add("cc", Code.POLICY, change, analyst="ada", rule="analysts", sent="analysts")
        assert declined.get("cc") == DeclinedPlan(Code.POLICY, ended=False, rule="analysts")
