"""SQLite as we use it: write-ahead log, synchronous=FULL, set and checked; a write error ends the process.

The default (DELETE + FULL) and WAL + NORMAL lose committed transactions on power loss; WAL + FULL does not.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eigenveil.errors import Code, InternalError

FULL = 2


class Database:
    """One connection, shared by threads under a lock; every change is one explicit transaction.

    Raises:
        InternalError: code `storage`, for any error of the disk or the database. A daemon that sees
            it must exit: after a failed write nothing may be released.
    """

    def __init__(self, path: Path, schema: str, version: int) -> None:
        self._lock = threading.RLock()
        self.path = path
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            try:
                path.chmod(0o600)
                self._connection.row_factory = sqlite3.Row
                self._set_up(schema, version)
            except BaseException:
                self._connection.close()
                raise
        except (sqlite3.Error, OSError) as problem:
            raise InternalError(Code.STORAGE, f"cannot open {path}: {problem}") from problem

    def _set_up(self, schema: str, version: int) -> None:
        mode = self._connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        self._connection.execute(f"PRAGMA synchronous={FULL}")
        self._connection.execute("PRAGMA foreign_keys=ON")
        # Without it INSERT OR REPLACE deletes a row behind the back of the append-only triggers.
        self._connection.execute("PRAGMA recursive_triggers=ON")
        self._connection.execute("PRAGMA busy_timeout=5000")
        level = self._connection.execute("PRAGMA synchronous").fetchone()[0]
        if (mode, level) != ("wal", FULL):
            raise InternalError(
                Code.STORAGE,
                f"{self.path}: need journal_mode=wal and synchronous={FULL}, got {mode}, {level}",
            )
        found = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if found not in (0, version):
            raise InternalError(
                Code.STORAGE,
                f"{self.path} has schema version {found}; this program needs {version}",
            )
        if found == 0:
            with self.transaction() as change:
                for statement in _statements(schema):
                    change.execute(statement)
                change.execute(f"PRAGMA user_version={version}")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, durable on exit; other threads and processes wait."""
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as problem:
                raise self._failure(problem) from problem
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except sqlite3.Error as problem:
                self._roll_back()
                raise self._failure(problem) from problem
            except BaseException:
                self._roll_back()
                raise

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def rows(self, statement: str, parameters: tuple[object, ...] = ()) -> list[sqlite3.Row]:
        """The result of a read."""
        with self._lock:
            try:
                return self._connection.execute(statement, parameters).fetchall()
            except sqlite3.Error as problem:
                raise self._failure(problem) from problem

    def _failure(self, problem: sqlite3.Error) -> InternalError:
        return InternalError(Code.STORAGE, f"{self.path}: {problem}")

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._connection.close()


def _statements(schema: str) -> Iterator[str]:
    """Single statements; a trigger's inner semicolons do not end it."""
    pending = ""
    for part in schema.split(";"):
        pending += part + ";"
        if sqlite3.complete_statement(pending) and part.strip():
            yield pending
            pending = ""
