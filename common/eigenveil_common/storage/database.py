"""Interface of the databases: transactions, rows by column name, schema versions and a pool of readers.
Statements use `?` for parameters and the SQL that SQLite and PostgreSQL share. New tables are created at the
newest schema version; `eigenveil_common.storage.upgrade` brings older ones to it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import Enum
from importlib.resources import files
from queue import LifoQueue
from typing import Any, Protocol

from eigenveil import __version__
from eigenveil.errors import Code, InternalError, RequestError
from eigenveil_common.files import failpoint

SCHEMA_TABLE = "CREATE TABLE IF NOT EXISTS eigenveil_schema (version BIGINT NOT NULL, program TEXT NOT NULL)"


@dataclass(slots=True, eq=False, repr=False)
class Row:
    """Row of a result, with values by column name or position."""

    _names: tuple[str, ...]
    _values: tuple[Any, ...]

    def __getitem__(self, key: str | int) -> Any:
        if isinstance(key, int):
            return self._values[key]
        try:
            return self._values[self._names.index(key)]
        except ValueError:
            raise KeyError(key) from None

    def keys(self) -> tuple[str, ...]:
        """Return the column names, so that `dict(row)` works."""
        return self._names

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Row({', '.join(self._names)})"  # never the values


@dataclass(slots=True, eq=False)
class Connection:
    """Open transaction; `_run` returns all rows of a statement with its parameters."""

    _run: Callable[[str, Sequence[object]], list[Row]]

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Return all rows of one statement; no cursor stays open."""
        return self._run(statement, parameters)

    def insert(self, table: str, row: Mapping[str, object]) -> None:
        """Add one row, its values by column."""
        names, marks = ", ".join(f'"{name}"' for name in row), ", ".join("?" * len(row))
        self._run(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(row.values()))


class Database(Protocol):
    """Database connection, shared by threads; every change is one explicit transaction. Raises InternalError:
    code `storage`, for any error of the disk, the network or the database. A daemon that sees it must exit:
    after a failed write nothing may be released."""

    def transaction(self) -> AbstractContextManager[Connection]:
        """Return a transaction, atomic and durable on exit; other threads and processes wait."""

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Return the rows of a read."""

    def close(self) -> None:
        """Close the connection."""


Migrations = tuple[tuple[int, str], ...]  # (version, SQL from the version before)


def tables(package: str) -> tuple[str, str]:
    """Return the SQL that creates a package's tables, for SQLite and for PostgreSQL."""
    sqlite, postgresql = (
        files(package).joinpath(f"tables.{kind}.sql").read_text(encoding="utf-8")
        for kind in ("sqlite", "postgresql")
    )
    return sqlite, postgresql


class Expect(Enum):
    """Expected state of a database when it is opened. A lost ledger must never start anew, and an existing
    one must not be taken for a new one. `TO_UPGRADE`: an existing one, whose tables may be older."""

    ANY = "any"
    NEW = "new"
    EXISTING = "existing"
    TO_UPGRADE = "to-upgrade"


class SchemaTooOld(InternalError):
    """Tables of a version from which there is no migration; code `storage`."""


class UpgradeNeeded(InternalError):
    """Tables of an earlier version, from which there is a migration; code `storage`."""


