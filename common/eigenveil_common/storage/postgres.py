"""PostgreSQL as we use it: one writer at a time, synchronous_commit=on and fsync=on, checked.

A lock taken at the head of every transaction makes it see all that was committed before: at the
default isolation each statement reads anew, and no other transaction of ours is under way.

Statements stay within what SQLite accepts as well (upserts by ON CONFLICT, row values, quoted "index" and
"values"); only parameters are written otherwise, and tables are made by statements of their own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from itertools import count
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from eigenveil.errors import Code, InternalError, RequestError
from eigenveil_common.storage.database import Connection, Row
from eigenveil_common.storage.migrations import Expect, Migrations, bring_up
from eigenveil_common.storage.transactions import Transactions

# Advisory locks are numbers, apart for each database of a server.
WRITING, SERVING = 0x656967656E0001, 0x656967656E0002
BEGIN = f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SELECT pg_advisory_xact_lock({WRITING})"
WAIT = "10s"  # for another process that writes
RELEASED_SECONDS = 2.0  # in which the server lets go of a process that has ended
# A server that vanished is noticed within half a minute.
LINK: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "eigenveil",
}
TOKEN = re.compile(r"'[^']*'|\?")
DURABLE = {"synchronous_commit": "on", "fsync": "on", "full_page_writes": "on"}


class Database:
    """A database of a PostgreSQL server; `eigenveil_common.storage.database.Database` says what it does.

    `url` is what libpq reads: a password may also lie in a pgpass file.

    Raises:
        RequestError: `url` cannot be read, or a new database was expected.
        InternalError: code `storage`, for any error of the network or the database. A daemon that
            sees it must exit: after a failed write nothing may be released.
    """

    def __init__(
        self,
        url: str,
        schema: str,
        version: int,
        *,
        migrations: Migrations = (),
        expect: Expect = Expect.ANY,
    ) -> None:
        self.name = place(url)
        self._transactions = Transactions(self._run, BEGIN, self._is_open)
        try:
            self._connection = psycopg.Connection.connect(
                url, autocommit=True, cursor_factory=psycopg.RawCursor, **LINK
            )
        except psycopg.Error as problem:
            raise self._failure(problem) from problem
        try:
            self._set_up()
            bring_up(self, schema, version, migrations, expect)
        except BaseException:
            self._connection.close()
            raise

    def _set_up(self) -> None:
        self._run(f"SET synchronous_commit = on; SET lock_timeout = '{WAIT}'; SET client_encoding = 'UTF8'")
        for setting, wanted in DURABLE.items():
            found = self._run(f"SHOW {setting}")[0][0]
            if found != wanted:
                raise InternalError(
                    Code.STORAGE, f"{self.name}: need {setting} = {wanted}, got {found}; set it on the server"
                )

    def version(self) -> int:
        if self._run("SELECT to_regclass('eigenveil_schema')")[0][0] is None:
            return 0
        found: int = self._run("SELECT version FROM eigenveil_schema")[0][0]
        return found

    def set_version(self, change: Connection, version: int) -> None:
        """Note it in a table of its own."""
        change.execute("CREATE TABLE IF NOT EXISTS eigenveil_schema (version BIGINT NOT NULL)")
        change.execute("DELETE FROM eigenveil_schema")
        change.execute("INSERT INTO eigenveil_schema VALUES (?)", (version,))

    def keep_copy(self, version: int) -> None:
        """Left to the server's own backups: a step of a migration is one transaction here, too."""

    def claim(self) -> None:
        """Be the only process that serves this database, until the connection ends. Who lost the
        connection has lost the right to write with it; the server notices that a moment after it ended.

        Raises:
            RequestError: code `conflict`: another one does.
        """
        until = time.monotonic() + RELEASED_SECONDS
        while not self.rows("SELECT pg_try_advisory_lock(?)", (SERVING,))[0][0]:
            if time.monotonic() >= until:
                raise RequestError(Code.CONFLICT, f"another coordinator serves {self.name}; stop it first")
            time.sleep(RELEASED_SECONDS / 20)

    def transaction(self) -> AbstractContextManager[Connection]:
        return self._transactions()

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        with self._transactions.lock:
            return self._run(statement, parameters)

    def _run(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        # SQLite has no truth values but 0 and 1; nor do our tables.
        values = [int(value) if isinstance(value, bool) else value for value in parameters]
        try:
            cursor = self._connection.execute(numbered(statement), values or None)
            found = cursor.fetchall() if cursor.description else []
        except psycopg.Error as problem:
            raise self._failure(problem) from problem
        names = tuple(column.name for column in cursor.description or ())
        return [Row(names, values) for values in found]

    def _is_open(self) -> bool:
        return self._connection.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE

    def _failure(self, problem: psycopg.Error) -> InternalError:
        # What follows the first sentence may quote a row.
        text = problem.diag.message_primary or " ".join(str(problem).split())
        return InternalError(Code.STORAGE, f"{self.name}: {text}")

    def close(self) -> None:
        with self._transactions.lock:
            self._connection.close()


def place(url: str) -> str:
    """Which database of which server, without a password.

    Raises:
        RequestError: code `bad-config`: libpq cannot read `url`.
    """
    try:
        parts: dict[str, Any] = conninfo_to_dict(url)
    except psycopg.ProgrammingError as problem:
        raise RequestError(
            Code.BAD_CONFIG, "the database's URL cannot be read; write postgresql://USER@HOST:PORT/NAME"
        ) from problem
    return f"postgresql://{parts.get('host', 'local socket')}/{parts.get('dbname', '')}"


@lru_cache(maxsize=512)
def numbered(statement: str) -> str:
    """`?, ?` as `$1, $2`."""
    places = count(1)
    return TOKEN.sub(lambda found: f"${next(places)}" if found.group() == "?" else found.group(), statement)
