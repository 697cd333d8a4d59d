"""Disks that are full or slow for a while, under daemons that are the ordinary ones but for that.

A disk is full while the file `NAME.full` exists, and slow while `NAME.slow` does. What a daemon writes into
SQLite goes through a VFS that looks for them; a PostgreSQL server's disk is said to be full by its
statements, and slow by its commits, because the server itself is another process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest import mock

import apsw
import psycopg

from eigenveil_client.connection import channel
from eigenveil_client.site.daemon import connection
from eigenveil_client.site.state import store
from eigenveil_common.storage import postgres, sqlite
from eigenveil_common.storage.database import Row
from eigenveil_server.storage import database
from tests.torture.crashes.armed import SHORT_PAUSE

VFS = "moody"
SLOW_SECONDS = 0.05  # of a sync while the disk is slow


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of the daemon whose folder is `folder`."""

    folder: Path

    @property
    def full(self) -> Path:
        return self.folder.with_suffix(".full")

    @property
    def slow(self) -> Path:
        return self.folder.with_suffix(".slow")

    def wait_if_slow(self) -> None:
        if self.slow.exists():
            time.sleep(SLOW_SECONDS)


class _Vfs(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        super().__init__(VFS, "")
        self.disk = disk

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _File(self.disk, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self.disk = disk

    def xWrite(self, data: bytes, offset: int) -> None:
        if self.disk.full.exists():
            raise apsw.exception_for(apsw.SQLITE_FULL)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self.disk.wait_if_slow()
        super().xSync(flags)


def _on_server(disk: Disk) -> None:
    honest = postgres.PostgresDatabase._run

    def run(self: postgres.PostgresDatabase, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        if disk.full.exists() and statement.startswith(("INSERT", "UPDATE", "COMMIT")):
            raise self._failure(psycopg.errors.DiskFull("could not extend file: No space left on device"))
        if statement == "COMMIT":
            disk.wait_if_slow()
        return honest(self, statement, parameters)

    mock.patch.object(postgres.PostgresDatabase, "_run", run).start()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Preparation of a daemon at its start: `disk` is under its database. It connects again soon, and has the
    usual limits otherwise. `planted`: a fault that the check must find."""

    disk: Disk
    planted: Callable[[], object] | None = None

    def __call__(self) -> None:
        mock.patch.stopall()  # what `hasten` made smaller
        mock.patch.object(channel, "MAX_BACKOFF_SECONDS", SHORT_PAUSE).start()
        mock.patch.object(connection, "QUICK_SECONDS", SHORT_PAUSE).start()
        vars(database)["_torture_files"] = _Vfs(self.disk)  # lives as long as the process
        opened = partial(sqlite.SqliteDatabase, vfs=VFS)
        for module in (database, store):
            mock.patch.object(module, "SqliteDatabase", opened).start()
        _on_server(self.disk)
        if self.planted is not None:
            self.planted()
