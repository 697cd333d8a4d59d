"""PostgreSQL database with one writer at a time, and with synchronous_commit=on and fsync=on, checked. Every
transaction starts with a lock, so it sees all that was committed before. Statements use the SQL that SQLite
accepts too; only the syntax of parameters and the creation of tables differ."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from functools import lru_cache
from itertools import count
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from eigenveil.errors import Code, InternalError, RequestError
from eigenveil_common.storage.database import Expect, Migrations, Row, VersionedDatabase

# Numbers of advisory locks, separate for each database of a server.
WRITER_LOCK, SERVER_LOCK = 0x656967656E0001, 0x656967656E0002
WAIT = "10s"  # for another process that writes
RELEASED_SECONDS = 2.0  # time for the server to release the locks of a process that has ended
# A lost connection to the server is detected within half a minute.
CONNECTION_OPTIONS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "eigenveil",
}
TOKEN = re.compile(r"'[^']*'|\?")
DURABLE = {"synchronous_commit": "on", "fsync": "on", "full_page_writes": "on"}


class PostgresDatabase(VersionedDatabase):
    """Database of a PostgreSQL server; raises as `eigenveil_common.storage.database.Database`. `url` is a
    libpq connection string; the password may also be in a pgpass file. Raises RequestError: `url` cannot be
    parsed, or a new database was expected."""

    begin = f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SELECT pg_advisory_xact_lock({WRITER_LOCK})"

    def __init__(
        self, url: str, schema: str, version: int, *, migrations: Migrations = (), expect: Expect = Expect.ANY
    ) -> None:
        super().__init__()
        self.name = database_label(url)
        try:
            self._connection = psycopg.Connection.connect(
                url, autocommit=True, cursor_factory=psycopg.RawCursor, **CONNECTION_OPTIONS
            )
        except psycopg.Error as problem:
            raise self._failure(problem) from problem
        try:
            self._set_up()
            self.prepare(schema, version, migrations, expect)
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

    def size(self) -> int:
        """Return the bytes of the whole database on the server."""
        found: int = self._run("SELECT pg_database_size(current_database())")[0][0]
        return found

    def acquire_server_lock(self) -> None:
        """Lock this database for this process until the connection ends. A process that loses the connection
        can no longer write. The server releases the lock a moment later."""
        until = time.monotonic() + RELEASED_SECONDS
        while not self.rows("SELECT pg_try_advisory_lock(?)", (SERVER_LOCK,))[0][0]:
            if time.monotonic() >= until:
                raise RequestError(Code.CONFLICT, f"another coordinator serves {self.name}; stop it first")
            time.sleep(RELEASED_SECONDS / 20)
        if not self.pending:
            self.check_version()  # it may have been upgraded since it was opened

    def _run(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        # SQLite has no booleans but 0 and 1, and neither do our tables.
        values = [int(value) if isinstance(value, bool) else value for value in parameters]
        try:
            cursor = self._connection.execute(numbered_parameters(statement), values or None)
            if cursor.description is None:
                return []
            names = tuple(column.name for column in cursor.description)
            return [Row(names, found) for found in cursor.fetchall()]
        except psycopg.Error as problem:
            raise self._failure(problem) from problem

    @property
    def _in_transaction(self) -> bool:
        return self._connection.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE

    def _failure(self, problem: psycopg.Error) -> InternalError:
        # The details after the primary message may quote a row.
        text = problem.diag.message_primary or " ".join(str(problem).split())
        return InternalError(Code.STORAGE, f"{self.name}: {text}")

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def database_label(url: str) -> str:
    """Return the server and database of a URL for messages, without the password."""
    try:
        parts: dict[str, Any] = conninfo_to_dict(url)
    except psycopg.ProgrammingError as problem:
        raise RequestError(
            Code.BAD_CONFIG, "the database's URL cannot be read; write postgresql://USER@HOST:PORT/NAME"
        ) from problem
    return f"postgresql://{parts.get('host', 'local socket')}/{parts.get('dbname', '')}"


@lru_cache(maxsize=512)
def numbered_parameters(statement: str) -> str:
    """Return a statement with `$1, $2` instead of `?, ?`."""
    numbers = count(1)
    return TOKEN.sub(lambda found: f"${next(numbers)}" if found.group() == "?" else found.group(), statement)
