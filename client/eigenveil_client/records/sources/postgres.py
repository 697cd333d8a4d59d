"""A SELECT of the site's, run by PostgreSQL in a transaction that only reads, and streamed as Arrow batches.

The password is libpq's business: a pgpass file, a service file or its environment.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from eigenveil_client.records.tables.table import BadRecords, LeaveOut
from eigenveil_common.command import needing

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Cursor

CONNECT_SECONDS = 15
SERVER, SERVICE = "connection to server", "definition of service"
BATCH_BYTES = 4 * 2**20
# One state of the database, and rows that come in an order which the database does not choose anew each time:
# a sum of floats depends on it.
BEGIN = (
    "SET max_parallel_workers_per_gather = 0",
    "SET synchronize_seqscans = off",
    "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
)
NATURAL = (pa.types.is_integer, pa.types.is_floating, pa.types.is_date, pa.types.is_timestamp)
REFUSED_LATE = "57014"
ONE_SELECT = "sql must be one SELECT of what this database knows; the transaction only reads"
REFUSED = {
    "28": "the database does not let this user in; look at the pgpass or service file",
    "3D": "there is no such database",
    "42501": "the database gives this user no permission to read what the SELECT names",
    "25006": ONE_SELECT,
    "0A": ONE_SELECT,
    REFUSED_LATE: "the database took longer than timeout_seconds; raise it, or make the SELECT cheaper",
    "22": "a cell cannot be converted or computed as the SELECT says",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresQuery:
    """`sql` in the database that libpq finds under `database`, for at most `timeout_seconds`."""

    database: str
    sql: str
    timeout_seconds: float

    def schema(self) -> pa.Schema:
        with self._cursor() as cursor:
            return cursor.adbc_execute_schema(self._within("SELECT * FROM"))

    def rows(self, leave_out: LeaveOut) -> Iterator[pa.RecordBatch]:
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
        with needing("sources"):  # a site whose records are files has no such library
            from adbc_driver_manager import Error
            from adbc_driver_postgresql import dbapi
        began = None
        try:
            with closing(dbapi.connect(self._with_timeout(), autocommit=True)) as connection:
                began = time.monotonic()
                with connection.cursor() as cursor:
                    cursor.execute(f"SET statement_timeout = {round(1000 * self.timeout_seconds)}")
                    for words in BEGIN:
                        cursor.execute(words)
                    yield cursor
        except (Error, pa.ArrowException, OSError) as refused:
            late = began is not None and time.monotonic() - began >= self.timeout_seconds
            raise (_unreachable(refused) if began is None else _refused(refused, late)) from None

    def _with_timeout(self) -> str:
        """The database, and how long to wait for it if the site says nothing of that."""
        if "connect_timeout" in self.database:
            return self.database
        if "://" not in self.database:
            return f"{self.database} connect_timeout={CONNECT_SECONDS}"
        return f"{self.database}{'&' if '?' in self.database else '?'}connect_timeout={CONNECT_SECONDS}"


def _ordered(field: pa.Field) -> str:
    """What to sort a column by: numbers and times as such, all else as text, byte by byte."""
    escaped = field.name.replace('"', '""')
    numeric = getattr(field.type, "type_name", "") == "numeric"
    natural = numeric or any(test(field.type) for test in NATURAL)
    return f'records."{escaped}"' if natural else f'records."{escaped}"::text COLLATE "C"'


def _unreachable(problem: Exception) -> BadRecords:
    """libpq names servers, users and services here, and never a password."""
    line = str(problem).splitlines()[0]
    why = line.partition("Failed to connect: ")[2] if SERVER in line or SERVICE in line else ""
    words = f": {why}" if why else "; look at `database`, the service file and the pgpass file"
    return BadRecords(f"the database cannot be reached{words}", about="database")


def _refused(problem: Exception, late: bool) -> BadRecords:
    """What is said of a statement that failed, in our own words: the database's may quote a cell. Only what
    it says of the statement's names and grammar, before it runs, is handed on."""
    state = REFUSED_LATE if late else getattr(problem, "sqlstate", None) or ""
    for begins, words in REFUSED.items():
        if state.startswith(begins):
            return BadRecords(words, about="database")
    if state.startswith("42"):
        line = str(problem).splitlines()[0].partition("ERROR:")[2].strip()
        return BadRecords(f"the database refuses the SELECT: {line}", about="sql")
    return BadRecords(
        "the database broke off: a cell cannot be converted or computed as the SELECT says, or the "
        "connection was lost; try the SELECT in psql",
        about="database",
    )
