"""Reader processes as their callers use them: one isolated process a request, and an error if it fails. A
reader is not trusted: its messages are bounded and checked, and its crash is an error of the records."""

from __future__ import annotations

import logging
import os
import pickle
import re
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from eigenveil.errors import Code, RequestError
from eigenveil.study.grid import GridRows
from eigenveil.study.study import Study
from eigenveil_client.records.isolated.fork_server import RUNNING, SERVER
from eigenveil_client.records.isolated.frames import (
    REQUEST_SIZE,
    FrameKind,
    ReaderFailure,
    RowLayout,
    receive,
    row_layout,
)
from eigenveil_client.records.isolated.requests import MEMORY, UNEXPECTED, ReaderRequest, Task
from eigenveil_client.records.tables.source import SQLITE, BadRecords, RecordsConfig
from eigenveil_common.concurrency import SECRET_PREFIX
from eigenveil_common.files import make_folder
from eigenveil_common.log import event

REPORT_SECONDS = 10.0
MIB = 2**20
MEMORY_MIB = 3072  # of a reader, without the memory_mib of a site; a SELECT over files takes 2,048 of them
SECONDS, SECONDS_A_MIB = 600.0, 4.0  # for any request, and for each MiB of its files
MOST_ITEMS_BYTES = 2**26
MAX_MESSAGE_CHARACTERS, MOST_ABOUT = 4096, 256  # characters
ENDING_TRIES, ENDING_SECONDS = 100, 0.02
CLASS_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,63}")
WAL = slice(18, 20)  # bytes of a SQLite file that state its journal mode


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderLimits:
    """Limits of a reader: MiB of memory, and seconds for each request (None: by the size of files)."""

    memory_mib: int = MEMORY_MIB
    seconds: float | None = None


DEFAULT_LIMITS = ReaderLimits()
Done = TypeVar("Done")


def run_task(
    config: RecordsConfig,
    task: Task,
    *,
    study: Study | None = None,
    scratch: Path | None = None,
    item: Callable[[Any], None] = lambda one: None,
    sink: Callable[[GridRows], None] = lambda rows: None,
    check: Callable[[Any], Done],
    limits: ReaderLimits = DEFAULT_LIMITS,
) -> Done:
    """Run `task` in an isolated process, and return its final value after `check`.

    `study`: of a task that sends rows. `scratch`: a folder that it may write in. `item` is called
    with each item and `sink` with each block of rows, as they arrive. All are plain values; `item` and
    `check` raise ReaderFailure if one is invalid.

    Raises:
        BadRecords: the records are invalid, or the reader failed.
        RequestError: code `bad-config`, a library is not installed."""
    seconds = limits.seconds or _allowed_seconds(config)
    if scratch is not None:
        make_folder(scratch, mode=0o700)
    environment = {name: value for name, value in os.environ.items() if name.startswith(SECRET_PREFIX)}
    with tempfile.TemporaryDirectory(prefix="eigenveil-read-", ignore_cleanup_errors=True) as temporary:
        request = ReaderRequest(
            config=config, task=task, begins=_working_folder(),
            memory=limits.memory_mib * MIB, seconds=seconds,
            folders=(*([] if scratch is None else [scratch]), *_wal_folder(config), Path(temporary)),
            environment=environment if config.source is None else {},  # those of libpq
        )  # fmt: skip
        layout = None if study is None else row_layout(study)
        return _run_request(request, lambda ours: check(_receive_result(request, layout, ours, item, sink)))


def _working_folder() -> Path:
    """Return the working folder, or the root if it was removed."""
    try:
        return Path.cwd()
    except OSError:
        return Path("/")


def _run_request(request: ReaderRequest, receive_result: Callable[[socket.socket], Done]) -> Done:
    pid, connection = SERVER.reader()
    late = misbehaved = False
    try:
        with connection:
            return receive_result(connection)
    except ReaderFailure as broken:
        late, misbehaved = broken.late, not (broken.ended and _has_ended(pid))
    finally:
        how = _kill(pid)
    raise reader_error(request, None if misbehaved and how != RUNNING else how, late=late)


