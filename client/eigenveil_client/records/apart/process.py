"""Reader processes as whoever asks them sees them: a fork server that is started when it is needed, a process
of its own for each request, and one sentence for however such a process ends.

A reader is not believed: what it says is bounded and checked, and its death is an error of the records.
"""

from __future__ import annotations

import logging
import os
import pickle
import re
import shutil
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
from eigenveil_client.records.apart.fork_server import RUNNING, SERVER
from eigenveil_client.records.apart.form import form_of
from eigenveil_client.records.apart.frames import WISH, Broken, Kind, receive
from eigenveil_client.records.apart.works import MEMORY, SURPRISE, AnyWork, ReadRecords, Request
from eigenveil_client.records.progress import Progress
from eigenveil_client.records.tables.config import SQLITE, RecordsConfig
from eigenveil_client.records.tables.table import BadRecords
from eigenveil_common.apart import SECRET
from eigenveil_common.files import make_folder
from eigenveil_common.log import event

MIB = 2**20
MEMORY_MIB = 3072  # of a reader, besides the memory_mib of a site: a SELECT over files takes 2,048 of them
SECONDS, SECONDS_A_MIB = 600.0, 4.0  # for any request, and for each MiB of files besides
MOST_ITEMS_BYTES = 2**26
MOST_WORDS, MOST_ABOUT = 4096, 256  # characters
ENDING_TRIES, ENDING_SECONDS = 100, 0.02
CLASS_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,63}")
WAL = slice(18, 20)  # of a SQLite file: which form its changes have


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one reader may take: MiB of memory, and seconds for each request (None: by the size of files)."""

    memory_mib: int = MEMORY_MIB
    seconds: float | None = None


USUAL = Limits()
Done = TypeVar("Done")


def ask(
    said: RecordsConfig,
    work: AnyWork,
    *,
    item: Callable[[Any], None] = lambda one: None,
    keep: Callable[[GridRows], None] = lambda rows: None,
    check: Callable[[Any], Done],
    limits: Limits = USUAL,
) -> Done:
    """What `check` makes of what a process of its own ends `work` with; before, each item and each block of
    rows as they come. All are plain values, of which `item` and `check` raise Broken where they do not do.

    Raises:
        BadRecords: the records do not do, or the reader died of them.
        RequestError: code `bad-config`, a library is not installed.
    """
    seconds = limits.seconds or allowed_seconds(said)
    scratch = work.scratch.folder if isinstance(work, ReadRecords) else None
    if scratch is not None:
        make_folder(scratch, mode=0o700)
    own = Path(tempfile.mkdtemp(prefix="eigenveil-read-"))
    try:
        request = Request(
            said=said, work=work, begins=_here(), memory=limits.memory_mib * MIB, seconds=seconds,
            folders=tuple(one for one in (scratch, *_beside(said), own) if one is not None),
            environment=_environment(said),
        )  # fmt: skip
        return _asked(request, item, keep, check)
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _here() -> Path:
    """The folder in which relative paths begin here; the root, where a folder is that was removed."""
    try:
        return Path.cwd()
    except OSError:
        return Path("/")


def _asked(
    request: Request,
    item: Callable[[Any], None],
    keep: Callable[[GridRows], None],
    check: Callable[[Any], Done],
) -> Done:
    pid, there = SERVER.reader()
    late = lies = False
    try:
        with there:
            return check(_followed(request, there, item, keep))
    except Broken as broken:
        late, lies = broken.late, not (broken.ended and _gone(pid))
    finally:
        how = _killed(pid)
    raise died(request, None if lies and how != RUNNING else how, late=late)


def _killed(pid: int) -> int | None:
    """How a process ended, which does now if it has not: see `ForkServer.ended`."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)  # one that is gone keeps how it ended
    how = SERVER.ended(pid)
    if how == RUNNING:
        event("reader-stuck", logging.WARNING, about=f"process {pid}")
    return how


def _gone(pid: int) -> bool:
    """Whether a process whose words have come to an end has ended, or does so soon."""
    for _ in range(ENDING_TRIES):
        with suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        time.sleep(ENDING_SECONDS)
    return False


