"""Upgrade of the coordinator's database to the schema version of this program."""

from __future__ import annotations

from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path

from eigenveil.errors import Code, RequestError
from eigenveil_common.storage import upgrade
from eigenveil_common.storage.database import Connection
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_common.storage.sqlite import SqliteDatabase
from eigenveil_common.storage.upgrade import Upgrade
from eigenveil_server.config import Config
from eigenveil_server.process import unix_ms
from eigenveil_server.storage.database import Store, audit, check_existing, lock_folder, open_to_upgrade
from eigenveil_server.storage.repository import check_whole


def upgrade_database(
    config: Config, dump: Path | None = None, *, backed_up: bool = False, dry_run: bool = False
) -> Upgrade:
    """Upgrade the database while no coordinator serves; `dry_run`: only say what would be done, also beside a
    coordinator. A file is
    copied beside itself; a database on a server is dumped into `dump`, unless it is `backed_up`. Raises
    RequestError: another coordinator serves it, or there is no backup; InternalError: code `storage`. Nothing
    has changed then."""
    check_existing(config)
    with nullcontext() if dry_run else lock_folder(config):
        store, database = open_to_upgrade(config.store)
        with closing(store):
            if isinstance(database, SqliteDatabase):
                out = upgrade.backup_path(database)
                back_up = partial(upgrade.back_up_file, database, out)
                report = upgrade.describe(database, str(out))
            else:
                back_up = partial(_dump, str(config.store), dump, backed_up=backed_up)
                report = upgrade.describe(database, None if dump is None else str(dump))
            if dry_run:
                return report
            store.acquire_server_lock()
            return upgrade.upgrade(
                database, report, back_up, lambda change: _check_upgraded(config, store, report, change)
            )


def _dump(url: str, out: Path | None, *, backed_up: bool) -> None:
    if out is not None:
        upgrade.dump_server(url, out)
    elif not backed_up:
        raise RequestError(
            Code.BAD_CONFIG,
            "name a new file for the backup: --dump FILE, which needs pg_dump; or back up the database "
            "yourself and add --backed-up. Nothing has changed",
        )


def _check_upgraded(config: Config, store: Store, report: Upgrade, change: Connection) -> None:
    """Check pages, ledger and studies within the transaction of the upgrade, and audit it."""
    ledger = LedgerStore(store.writer, config.budget, unix_ms).ledger
    check_whole(store)
    versions = f"schema {report.schema_before} -> {report.schema_after}"
    audit(change, unix_ms(), "upgraded", "database", f"{versions}, {ledger.size} rows, {ledger.head}")
