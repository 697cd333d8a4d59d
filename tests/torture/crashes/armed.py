"""Our commands as processes that end themselves by kill -9 at a failpoint.

Each is forked from a server that has imported everything, so that a restart costs little; from there on
it is the ordinary command. By hand: `python -m tests.torture.crashes.armed NAME PASSAGE PROGRAM ...`."""

from __future__ import annotations

import ctypes
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from itertools import count
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from eigenveil_client import cli as analyst_cli
from eigenveil_client.connection import channel, session_start
from eigenveil_client.site.commands import main as site_cli
from eigenveil_client.site.daemon import answers, connection
from eigenveil_common.files import arm
from eigenveil_server import cli as coordinator_cli
from eigenveil_server.pki.registry import Registry
from eigenveil_server.rpc import service
from eigenveil_server.storage import pieces
from eigenveil_server.studies import contributions, uploads
from tests.torture.masked.known import KnownShare

PROGRAMS: dict[str, Callable[[], int]] = {
    "eigenveil": analyst_cli.main,
    "eigenveil-coordinator": coordinator_cli.main,
    "eigenveil-site": site_cli.main,
}
PR_SET_PDEATHSIG = 1
SMALL = 64  # bytes: answers over 8 numbers are uploaded, in several chunks
PIECE = 128  # bytes: a release of over 16 numbers, and the file of a study, have some pieces
SHORT_PAUSE = 0.2  # seconds, the longest between two attempts to connect
AHEAD, RENEWS_EVERY = timedelta(days=6), 3.0  # seconds
KILLED = -signal.SIGKILL


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """kill -9 at the `passage`-th passage (from 1) of a failpoint in one process."""

    name: str
    passage: int = 1

    def arm(self) -> None:
        passages = count(1)

        def action() -> None:
            if next(passages) == self.passage:
                os.kill(os.getpid(), signal.SIGKILL)

        arm(self.name, action)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One of our commands, and what shall end it. `renews`: its certificates, every few seconds. `planted`:
    a fault that the checks must find, built in by this function of a module."""

    program: str
    arguments: tuple[str, ...]
    out: Path
    log: Path
    kill: Kill | None = None
    renews: bool = True
    planted: Callable[[], object] | None = None

    def start(self) -> ForkServerProcess:
        context = get_context("forkserver")
        context.set_forkserver_preload(["tests.torture.crashes.armed"])
        self.out.unlink(missing_ok=True)
        process = context.Process(target=main, args=(self,), daemon=True)
        process.start()
        return process

    def result(self) -> dict[str, Any] | None:
        if not self.out.exists() or b"\n" not in (message := self.out.read_bytes()):
            return None
        found: dict[str, Any] = json.loads(message.splitlines()[-1])
        return found


def main(command: Command) -> None:
    """Be `command`, in this process."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for path, standard in ((command.out, 1), (command.log, 2)):
        os.dup2(os.open(path, flags, 0o600), standard)
    hasten()
    if not command.renews:
        Early.next_ahead = math.inf
    if command.kill is not None:
        command.kill.arm()
    sys.argv = [command.program, *command.arguments]
    if command.planted is not None:
        command.planted()
    code = PROGRAMS[command.program]()
    sys.stdout.flush()
    os._exit(code)  # not by way of multiprocessing, which waits for what a command never would


def hasten() -> None:
    """Small limits and short pauses, so that little time is spent on waiting and small answers upload; early
    answers are stored apart, and every site renews its certificate every few seconds. Masked sums can be
    told exactly."""
    smaller: tuple[tuple[object, str, object], ...] = (
        (service, "INLINE_BYTES", SMALL), (service, "CHUNK_BYTES", SMALL), (uploads, "CHUNK_BYTES", SMALL),
        (pieces, "PIECE_BYTES", PIECE),
        (channel, "MAX_BACKOFF_SECONDS", SHORT_PAUSE), (connection, "QUICK_SECONDS", SHORT_PAUSE),
        (contributions, "GATHER_SECONDS", 0.0), (session_start, "datetime", Early),
        (session_start, "MAX_SLEEP", 1.0), (session_start, "RETRY_SECONDS", 1.0),
        (Registry, "_check_due", lambda self, shown: None), (answers, "OsNoise", KnownShare),
    )  # fmt: skip
    for where, name, value in smaller:
        mock.patch.object(where, name, value).start()  # fails if the product has no such name


class Early(datetime):
    """This clock is days ahead at the first look, and once every few seconds from then on."""

    next_ahead: ClassVar[float] = 0.0

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        if time.monotonic() < cls.next_ahead:
            return datetime.now(tz)
        cls.next_ahead = time.monotonic() + RENEWS_EVERY
        return datetime.now(tz) + AHEAD


if __name__ == "__main__":
    _, name, passage, program, *arguments = sys.argv
    Kill(name=name, passage=int(passage)).arm()
    sys.argv = [program, *arguments]
    sys.exit(PROGRAMS[program]())