class VersionedDatabase(ABC):
    """Connection to a database that stores the version of its tables, shared by threads under a lock. `name`
    is for messages, and `begin` opens a transaction during which no other process writes."""

    name: str
    begin: str

    def __init__(self) -> None:
        self._in_doubt: InternalError | None = None
        self.pending: Migrations = ()  # the steps to the newest schema version
        self._expected = 0  # schema version of this program
        self._lock = threading.RLock()

    @abstractmethod
    def _run(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Execute a statement; return its rows. Raises InternalError, code `storage`."""

    @property
    @abstractmethod
    def _in_transaction(self) -> bool: ...

    @abstractmethod
    def version(self) -> int:
        """Return the version of its tables; 0 if it has none."""

    @abstractmethod
    def size(self) -> int:
        """Return the bytes that the database uses."""

    def set_version(self, change: Connection, version: int) -> None:
        """Store the version of the tables and of this program, within a transaction."""
        change.execute(SCHEMA_TABLE)
        change.execute("DELETE FROM eigenveil_schema")
        change.execute("INSERT INTO eigenveil_schema VALUES (?, ?)", (version, __version__))

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        with self._lock:
            return self._run(statement, parameters)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Open a transaction, atomic and durable on exit; other threads and processes wait."""
        with self._lock:
            if self._in_doubt is not None:
                raise self._in_doubt
            try:
                self._begin()
                yield Connection(self._run)
            except BaseException:
                self._roll_back()
                raise
            self._commit()

    def _begin(self) -> None:
        """Open a transaction; wait for those of other processes."""
        self._run(self.begin)

    def _commit(self) -> None:
        try:
            self._run("COMMIT")
        except InternalError as problem:
            # The commit may be durable or not, and a later sync would hide this error: refuse further use.
            self._in_doubt = problem
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if self._in_transaction:
            self._run("ROLLBACK")

    def prepare(self, schema: str, version: int, migrations: Migrations, expect: Expect) -> None:
        """Create the tables of `schema`, or check that they are of `version`. Raises RequestError: code
        `conflict`, `expect` is NEW and tables exist; InternalError: code `storage`: tables are expected and
        there are none, or this program cannot read their version; UpgradeNeeded, unless `expect` is
        TO_UPGRADE."""
        found = self.version()
        _check_expected(self.name, found, expect)
        if found > version:
            raise InternalError(Code.STORAGE, self._too_new(found, version))
        self._expected = version
        if found == 0:
            self._create(schema, version)
            return
        self.pending = tuple(step for step in migrations if found < step[0] <= version)
        _check_path(self.name, found, version, self.pending)
        if self.pending and expect is not Expect.TO_UPGRADE:
            raise UpgradeNeeded(
                Code.STORAGE,
                f"{self.name} has schema version {found}, and this program needs {version}; stop the daemon, "
                "and run its command `upgrade --config FILE`",
            )

    def upgrade(self, check: Callable[[Connection], None]) -> None:
        """Make all pending steps in one transaction, which `check` can still refuse: if it raises, nothing
        has changed. Raises InternalError, code `storage`."""
        with self.transaction() as change:
            found = self.version()  # another process may have upgraded it since it was opened
            for reached, statements in (step for step in self.pending if step[0] > found):
                failpoint("upgrade-stepping")
                change.execute(statements)
                self.set_version(change, reached)
            check(change)
            failpoint("upgrade-checked")
        failpoint("upgrade-committed")
        self.pending = ()

    def check_version(self) -> None:
        """Check the version again, under a lock that excludes upgrades. Raises InternalError: code
        `storage`."""
        if (found := self.version()) != self._expected:
            raise InternalError(Code.STORAGE, self._too_new(found, self._expected))

    def _too_new(self, found: int, version: int) -> str:
        program = self.rows("SELECT program FROM eigenveil_schema")[0][0]
        return (
            f"{self.name} has schema version {found}, and this program, {__version__}, needs {version}: "
            f"eigenveil {program} upgraded it. Install {program} again, or restore the backup from before "
            "the upgrade"
        )

    def _create(self, schema: str, version: int) -> None:
        with self.transaction() as change:
            if self.version() == 0:  # else another process was here first
                change.execute(schema)
                self.set_version(change, version)


def _check_expected(name: str, found: int, expect: Expect) -> None:
    if found and expect is Expect.NEW:
        raise RequestError(Code.CONFLICT, f"{name} holds a federation already; name an empty database")
    if not found and expect in (Expect.EXISTING, Expect.TO_UPGRADE):
        raise InternalError(Code.STORAGE, f"{name} has no tables; restore it from its last backup")


def _check_path(name: str, found: int, version: int, steps: Migrations) -> None:
    if [reached for reached, _ in steps] != list(range(found + 1, version + 1)):
        raise SchemaTooOld(
            Code.STORAGE,
            f"{name} has schema version {found}, from which there is no upgrade to {version}. Finish its "
            "studies with the program that made it; then start with an empty database, and with a budget "
            "reduced by what was spent",
        )


class ReaderPool:
    """Read-only `Database` with at most `most` connections, each opened by `connect` when first needed."""

    def __init__(self, connect: Callable[[], Database], most: int) -> None:
        self._connect = connect
        self._most = most
        self._free: LifoQueue[Database | None] = LifoQueue()
        for _ in range(most):
            self._free.put(None)  # permits opening one

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        with self._reserved() as database:
            return database.rows(statement, parameters)

    @contextmanager
    def _reserved(self) -> Iterator[Database]:
        """Reserve a connection; the most recently used one, so that few are opened."""
        connection = self._free.get()
        try:
            if connection is None:
                connection = self._connect()
            yield connection
        finally:
            self._free.put(connection)

    def transaction(self) -> AbstractContextManager[Connection]:
        raise InternalError(Code.BUG, "a read-only connection pool has no transactions")

    def close(self) -> None:
        """Close all connections, after reads in progress."""
        for connection in [self._free.get() for _ in range(self._most)]:
            if connection is not None:
                connection.close()
