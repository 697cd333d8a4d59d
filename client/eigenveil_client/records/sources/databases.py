"""Views by a SELECT that PostgreSQL or SQLite runs, which only reads. PostgreSQL streams Arrow batches; libpq
finds the password in a pgpass file, a service file or its environment. A cell of SQLite may have another type
than its column, so all its cells are read as text."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa

from eigenveil_client.records.tables.batches import text_batches, text_schema
from eigenveil_client.records.tables.source import BadRecords, OnLost
from eigenveil_common.command import require_extra

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Cursor

CONNECT_SECONDS = 15
SERVER, SERVICE = "connection to server", "definition of service"
BATCH_BYTES = 4 * 2**20
# One state of the database, and a fixed order of rows, on which a sum of floats depends.
BEGIN = (
    "SET max_parallel_workers_per_gather = 0",
    "SET synchronize_seqscans = off",
    "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
)
NATURAL = (pa.types.is_integer, pa.types.is_floating, pa.types.is_date, pa.types.is_timestamp)
REFUSED_LATE = "57014"
ONE_SELECT = "sql must be one SELECT that this database supports; the transaction is read-only"
REFUSED = {
    "28": "the database refuses this user. Check the pgpass or service file",
    "3D": "the database does not exist. Check `database`",
    "42501": "this user may not read the tables of the SELECT. Grant the permission in the database",
    "25006": ONE_SELECT,
    "0A": ONE_SELECT,
    REFUSED_LATE: "the database took longer than timeout_seconds. Raise it, or make the SELECT cheaper",
    "22": "a cell cannot be converted or computed as in the SELECT",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresQuery:
    """Query `sql` in the `database` of libpq, for at most `timeout_seconds`."""

    database: str
    sql: str
    timeout_seconds: float

    def schema(self) -> pa.Schema:
        with self._cursor() as cursor:
            return cursor.adbc_execute_schema(self._within("SELECT * FROM"))

    def rows(self, on_lost: OnLost) -> Iterator[pa.RecordBatch]:
        with self._cursor() as cursor:
            columns = cursor.adbc_execute_schema(self._within("SELECT * FROM"))
            order = ", ".join([*map(_ordered, columns), 'records::text COLLATE "C"'])
            cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
            cursor.execute(f"{self._within('SELECT * FROM')} ORDER BY {order}")
            with cursor.fetch_record_batch() as batches:
                yield from batches

    def _within(self, head: str) -> str:
        return f"{head} (\n{self.sql}\n) AS records"

    @contextmanager
    def _cursor(self) -> Iterator[Cursor]:
        with require_extra("sources"):  # only sites with a database have this library
            from adbc_driver_manager import Error
            from adbc_driver_postgresql import dbapi
        began = None
        try:
            with closing(dbapi.connect(self._with_timeout(), autocommit=True)) as connection:
                began = time.monotonic()
                with connection.cursor() as cursor:
                    cursor.execute(f"SET statement_timeout = {round(1000 * self.timeout_seconds)}")
                    for statement in BEGIN:
                        cursor.execute(statement)
                    yield cursor
        except (Error, pa.ArrowException, OSError) as refused:
            late = began is not None and time.monotonic() - began >= self.timeout_seconds
            raise (_unreachable(refused) if began is None else _refused(refused, late)) from None

    def _with_timeout(self) -> str:
        """Return the database, with a connection timeout unless the site states one."""
        if "connect_timeout" in self.database:
            return self.database
        before = " " if "://" not in self.database else "&" if "?" in self.database else "?"
        return f"{self.database}{before}connect_timeout={CONNECT_SECONDS}"


def _ordered(field: pa.Field) -> str:
    """Return the sort key of a column: numbers and times as such, all else as bytes of text."""
    column = f"records.{quoted(field.name)}"
    numeric = getattr(field.type, "type_name", "") == "numeric"
    natural = numeric or any(test(field.type) for test in NATURAL)
    return column if natural else f'{column}::text COLLATE "C"'


def _unreachable(problem: Exception) -> BadRecords:
    """Return the error for a failed connection. libpq's message names servers and users, never a password."""
    line = str(problem).splitlines()[0]
    why = line.partition("Failed to connect: ")[2] if SERVER in line or SERVICE in line else ""
    message = f": {why}" if why else ". Check `database`, the service file and the pgpass file"
    return BadRecords(f"the database cannot be reached{message}", about="database")


def _refused(problem: Exception, late: bool) -> BadRecords:
    """Return the error for a statement that failed.

    Privacy: the database's message may quote a cell, and is replaced. Its messages on names and grammar,
    before the statement runs, are passed on."""
    state = REFUSED_LATE if late else getattr(problem, "sqlstate", None) or ""
    for begins, message in REFUSED.items():
        if state.startswith(begins):
            return BadRecords(message, about="database")
    if state.startswith("42"):
        line = str(problem).splitlines()[0].partition("ERROR:")[2].strip()
        return BadRecords(f"the database refuses the SELECT: {line}", about="sql")
    return BadRecords(
        "the query failed: a cell cannot be converted or computed as in the SELECT, or the connection was "
        "lost. Try the SELECT in psql",
        about="database",
    )


