"""`eigenveil-site upgrade`: from the schema of this program to one with a further step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest import mock

from eigenveil.errors import Code
from eigenveil_client.site import config as site_config
from eigenveil_client.site.state import store as site_store
from eigenveil_client.site.state.store_access import exclusive_lock, upgrade_state
from eigenveil_common.storage.database import Migrations
from tests.client.site.command_line import written
from tests.client.site.support import Stage, killed_at
from tests.support import refused

NEXT: Migrations = (
    (site_store.VERSION + 1, "ALTER TABLE declined ADD COLUMN later TEXT NOT NULL DEFAULT ''"),
)


@contextmanager
def newer() -> Iterator[None]:
    """A program whose schema has one more step."""
    schema = site_store.SCHEMA + ";".join(step for _, step in NEXT) + ";"
    with mock.patch.multiple(site_store, VERSION=NEXT[0][0], MIGRATIONS=NEXT, SCHEMA=schema):
        yield


def test_an_upgrade_is_shown_beside_a_daemon_and_made_without_one(stage: Stage) -> None:
    path: Path = written(stage)
    loaded = site_config.load(path)
    with closing(stage.store()) as store:
        before = [entry.digest for entry in store.ledger.entries()]
    with newer():
        with exclusive_lock(loaded.state):
            shown = upgrade_state(loaded, dry_run=True)
            assert (shown.schema_after - shown.schema_before, shown.seconds) == (1, None)
            assert "can be upgraded; the backup will be" in shown.text()
            with refused(Code.CONFLICT, "stop it first"):
                upgrade_state(loaded)
        with refused(Code.STORAGE, "run its command `upgrade"):
            site_store.open_database(loaded.state)
        for point in ("upgrade-backed-up", "upgrade-stepping", "upgrade-checked"):
            with killed_at(point):
                upgrade_state(loaded)
        done = upgrade_state(loaded)
        assert done.seconds is not None
        assert done.backup is not None
        assert Path(done.backup).exists()
        assert "nothing to upgrade" in upgrade_state(loaded).text()
        with closing(stage.store()) as store:
            assert [entry.digest for entry in store.ledger.entries()] == before
    with refused(Code.STORAGE, "Install"):
        site_store.open_database(loaded.state)
