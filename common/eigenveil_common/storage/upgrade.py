"""Upgrade of a database to the schema version of this program: a backup that was read back, then every step
and a check of all that is stored, in one transaction. A process that ends anywhere in it leaves the old
tables, whole, or the new ones, whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apsw

from eigenveil.errors import Code, InternalError, RequestError
from eigenveil_common.files import failpoint, storage_errors, sync
from eigenveil_common.storage.database import Connection, VersionedDatabase
from eigenveil_common.storage.sqlite import SqliteDatabase

# Times the database: its copy, the write-ahead log of rewritten tables, and as much again.
MIN_FREE_FACTOR = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """Upgrade of one database: schema versions, bytes of the database, and seconds, None if not made."""

    database: str
    schema_before: int
    schema_after: int
    bytes: int
    backup: str | None
    seconds: float | None = None

    def text(self) -> str:
        if self.schema_before == self.schema_after:
            return f"{self.database} has schema version {self.schema_after}: nothing to upgrade"
        versions = f"{self.database}: schema version {self.schema_before} -> {self.schema_after}"
        size = f"{versions}, {self.bytes:,} bytes"
        if self.seconds is None:
            backup = "" if self.backup is None else f"; the backup will be {self.backup}"
            return f"{size}: can be upgraded{backup}"
        backup = "" if self.backup is None else f"; the backup is {self.backup}"
        return f"{size}: upgraded in {self.seconds:.1f} s{backup}"


def describe(database: VersionedDatabase, backup: str | None) -> Upgrade:
    """Return the upgrade of a database that was opened with `Expect.TO_UPGRADE`."""
    found = database.version()
    return Upgrade(
        database=database.name,
        schema_before=found,
        schema_after=found + len(database.pending),
        bytes=database.size(),
        backup=backup if database.pending else None,
    )


def upgrade(
    database: VersionedDatabase,
    report: Upgrade,
    back_up: Callable[[], None],
    check: Callable[[Connection], None],
) -> Upgrade:
    """Make the upgrade that `report` describes, after `back_up`; return the report with its seconds. Raises
    as `back_up` and `check`; nothing has changed then."""
    if not database.pending:
        return report
    began = time.monotonic()
    back_up()
    failpoint("upgrade-backed-up")
    database.upgrade(check)
    return replace(report, seconds=time.monotonic() - began)


def backup_path(database: SqliteDatabase) -> Path:
    """Return the file, beside the database, that its backup is written to."""
    return database.path.with_name(f"{database.path.name}.v{database.version()}")


def back_up_file(database: SqliteDatabase, out: Path) -> None:
    """Copy a database durably, and read the copy back. Raises RequestError, code `bad-config`: too little
    room; InternalError, code `storage`: the copy is not whole."""
    free, needed = shutil.disk_usage(out.parent).free, MIN_FREE_FACTOR * database.size()
    if free < needed:
        raise RequestError(
            Code.BAD_CONFIG,
            f"{out.parent} has {free:,} bytes free, and the upgrade needs {needed:,}; make room. Nothing has "
            "changed",
        )
    new = out.with_name(f"{out.name}.new")  # an earlier whole backup stays until this one is whole
    database.copy_to(new)
    _check_whole(new)
    with storage_errors("replace", out):
        os.replace(new, out)
        sync(out.parent)


def _check_whole(copy: Path) -> None:
    """Read every page of a copied database. Raises InternalError, code `storage`."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI  # immutable: no files are made beside it
    try:
        with closing(apsw.Connection(f"{copy.absolute().as_uri()}?immutable=1", flags=flags)) as opened:
            found = opened.execute("PRAGMA integrity_check(1)").fetchall()
    except apsw.Error as problem:
        raise InternalError(Code.STORAGE, f"the backup {copy} is not whole: {problem}") from problem
    if found != [("ok",)]:
        raise InternalError(Code.STORAGE, f"the backup {copy} is not whole: {found[0][0]}")


def dump_server(url: str, out: Path) -> None:
    """Dump a PostgreSQL database into a file, and read the file back as a whole. Raises RequestError, code
    `bad-config`: a program is missing or failed."""
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    parts: dict[str, Any] = dict(conninfo_to_dict(url))
    password = parts.pop("password", None)  # by the environment: other users see command lines
    secret = {} if password is None else {"PGPASSWORD": str(password)}
    target = f"--dbname={make_conninfo(**parts)}"
    _run_tool(secret, "pg_dump", "--format=custom", "--no-password", f"--file={out}", target)
    listed = _run_tool({}, "pg_restore", "--list", str(out))
    if " ledger " not in listed:
        raise RequestError(Code.BAD_CONFIG, f"{out} holds no ledger; nothing has changed")
    _run_tool({}, "pg_restore", f"--file={os.devnull}", str(out))


def _run_tool(variables: Mapping[str, str], *command: str) -> str:
    """Run a program of PostgreSQL, with these variables in its environment."""
    try:
        done = subprocess.run(
            command, env=os.environ | variables, capture_output=True, text=True, check=False, umask=0o077
        )
    except FileNotFoundError as problem:
        raise RequestError(
            Code.BAD_CONFIG,
            f"{command[0]} is not installed here; install it, or back up the database yourself and add "
            "--backed-up",
        ) from problem
    if done.returncode:
        raise RequestError(
            Code.BAD_CONFIG, f"{command[0]}: {' '.join(done.stderr.split())}; nothing has changed"
        )
    return done.stdout