LIMITS = {  # bytes of a cell, columns of a result, bytes of a statement
    sqlite3.SQLITE_LIMIT_LENGTH: 2**24,
    sqlite3.SQLITE_LIMIT_COLUMN: 2**15,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 2**20,
}
# A schema is untrusted input: it may call harmless functions only, and the file is checked.
DISTRUST = (
    *("PRAGMA trusted_schema = OFF", "PRAGMA cell_size_check = ON", "PRAGMA mmap_size = 0"),
    "PRAGMA temp_store = FILE",
)
HARMLESS = {  # reading alone: no other file is attached, and no setting changed
    sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE,
}  # fmt: skip

NONE = " LIMIT 0"
NO_COLLATION, MOST_COLLATIONS = "no such collation sequence: ", 64
TABLES = (
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND substr(name, 1, 7) <> 'sqlite_' ORDER BY name"
)
MOST_NAMED = 100
MOST_FOUND = 200  # characters of a message of quick_check


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteQuery:
    """Query `sql` over the tables of a file, under their own names."""

    path: Path
    sql: str
    decimal: str

    def schema(self) -> pa.Schema:
        with self._cursor(NONE) as cursor:
            return text_schema(_headers(cursor))

    def rows(self, on_lost: OnLost) -> Iterator[pa.RecordBatch]:
        order = ", ".join(f"{number} COLLATE BINARY" for number in range(1, len(self.schema()) + 1))
        with self._cursor(f" ORDER BY {order}") as cursor:
            yield from text_batches(_headers(cursor), cursor, self.decimal)

    @contextmanager
    def _cursor(self, end: str) -> Iterator[sqlite3.Cursor]:
        statement, prepared = f"SELECT * FROM (\n{self.sql}\n){end}", False
        try:
            with closing(sqlite3.connect(f"file:{quote(str(self.path))}?mode=ro", uri=True)) as connection:
                connection.text_factory = bytes
                _distrust(connection)
                if end != NONE:
                    _check_whole(connection, self.path)
                connection.set_authorizer(
                    lambda action, *about: sqlite3.SQLITE_OK if action in HARMLESS else sqlite3.SQLITE_DENY
                )
                connection.execute(f"EXPLAIN {statement}").close()
                prepared = True
                yield connection.execute(statement)
        except (sqlite3.Error, sqlite3.Warning) as refused:
            # SQLite's message on a statement quotes that alone; a message at run time may quote a cell
            checks = ". Check the expressions of the SELECT on single cells"
            reason = checks if prepared else f": {refused}"
            raise BadRecords(f"{self.path}: SQLite refuses the SELECT{reason}", about="sql") from None


def _distrust(connection: sqlite3.Connection) -> None:
    for limit, most in LIMITS.items():
        connection.setlimit(limit, most)
    # our temporary folder, where a reader may write: SQLite reads the environment only once in a process
    folder = tempfile.gettempdir().replace("'", "''")
    for statement in (*DISTRUST, f"PRAGMA temp_store_directory = '{folder}'"):
        connection.execute(statement).close()


def _check_whole(connection: sqlite3.Connection, path: Path) -> None:
    """Raise an error if the pages of a file are inconsistent, as damage could hide records. An index may use
    a collation of another program. Any collation serves here: no order is checked, and `schema` has prepared
    the SELECT without it."""
    for _ in range(MOST_COLLATIONS):
        found = _quick_check(connection)
        if found is None:
            return
        if not found.startswith(NO_COLLATION):
            break
        name = found.removeprefix(NO_COLLATION)
        connection.create_collation(name, lambda one, other: (one > other) - (one < other))
    raise BadRecords(f"{path} is damaged (PRAGMA quick_check: {found}). Restore an intact copy")


def _quick_check(connection: sqlite3.Connection) -> str | None:
    """Return the first fault of a file, or the missing collation that prevents the check; None if intact."""
    try:
        found = connection.execute("PRAGMA quick_check(1)").fetchall()[0][0]
    except sqlite3.OperationalError as problem:
        if not str(problem).startswith(NO_COLLATION):
            raise
        return str(problem)
    return None if found == b"ok" else " ".join(found.decode(errors="replace").split())[:MOST_FOUND]


def only_table(path: Path) -> str:
    """Return the name of the only table of a file; BadRecords, which lists them, if there are several."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
            _distrust(connection)
            names = [name for (name,) in connection.execute(TABLES)]
    except (sqlite3.Error, sqlite3.Warning) as refused:
        raise BadRecords(f"{path} cannot be read as a SQLite file: {refused}", about="table") from None
    if len(names) != 1:
        listed = f"{len(names)} tables: {', '.join(names[:MOST_NAMED])}" if names else "no table"
        raise BadRecords(f"{path} has {listed}. Name one in `table`, or state sql", about="table")
    return str(names[0])


def _headers(cursor: sqlite3.Cursor) -> list[str]:
    return [name for name, *_ in cursor.description]


def quoted(name: str) -> str:
    """Return the name of a column or table as SQL."""
    return '"' + name.replace('"', '""') + '"'
