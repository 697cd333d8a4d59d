"""Backups of a coordinator while it serves, and a coordinator made from one.

A backup is a folder: the database as SQLite's online backup copies it, every other file of the state folder
as it is (the keys among them), the configuration, and a manifest with the digest of each file and the head
of the ledger. Whoever holds it can sign as this federation; it is readable by its owner only.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenveil.accounting.ledger import Ledger
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import parse_json
from eigenveil_common.config import load
from eigenveil_common.failpoints import failpoint
from eigenveil_common.files import doing, occupied, read, sync, write_secret
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_common.storage.migrations import Expect
from eigenveil_common.storage.sqlite import Database
from eigenveil_server.clock import as_datetime, unix_ms
from eigenveil_server.config import CONFIG_NAME, Config, Files
from eigenveil_server.pki.registry import Registry
from eigenveil_server.recovery.checkpoints import wait_for
from eigenveil_server.storage.database import (
    MIGRATIONS,
    SCHEMA,
    VERSION,
    Store,
    audit,
    existing_store,
    only_one,
    open_store,
)

MANIFEST, FORMAT = "manifest.json", 1
STATE_KEY = re.compile(r"^\s*state\s*=.*$", re.MULTILINE)
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a backup says of itself."""

    federation: str
    made: str
    rows: int
    head: str
    spent_micro_rho: int
    files: dict[str, str]

    def to_json(self) -> bytes:
        said = {
            "format": FORMAT,
            "federation": self.federation,
            "made": self.made,
            "ledger": {"rows": self.rows, "head": self.head, "spent_micro_rho": self.spent_micro_rho},
            "files": self.files,
        }
        return json.dumps(said, indent=2, sort_keys=True).encode() + b"\n"


def back_up(config_path: Path, config: Config, out: Path, tell: Tell) -> Manifest:
    """Copy a coordinator, serving or not, into the new folder `out`, and check the copy's ledger.

    Raises:
        RequestError: `out` is there already, there is no federation, or its database is on a server.
        InternalError: code `storage`, also for a ledger that is not whole.
    """
    _check_source(config, config_path)
    with _new_folder(out) as here:
        copied = _copy_database(config, here)
        failpoint("backup-copied")
        for path in _others(config.files):
            write_secret(here / path.name, read(path))
        text = read(config_path).decode("utf-8-sig")
        write_secret(here / CONFIG_NAME, STATE_KEY.sub('state = "."', text).encode())
        manifest = Manifest(
            federation=config.federation,
            made=as_datetime(unix_ms()).isoformat(timespec="seconds"),
            rows=copied.size,
            head=copied.head,
            spent_micro_rho=copied.spent.micro_rho,
            files={path.name: _digest(path) for path in sorted(here.iterdir())},
        )
        for name in manifest.files:
            tell(f"copied {name}")
        write_secret(here / MANIFEST, manifest.to_json())
    return manifest


def restore(source: Path, folder: Path, gone: Collection[str], tell: Tell) -> tuple[Manifest, list[str]]:
    """Make the new `folder` from a backup; what the backup says, and the sites whose heads are awaited.

    Raises:
        RequestError: `source` is no whole backup, `folder` is there already, or a site in `gone` is none.
        InternalError: code `storage`, the ledger is not whole.
    """
    manifest = _manifest(source)
    with _new_folder(folder) as here:
        for name, expected in manifest.files.items():
            write_secret(here / name, read(source / name))
            if _digest(here / name) != expected:
                raise RequestError(
                    Code.BAD_CONFIG, f"{source / name} is not what was backed up; use another backup"
                )
        tell(f"{len(manifest.files)} files are as the manifest says")
        with closing(open_store(Files(folder=here).database, Expect.EXISTING)) as store:
            ledger = LedgerStore(store.reader, load(here / CONFIG_NAME, Config).budget, unix_ms).ledger
            if (ledger.size, ledger.head) != (manifest.rows, manifest.head):
                raise RequestError(Code.BAD_CONFIG, f"the ledger in {source} is not the manifest's")
            tell(f"the ledger is whole: {ledger.size} rows, head {ledger.head[:16]}")
            failpoint("restore-checked")
            waiting = _mark(store, manifest.federation, ledger, gone)
    return manifest, waiting


