"""Backups of a serving coordinator, and a coordinator restored from one. A backup is a folder: a copy of the
database, all other files of the state folder (the keys among them), the configuration, and a manifest."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path

from eigenveil.accounting.ledger import Ledger
from eigenveil.errors import Code, RequestError
from eigenveil_common.config import load
from eigenveil_common.copied_folder import (
    MANIFEST,
    Manifest,
    copy_files,
    new_folder,
    read_manifest,
    with_paths,
    write_manifest,
)
from eigenveil_common.files import failpoint, read, write_secret
from eigenveil_common.storage.database import Expect
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_common.storage.sqlite import SqliteDatabase
from eigenveil_server.config import CONFIG_NAME, Config, Files
from eigenveil_server.pki.registry import Registry
from eigenveil_server.process import unix_ms
from eigenveil_server.recovery.checkpoints import await_checkpoints
from eigenveil_server.storage.database import (
    MIGRATIONS,
    SCHEMA,
    VERSION,
    Store,
    audit,
    existing_store,
    lock_folder,
    open_store,
    open_to_upgrade,
)

BACKUP_FORMAT = "eigenveil-backup/1"
ReportProgress = Callable[[str], None]


def back_up(config_path: Path, config: Config, out: Path, report: ReportProgress) -> Manifest:
    """Copy a coordinator, serving or not, into the new folder `out`, and check the copy's ledger. Raises
    RequestError: `out` exists, there is no federation, or its database is on a server."""
    _check_source(config, config_path)
    with new_folder(out) as here:
        copied = _copy_database(config, here)
        failpoint("backup-copied")
        for path in _other_files(config.files):
            write_secret(here / path.name, read(path))
        text = read(config_path).decode("utf-8-sig")
        write_secret(here / CONFIG_NAME, with_paths(text, state=".").encode())
        manifest = write_manifest(here, BACKUP_FORMAT, config.federation, copied)
        for name in manifest.files:
            report(f"copied {name}")
    return manifest


def restore(
    source: Path, folder: Path, lost_sites: Collection[str], report: ReportProgress
) -> tuple[Manifest, list[str]]:
    """Make the new `folder` from a backup; return the manifest and the sites whose checkpoints are awaited.
    Raises RequestError: `source` is not a complete backup, `folder` exists, or a lost site is unknown."""
    manifest = read_manifest(source, BACKUP_FORMAT, "a readable backup")
    with new_folder(folder) as here:
        copy_files(source, manifest, here)
        report(f"{len(manifest.files)} files match the manifest")
        store, database = open_to_upgrade(Files(folder=here).database)
        with closing(store):
            if database.pending:  # made by an earlier version; the backup itself stays as it is
                database.upgrade(lambda _: None)
            ledger = LedgerStore(store.reader, load(here / CONFIG_NAME, Config).budget, unix_ms).ledger
            if not manifest.describes(ledger):
                raise RequestError(Code.BAD_CONFIG, f"the ledger in {source} differs from the manifest")
            report(f"the ledger is complete: {ledger.size} rows, head {ledger.head[:16]}")
            failpoint("restore-checked")
            waiting = _await_checkpoints(store, manifest.owner, ledger, lost_sites)
    return manifest, waiting


def restored(config: Config, lost_sites: Collection[str]) -> tuple[Ledger, list[str]]:
    """Record that other tools than `restore` put the database back; return its ledger and the awaited sites.
    Raises RequestError: the coordinator is serving, there is no federation, or a lost site is unknown."""
    with lock_folder(config), closing(existing_store(config)) as store:
        store.acquire_server_lock()
        ledger = LedgerStore(store.reader, config.budget, unix_ms).ledger
        return ledger, _await_checkpoints(store, config.federation, ledger, lost_sites)


def _check_source(config: Config, config_path: Path) -> None:
    files = config.files
    if isinstance(config.store, str):
        raise RequestError(
            Code.BAD_CONFIG,
            "the database is on a PostgreSQL server; back it up with pg_dump --format=custom, also while "
            f"serving, and copy {config_path} and all files in {files.folder}, mode 0600. "
            "After pg_restore, before serve, run: eigenveil-coordinator restored --config FILE",
        )
    if not files.database.is_file():
        raise RequestError(Code.BAD_CONFIG, f"there is no federation in {files.folder}; nothing to back up")


def _other_files(files: Files) -> list[Path]:
    """Return the other files of the state folder: no part of the database, no lock, no file being written."""
    skipped, prefixes = (
        (files.lock.name, files.marker.name, CONFIG_NAME, MANIFEST),
        (".", files.database.name),
    )
    there = (path for path in sorted(files.folder.iterdir()) if path.is_file())
    return [path for path in there if not path.name.startswith(prefixes) and path.name not in skipped]


def _copy_database(config: Config, here: Path) -> Ledger:
    """Copy a database that may be in use; return the replayed ledger of the copy."""
    source, copy = config.files.database, here / config.files.database.name
    opened = SqliteDatabase(source, SCHEMA, VERSION, migrations=MIGRATIONS, expect=Expect.EXISTING)
    with closing(opened) as database:
        database.copy_to(copy)
    with closing(open_store(copy, Expect.EXISTING)) as store:
        return LedgerStore(store.reader, config.budget, unix_ms).ledger


def _await_checkpoints(
    store: Store, federation: str, ledger: Ledger, lost_sites: Collection[str]
) -> list[str]:
    """Record the restore and the awaited sites. Unused tokens are deleted, which may be used by now."""
    sites = Registry(store, federation, unix_ms).sites()
    if unknown := ", ".join(sorted(set(lost_sites) - sites)):
        raise RequestError(Code.NOT_FOUND, f"not a site of {federation}: {unknown}")
    waiting = sorted(sites - set(lost_sites))
    with store.writer.transaction() as change:
        await_checkpoints(change, waiting)
        change.execute("DELETE FROM tokens WHERE key_print IS NULL")
        audit(change, unix_ms(), "restored", federation, f"{ledger.size} rows, {ledger.head}")
    return waiting