def _followed(
    request: Request,
    there: socket.socket,
    item: Callable[[Any], None],
    keep: Callable[[GridRows], None],
) -> Any:
    form = form_of(request.work.study) if isinstance(request.work, ReadRecords) else None
    until, said, progress = time.monotonic() + request.seconds, 0, Progress()
    data = pickle.dumps(request)
    with suppress(BrokenPipeError):
        there.sendall(WISH.pack(len(data)) + data)
    while True:
        kind, what, size = receive(there, until, form)
        progress.goes_on()
        match kind:
            case Kind.ROWS:
                keep(what)
            case Kind.ITEM:
                said += size
                if said > MOST_ITEMS_BYTES:
                    raise Broken
                item(what)
            case Kind.DONE:
                return what
            case _:
                raise _error(request, what)


def allowed_seconds(said: RecordsConfig) -> float:
    """How long a request may take: by the bytes of the files, which whoever reads them has to go over, and by
    the time that a database has."""
    size = sum(map(_size, said.files))
    database = said.timeout_seconds if said.source is None else 0.0
    return SECONDS + SECONDS_A_MIB * size / MIB + database


def _size(path: Path) -> int:
    """The bytes of a file, or of all in a folder; 0 if it is not there, which whoever opens it tells."""
    found = [path, *path.rglob("*")] if path.is_dir() else [path]
    return sum(one.stat().st_size for one in found if one.is_file())


def _beside(said: RecordsConfig) -> tuple[Path, ...]:
    """The folder of a SQLite file in WAL mode, without whose lists beside it nobody may read it."""
    if said.source is None or said.source.suffix.lower() not in SQLITE:
        return ()
    with suppress(OSError), said.source.open("rb") as file:
        if file.read(WAL.stop)[WAL] == b"\2\2":
            return (said.source.resolve().parent,)  # of a link, where the database is
    return ()


def _environment(said: RecordsConfig) -> dict[str, str]:
    """What libpq reads there, for a reader that is to reach a database."""
    if said.source is not None:
        return {}
    return {name: value for name, value in os.environ.items() if name.startswith(SECRET)}


def _error(request: Request, words: Any) -> RequestError:
    """An error that a reader states: of the records, or of a library that is not there."""
    try:
        code, message, about = words
        code, message, about = Code(code), _line(message, MOST_WORDS), _line(about, MOST_ABOUT)
    except (TypeError, ValueError):
        raise Broken from None
    if about == MEMORY:
        return _too_large(request)
    if about == SURPRISE:
        return _surprise(request, message)
    if code is Code.BAD_CONFIG:  # of a library that is not there
        return RequestError(code, message)
    return BadRecords(message, about=about or "file")  # whatever code it states: it ends no daemon


def _surprise(request: Request, message: str) -> BadRecords:
    """An error that nobody foresaw, of which a daemon's log may hold the class and nothing else."""
    kind = message.partition(" ")[0]
    if not CLASS_NAME.fullmatch(kind):
        raise Broken
    return BadRecords(
        f"{request.about} cannot be read ({message}); is it damaged? Write it anew", about=SURPRISE, kind=kind
    )


def _line(words: Any, most: int) -> str:
    """A text of one line."""
    if not isinstance(words, str) or len(words) > most:
        raise ValueError
    return " ".join(words.splitlines())


def died(request: Request, how: int | None, *, late: bool) -> BadRecords:
    """The one sentence for a reader that did not end as it should."""
    if how == RUNNING:
        return BadRecords(
            f"{request.about} cannot be read: the process that reads it was killed and does not end, as the "
            "system waits for a disk or a network share; mend that, and the process ends",
            about="reader-stuck",
        )
    if late or how == -signal.SIGXCPU:
        return BadRecords(
            f"reading {request.about} took more than the {request.seconds:.0f} s that its size allows; is it "
            "damaged? Write it anew, or split it",
            about="reader-time",
        )
    if how in (-signal.SIGKILL, -signal.SIGABRT):
        return _too_large(request, f"the process that reads it was ended by {signal.Signals(-how).name}; ")
    ended = f"by {signal.Signals(-how).name}" if how is not None and how < 0 else "before its time"
    return BadRecords(
        f"{request.about} cannot be read: the process that reads it was ended {ended}; is it damaged? "
        "Write it anew",
        about="reader",
    )


def _too_large(request: Request, why: str = "") -> BadRecords:
    return BadRecords(
        f"{request.about} cannot be read: {why}it is damaged, or reading takes over "
        f"{request.memory // MIB} MiB of memory; raise memory_mib in site.toml, split the file, or write it "
        "as Parquet",
        about=MEMORY,
    )