def restored(config: Config, gone: Collection[str]) -> tuple[Ledger, list[str]]:
    """Say that the database was put back by other tools than `restore`: its ledger, and who is awaited.

    Raises:
        RequestError: the coordinator is serving, there is no federation, or a site in `gone` is none.
        InternalError: code `storage`, the ledger is not whole.
    """
    with only_one(config), closing(existing_store(config)) as store:
        store.claim()
        ledger = LedgerStore(store.reader, config.budget, unix_ms).ledger
        return ledger, _mark(store, config.federation, ledger, gone)


def _check_source(config: Config, config_path: Path) -> None:
    files = config.files
    if isinstance(config.store, str):
        raise RequestError(
            Code.BAD_CONFIG,
            "the database is on a PostgreSQL server: back it up with pg_dump --format=custom (a consistent "
            f"copy while serving), and copy {config_path} and all files in {files.folder}, mode 0600. "
            "After pg_restore, before serve: eigenveil-coordinator restored --config FILE",
        )
    if not files.database.is_file():
        raise RequestError(Code.BAD_CONFIG, f"there is no federation in {files.folder}; nothing to back up")


def _others(files: Files) -> Iterator[Path]:
    """The other files of the state folder: no part of the database, lock, or file being written."""
    for path in sorted(files.folder.iterdir()):
        skipped = path.name.startswith((".", files.database.name)) or path.name in (
            files.lock.name, files.marker.name, CONFIG_NAME, MANIFEST,
        )  # fmt: skip
        if path.is_file() and not skipped:
            yield path


def _copy_database(config: Config, here: Path) -> Ledger:
    """Copy a database that may be in use, and replay the ledger of the copy."""
    copy = here / config.files.database.name
    with closing(
        Database(config.files.database, SCHEMA, VERSION, migrations=MIGRATIONS, expect=Expect.EXISTING)
    ) as database:
        database.copy_to(copy)
    with closing(open_store(copy, Expect.EXISTING)) as store:
        return LedgerStore(store.reader, config.budget, unix_ms).ledger


def _mark(store: Store, federation: str, ledger: Ledger, gone: Collection[str]) -> list[str]:
    """Note the restore, and whose heads are awaited; a token that looks unused may have been used since."""
    sites = Registry(store, federation, unix_ms).sites()
    strange = sorted(set(gone) - sites)
    if strange:
        raise RequestError(Code.NOT_FOUND, f"not a site of {federation}: {', '.join(strange)}")
    waiting = sorted(sites - set(gone))
    with store.writer.transaction() as change:
        wait_for(change, waiting)
        change.execute("DELETE FROM tokens WHERE key_print IS NULL")
        audit(change, unix_ms(), "restored", federation, f"{ledger.size} rows, {ledger.head}")
    return waiting


def _manifest(source: Path) -> Manifest:
    try:
        said: dict[str, Any] = parse_json(read(source / MANIFEST))
        if said["format"] != FORMAT:
            raise ValueError(f"format {said['format']}")
        ledger, files = said["ledger"], {str(name): str(value) for name, value in said["files"].items()}
        if any(Path(name).name != name for name in files):
            raise ValueError("a file outside of the folder")
        return Manifest(
            federation=str(said["federation"]),
            made=str(said["made"]),
            rows=int(ledger["rows"]),
            head=str(ledger["head"]),
            spent_micro_rho=int(ledger["spent_micro_rho"]),
            files=files,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise RequestError(Code.BAD_CONFIG, f"{source} holds no readable backup: {problem}") from problem


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """A folder that comes to be whole or not at all.

    Raises:
        RequestError: it is there already, and not empty.
        InternalError: code `storage`, it cannot be made.
    """
    if occupied(folder):
        raise RequestError(
            Code.CONFLICT, f"{folder} is there already; nothing is overwritten, name a new one"
        )
    with doing("make", folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        here = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        with doing("write", folder):
            yield here
            sync(here)
            failpoint("folder-replacing")
            os.replace(here, folder)
            sync(folder)
    finally:
        shutil.rmtree(here, ignore_errors=True)


def _digest(path: Path) -> str:
    return hashlib.sha256(read(path)).hexdigest()
