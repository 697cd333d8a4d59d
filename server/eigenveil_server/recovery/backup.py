"""Backups of a serving coordinator, and a coordinator restored from one. A backup is a folder: a copy of the
database, all other files of the state folder (the keys among them), the configuration, and a manifest with
their digests and the head of the ledger. It can sign as this federation: only its owner can read it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from eigenveil.accounting.ledger import Ledger
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.numerics.encoding import parse_json
from eigenveil.signatures import check_format, formatted
from eigenveil_common.config import load
from eigenveil_common.files import failpoint, is_occupied, read, storage_errors, sync, write_secret
from eigenveil_common.storage.database import Expect
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_common.storage.sqlite import SqliteDatabase
from eigenveil_server.config import CONFIG_NAME, Config, Files
from eigenveil_server.pki.registry import Registry
from eigenveil_server.process import time_text, unix_ms
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
)

MANIFEST, BACKUP_FORMAT = "manifest.json", "eigenveil-backup/1"
STATE_KEY = re.compile(r"^\s*state\s*=.*$", re.MULTILINE)
ReportProgress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Content of a backup: origin, ledger (`rows`, `head` and `spent_micro_rho`) and file digests."""

    federation: str
    created_at: str
    ledger: dict[str, Any]
    files: dict[str, str]

    def to_json(self) -> bytes:
        return json.dumps(formatted(BACKUP_FORMAT, asdict(self)), indent=2, sort_keys=True).encode() + b"\n"


def back_up(config_path: Path, config: Config, out: Path, report: ReportProgress) -> Manifest:
    """Copy a coordinator, serving or not, into the new folder `out`, and check the copy's ledger. Raises
    RequestError: `out` exists, there is no federation, or its database is on a server."""
    _check_source(config, config_path)
    with _new_folder(out) as here:
        copied = _copy_database(config, here)
        failpoint("backup-copied")
        for path in _other_files(config.files):
            write_secret(here / path.name, read(path))
        text = read(config_path).decode("utf-8-sig")
        write_secret(here / CONFIG_NAME, STATE_KEY.sub('state = "."', text).encode())
        ledger = {"rows": copied.size, "head": copied.head, "spent_micro_rho": copied.spent.micro_rho}
        manifest = Manifest(
            federation=config.federation,
            created_at=time_text(unix_ms()),
            ledger=ledger,
            files={path.name: _digest(path) for path in sorted(here.iterdir())},
        )
        for name in manifest.files:
            report(f"copied {name}")
        write_secret(here / MANIFEST, manifest.to_json())
    return manifest


def restore(
    source: Path, folder: Path, lost_sites: Collection[str], report: ReportProgress
) -> tuple[Manifest, list[str]]:
    """Make the new `folder` from a backup; return the manifest and the sites whose checkpoints are awaited.
    Raises RequestError: `source` is not a complete backup, `folder` exists, or a lost site is unknown."""
    manifest = _manifest(source)
    with _new_folder(folder) as here:
        for name, expected in manifest.files.items():
            write_secret(here / name, read(source / name))
            if _digest(here / name) != expected:
                raise RequestError(
                    Code.BAD_CONFIG, f"{source / name} differs from the manifest; use another backup"
                )
        report(f"{len(manifest.files)} files match the manifest")
        with closing(open_store(Files(folder=here).database, Expect.EXISTING)) as store:
            ledger = LedgerStore(store.reader, load(here / CONFIG_NAME, Config).budget, unix_ms).ledger
            if (ledger.size, ledger.head) != (manifest.ledger["rows"], manifest.ledger["head"]):
                raise RequestError(Code.BAD_CONFIG, f"the ledger in {source} differs from the manifest")
            report(f"the ledger is complete: {ledger.size} rows, head {ledger.head[:16]}")
            failpoint("restore-checked")
            waiting = _await_checkpoints(store, manifest.federation, ledger, lost_sites)
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


def _manifest(source: Path) -> Manifest:
    try:
        content = parse_json(read(source / MANIFEST))
        check_format(content, BACKUP_FORMAT, "the manifest")
        manifest = Manifest(**{one.name: content[one.name] for one in fields(Manifest)})
        if any(Path(name).name != name for name, _ in manifest.files.items()):
            raise ValueError("a file outside the folder")
        if manifest.ledger.keys() != {"rows", "head", "spent_micro_rho"}:
            raise ValueError("it states no ledger")
        return manifest
    except (ValueError, KeyError, TypeError, AttributeError, PeerError) as problem:
        raise RequestError(Code.BAD_CONFIG, f"{source} is not a readable backup: {problem}") from problem


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `folder` as a whole or not at all. Raises RequestError: it exists
    and is not empty."""
    if is_occupied(folder):
        raise RequestError(
            Code.CONFLICT, f"{folder} exists already; nothing was overwritten: name a new folder"
        )
    with storage_errors("make", folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        here = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        with storage_errors("write", folder):
            yield here
            sync(here)
            failpoint("folder-replacing")
            os.replace(here, folder)
            sync(folder)
    finally:
        shutil.rmtree(here, ignore_errors=True)


def _digest(path: Path) -> str:
    return hashlib.sha256(read(path)).hexdigest()
