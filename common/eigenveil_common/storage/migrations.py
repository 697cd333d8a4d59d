"""Schema versions: new tables are made at the newest one, old ones brought up to it step by step."""

from __future__ import annotations

from enum import Enum
from importlib.resources import files
from typing import Protocol

from eigenveil.errors import Code, InternalError, RequestError
from eigenveil_common.storage.database import Connection, Database

Migrations = tuple[tuple[int, str], ...]  # (version, the SQL that leads to it from the one before)


def tables(package: str) -> tuple[str, str]:
    """The statements that make a package's tables, for SQLite and for PostgreSQL, as its two files say."""
    sqlite, postgresql = (
        files(package).joinpath(f"tables.{kind}.sql").read_text(encoding="utf-8")
        for kind in ("sqlite", "postgresql")
    )
    return sqlite, postgresql


class Expect(Enum):
    """What must be there when a database is opened. A ledger that is gone must never begin anew, nor
    one that is there be taken for a new one."""

    ANY = "any"
    NEW = "new"
    EXISTING = "existing"


class TooOld(InternalError):
    """The tables were written by a release from which no step leads here; code `storage`."""


class Versioned(Database, Protocol):
    """A database that keeps the version of its tables."""

    @property
    def name(self) -> str:
        """What to call it in messages."""

    def version(self) -> int:
        """The version of its tables; 0 if it has none."""

    def set_version(self, change: Connection, version: int) -> None:
        """Note it, within a transaction."""

    def keep_copy(self, version: int) -> None:
        """Keep what is there as it is, if that is cheap and certain."""


def bring_up(database: Versioned, schema: str, version: int, migrations: Migrations, expect: Expect) -> None:
    """Make the tables of `schema`, or bring older ones to `version`, each step in one transaction.

    Raises:
        RequestError: code `conflict`, `expect` is NEW and there are tables.
        InternalError: code `storage`: `expect` is EXISTING and there are none, or their version is one
            that this program cannot read.
    """
    found = database.version()
    _check(database.name, found, version, migrations, expect)
    if found == 0:
        _step(database, schema, 0, version)
        return
    if found < version:
        database.keep_copy(found)
    for reached, statements in migrations:
        if found < reached <= version:
            _step(database, statements, reached - 1, reached)


def _step(database: Versioned, statements: str, before: int, after: int) -> None:
    with database.transaction() as change:
        if database.version() == before:  # else another process was here first
            change.execute(statements)
            database.set_version(change, after)


def _check(name: str, found: int, version: int, migrations: Migrations, expect: Expect) -> None:
    if found and expect is Expect.NEW:
        raise RequestError(Code.CONFLICT, f"{name} holds a federation already; name an empty database")
    if not found and expect is Expect.EXISTING:
        raise InternalError(Code.STORAGE, f"{name} has no tables; restore it from its last backup")
    if found > version:
        raise InternalError(
            Code.STORAGE,
            f"{name} has schema version {found}, this program knows {version}: it was upgraded by a newer "
            "program; install that one again, or restore the backup that was made before the upgrade",
        )
    if found and not set(range(found + 1, version + 1)) <= {reached for reached, _ in migrations}:
        raise TooOld(
            Code.STORAGE,
            f"{name} was made by eigenveil 0.1 (schema version {found}, and this program needs {version}), "
            "whose plans and questions this program cannot read: let 0.1 finish its studies and keep what it "
            "made, then begin anew with an empty database, and with a budget that leaves out what was spent",
        )