def _kill(pid: int) -> int | None:
    """Kill a process, and return its exit status: see `ForkServer.exit_status`."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)  # a process that has ended retains its status
    how = SERVER.exit_status(pid)
    if how == RUNNING:
        event("reader-stuck", logging.WARNING, about=f"process {pid}")
    return how


def _has_ended(pid: int) -> bool:
    """Return True if a process that closed its socket has ended, or ends soon."""
    for _ in range(ENDING_TRIES):
        with suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        time.sleep(ENDING_SECONDS)
    return False


def _receive_result(
    request: ReaderRequest,
    layout: RowLayout | None,
    connection: socket.socket,
    item: Callable[[Any], None],
    sink: Callable[[GridRows], None],
) -> Any:
    deadline, item_bytes, logged_at = time.monotonic() + request.seconds, 0, time.monotonic()
    data = pickle.dumps(request)
    with suppress(BrokenPipeError):
        connection.sendall(REQUEST_SIZE.pack(len(data)) + data)
    while True:
        kind, what, size = receive(connection, deadline, layout)
        if time.monotonic() - logged_at >= REPORT_SECONDS:
            event("records-loading")  # neither a number of records, nor a rate that would reveal it
            logged_at = time.monotonic()
        match kind:
            case FrameKind.ROWS:
                sink(what)
            case FrameKind.ITEM:
                item_bytes += size
                if item_bytes > MOST_ITEMS_BYTES:
                    raise ReaderFailure
                item(what)
            case FrameKind.DONE:
                return what
            case _:
                raise _error(request, what)


def _allowed_seconds(config: RecordsConfig) -> float:
    """Return the seconds that a request may take, by the size of its files and the timeout of a database."""
    size = sum(map(_size, config.files))
    database = config.timeout_seconds if config.source is None else 0.0
    return SECONDS + SECONDS_A_MIB * size / MIB + database


def _size(path: Path) -> int:
    """Return the bytes of a file or of a folder's files; 0 if there is none, which opening it reports."""
    found = [path, *path.rglob("*")] if path.is_dir() else [path]
    return sum(one.stat().st_size for one in found if one.is_file())


def _wal_folder(config: RecordsConfig) -> tuple[Path, ...]:
    """Return the folder of a SQLite file in WAL mode, which cannot be read without the files beside it."""
    if config.source is None or config.source.suffix.lower() not in SQLITE:
        return ()
    with suppress(OSError), config.source.open("rb") as file:
        if file.read(WAL.stop)[WAL] == b"\2\2":
            return (config.source.resolve().parent,)  # of a link, the folder of its target
    return ()


def _error(request: ReaderRequest, stated: Any) -> RequestError:
    """Return the error that a reader reports: of the records, or of a missing library."""
    try:
        code, message, about = stated
        code, message, about = Code(code), _line(message, MAX_MESSAGE_CHARACTERS), _line(about, MOST_ABOUT)
    except (TypeError, ValueError):
        raise ReaderFailure from None
    if about == MEMORY:
        return _too_large(request)
    if about == UNEXPECTED:
        return _unexpected_error(request, message)
    if code is Code.BAD_CONFIG:  # a library is missing
        return RequestError(code, message)
    return BadRecords(message, about=about or "file")  # whatever its code: it must not end a daemon


def _unexpected_error(request: ReaderRequest, message: str) -> BadRecords:
    """Return an unexpected error. Privacy: a daemon's log may hold its class alone."""
    kind = message.partition(" ")[0]
    if not CLASS_NAME.fullmatch(kind):
        raise ReaderFailure
    text = f"{request.config} cannot be read ({message}). If it is damaged, export it again"
    return BadRecords(text, about=UNEXPECTED, kind=kind)


def _line(stated: Any, most: int) -> str:
    """Return a text as one line."""
    if not isinstance(stated, str) or len(stated) > most:
        raise ValueError
    return " ".join(stated.splitlines())


def reader_error(request: ReaderRequest, how: int | None, *, late: bool) -> BadRecords:
    """Return the error for a reader that did not end normally."""
    if how == RUNNING:
        return BadRecords(
            f"{request.config} cannot be read: its reader was killed and does not end, as the system waits "
            "for a disk or a network share. Repair that, and the process ends",
            about="reader-stuck",
        )
    if late or how == -signal.SIGXCPU:
        return BadRecords(
            f"reading {request.config} took more than the {request.seconds:.0f} s that its size allows. If "
            "it is damaged, export it again; otherwise split it",
            about="reader-time",
        )
    if how in (-signal.SIGKILL, -signal.SIGABRT):
        return _too_large(request, f"its reader was ended by {signal.Signals(-how).name}; ")
    ended = f"by {signal.Signals(-how).name}" if how is not None and how < 0 else "early"
    return BadRecords(
        f"{request.config} cannot be read: its reader was ended {ended}. If the file is damaged, "
        "export it again",
        about="reader",
    )


def _too_large(request: ReaderRequest, why: str = "") -> BadRecords:
    return BadRecords(
        f"{request.config} cannot be read: {why}it is damaged, or reading takes over "
        f"{request.memory // MIB} MiB of memory. Raise memory_mib in site.toml, split the file, or "
        "export it as Parquet",
        about=MEMORY,
    )
