"""SQLite database with write-ahead log and synchronous=FULL, set and checked; a write error ends the process.
The default (DELETE + FULL) and WAL + NORMAL lose committed transactions on power loss; WAL + FULL does not.
`apsw` includes SQLite, so the tested version runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import apsw

from eigenveil.errors import Code, InternalError
from eigenveil_common.files import sync
from eigenveil_common.storage.database import Connection, Expect, Migrations, Row, VersionedDatabase

FULL = 2
WAIT_MS = 60_000  # wait for another writer: on a busy disk one sync can take seconds
RETRY_SECONDS = 0.005
LOG_PAGES = 1000  # a longer write-ahead log is copied into the database
DAMAGE_ADVICE = "it is damaged: move it away and restore the last backup"
# OSError comes from the file system, OverflowError from an integer beyond 64 bits, UnicodeDecodeError from
# damaged text.
FAILURES = (apsw.Error, OSError, OverflowError, UnicodeDecodeError)


class WouldWait(InternalError):
    """Another process writes, so a transaction did not begin; code `storage`. Nothing has changed."""


class SqliteDatabase(VersionedDatabase):
    """Database in a file or in `vfs`. While a thread waits for the transaction of another process, other
    threads can read. Raises RequestError, code `conflict`, if a new one was expected."""

    begin = "BEGIN IMMEDIATE"

    def __init__(
        self,
        path: Path,
        schema: str,
        version: int,
        vfs: str | None = None,
        *,
        migrations: Migrations = (),
        expect: Expect = Expect.ANY,
    ) -> None:
        super().__init__()
        self.path, self.name = path, str(path)
        self._watched: frozenset[str] = frozenset()
        self._own_changes = 0
        self._impatient: int | None = None  # the thread that may not wait
        try:
            self._connection = apsw.Connection(str(path), vfs=vfs)
            try:
                if vfs is None:
                    path.chmod(0o600)
                self._set_up()
                self.prepare(schema, version, migrations, expect)
            except BaseException:
                self._connection.close()
                raise
        except FAILURES as problem:
            raise InternalError(Code.STORAGE, f"cannot open {path}: {_message(problem)}") from problem

    def check_whole(self) -> None:
        """Read and check every page, row and index, because a disk does not report flipped bits."""
        found = self.rows("PRAGMA integrity_check(1)")[0][0]
        if found != "ok":
            raise InternalError(Code.STORAGE, f"{self.path}: {found}; {DAMAGE_ADVICE}")

    def _set_up(self) -> None:
        self._connection.set_busy_timeout(WAIT_MS)
        # SQLite's own checkpoint hides its errors, after which a commit may be lost.
        self._connection.set_wal_hook(_copy_log)
        mode = self._pragma("journal_mode=WAL")
        self._pragma(f"synchronous={FULL}")
        self._pragma("foreign_keys=ON")
        # Without it INSERT OR REPLACE deletes a row without firing the append-only triggers.
        self._pragma("recursive_triggers=ON")
        # A deleted key of a study is overwritten.
        self._pragma("secure_delete=ON")
        level = self._pragma("synchronous")
        if (mode, level) != ("wal", FULL):
            raise InternalError(
                Code.STORAGE,
                f"{self.path}: need journal_mode=wal and synchronous={FULL}, got {mode}, {level}",
            )

    def watch(self, *tables: str) -> None:
        """Count this connection's changes of `tables` from now on, for `changes`. They must have no
        REPLACE, and no DELETE without WHERE: SQLite does not report these."""
        self._watched = frozenset(tables)
        with self._lock:
            self._connection.set_update_hook(self._row_changed)
            self._connection.set_rollback_hook(self._rolled_back)

    def _row_changed(self, kind: int, database: str, table: str, row: int) -> None:
        self._own_changes += table in self._watched

    def _rolled_back(self) -> None:
        self._own_changes += 1  # what was read within the transaction is not so

    def changes(self) -> tuple[int, int]:
        """Return a value that differs after a change of a watched table here, and after any commit of another
        connection. What is read after it is as new, or newer."""
        return self._own_changes, self.rows("PRAGMA data_version")[0][0]

    @contextmanager
    def without_waiting(self) -> Iterator[None]:
        """Within the block a transaction of this thread does not wait for another process: it raises
        WouldWait. One thread at a time."""
        self._impatient = threading.get_ident()
        try:
            yield
        finally:
            self._impatient = None

    def _begin(self) -> None:
        """Open a transaction. The lock is free while it waits for another process, up to `WAIT_MS`."""
        ends = time.monotonic() + WAIT_MS / 1000
        while not self._has_begun(last=time.monotonic() >= ends):
            if self._impatient == threading.get_ident():
                raise WouldWait(Code.STORAGE, f"{self.path}: another process writes")
            self._lock.release()
            try:
                time.sleep(RETRY_SECONDS)
            finally:
                self._lock.acquire()
            if self._in_doubt is not None:
                raise self._in_doubt

    def _has_begun(self, *, last: bool) -> bool:
        """Open a transaction, unless another process writes. The `last` try raises that as an error."""
        self._connection.set_busy_timeout(0)
        try:
            self._connection.execute(self.begin)
        except apsw.BusyError as problem:
            if last:
                raise InternalError(Code.STORAGE, f"{self.path}: {_message(problem)}") from problem
            return False
        except FAILURES as problem:
            raise InternalError(Code.STORAGE, f"{self.path}: {_message(problem)}") from problem
        finally:
            self._connection.set_busy_timeout(WAIT_MS)
        return True

    def version(self) -> int:
        found: int = self._pragma("user_version")
        return found

    def set_version(self, change: Connection, version: int) -> None:
        """Store the version in the file's header too."""
        super().set_version(change, version)
        change.execute(f"PRAGMA user_version={version}")

    def size(self) -> int:
        """Return the bytes of the file, its write-ahead log not counted."""
        return int(self._pragma("page_count")) * int(self._pragma("page_size"))

    def copy_to(self, path: Path) -> None:
        """Copy all committed data durably to a new file, while other connections may write."""
        try:
            path.unlink(missing_ok=True)
            path.touch(mode=0o600)
            with (
                self._lock,
                closing(apsw.Connection(str(path))) as target,
                target.backup("main", self._connection, "main") as backup,
            ):
                while not backup.done:
                    backup.step()
            sync(path)
        except FAILURES as problem:
            raise InternalError(Code.STORAGE, f"cannot copy {self.path} to {path}: {problem}") from problem

    def empty_log(self) -> bool:
        """Copy the write-ahead log into the database and cut it to nothing: what was deleted is in neither.
        Return False, without waiting, if another process uses it just now."""
        with self._lock:
            self._connection.set_busy_timeout(0)
            try:
                self._connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except (apsw.BusyError, apsw.LockedError):
                return False
            except FAILURES as problem:
                raise InternalError(Code.STORAGE, f"{self.path}: {_message(problem)}") from problem
            finally:
                self._connection.set_busy_timeout(WAIT_MS)
            return True

    def _pragma(self, text: str) -> Any:
        found = self._run(f"PRAGMA {text}")
        return found[0][0] if found else None

    @property
    def _in_transaction(self) -> bool:
        return self._connection.in_transaction

    def _run(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        try:
            cursor = self._connection.execute(statement, parameters)  # up to its first row
            try:
                names = _names(cursor.get_description())
            except apsw.ExecutionCompleteError:  # it has none
                return []
            return [Row(names, values) for values in cursor]
        except FAILURES as problem:
            raise InternalError(Code.STORAGE, f"{self.path}: {_message(problem)}") from problem

    def close(self) -> None:
        with self._lock:
            try:
                self._connection.close()
            except FAILURES as problem:
                raise InternalError(Code.STORAGE, f"{self.path}: {problem}") from problem


def _message(problem: Exception) -> str:
    damaged = isinstance(problem, apsw.CorruptError | apsw.NotADBError | UnicodeDecodeError)
    return f"{problem}; {DAMAGE_ADVICE}" if damaged else str(problem)


@lru_cache(maxsize=1024)
def _names(description: tuple[tuple[str, str | None], ...]) -> tuple[str, ...]:
    """Return the names of a result's columns."""
    return tuple(column[0] for column in description)


def _copy_log(connection: apsw.Connection, name: str, pages: int) -> int:
    """Copy a long write-ahead log into the database after a commit, unless another process does so."""
    if pages >= LOG_PAGES:
        with suppress(apsw.BusyError):
            connection.wal_checkpoint(name, apsw.SQLITE_CHECKPOINT_PASSIVE)
    return int(apsw.SQLITE_OK)
