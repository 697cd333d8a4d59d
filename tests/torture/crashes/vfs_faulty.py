"""Our commands on a disk whose N-th call fails: a sync, a write, or a write because the disk is full.

The command is forked and is the ordinary one from there on; only its databases are opened through the
failing files, which a test passes in here and nothing else can."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from unittest import mock

import apsw

from eigenveil_client.site.state import store
from eigenveil_common.storage import sqlite
from eigenveil_server.storage import database
from tests.torture.crashes import armed
from tests.torture.crashes.armed import Command

VFS = "faulty"


class Kind(Enum):
    SYNC = apsw.SQLITE_IOERR_FSYNC
    WRITE = apsw.SQLITE_IOERR_WRITE
    FULL = apsw.SQLITE_FULL


@dataclass(slots=True)
class Fault:
    """The `at`-th call of its kind fails (from 1), and `told` is a file that says so."""

    kind: Kind
    at: int
    marker: Path
    calls: int = field(default=0, init=False)

    def call(self, *kinds: Kind) -> None:
        """Before a call that each of `kinds` would make fail."""
        if self.kind not in kinds:
            return
        self.calls += 1
        if self.calls == self.at:
            self.marker.touch()
            raise apsw.exception_for(self.kind.value)


class FaultyVfs(apsw.VFS):
    def __init__(self, fault: Fault) -> None:
        super().__init__(VFS, "")
        self.fault = fault

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return FaultyFile(self.fault, name, flags)


class FaultyFile(apsw.VFSFile):
    def __init__(self, fault: Fault, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self.fault = fault

    def xWrite(self, data: bytes, offset: int) -> None:
        self.fault.call(Kind.WRITE, Kind.FULL)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self.fault.call(Kind.SYNC)
        super().xSync(flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stricken:
    command: Command
    fault: Fault

    def start(self) -> ForkServerProcess:
        context = get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self.command.out.unlink(missing_ok=True)
        process = context.Process(target=_main, args=(self,), daemon=True)
        process.start()
        return process


def _main(stricken: Stricken) -> None:
    files = FaultyVfs(stricken.fault)
    opened = partial(sqlite.SqliteDatabase, vfs=VFS)
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(database, "SqliteDatabase", opened))
        patches.enter_context(mock.patch.object(store, "SqliteDatabase", opened))
        patches.enter_context(mock.patch.object(armed, "hasten"))  # the usual limits
        armed.main(stricken.command)
    files.unregister()
