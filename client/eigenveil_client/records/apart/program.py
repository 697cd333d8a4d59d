"""`python -m eigenveil_client.records.apart.program`: a fork server. It loads what reads records, opens none,
and forks a reader for each request that its parent hands it.

Its standard input is a socket to its parent: a message with a descriptor asks for a reader that is spoken to
through it, and is answered by a process id; a process id asks how that process ended, and below 0 is not
asked for any more. It ends with its parent, or when it had nothing to do for a while.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import socket
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from eigenveil.errors import Code, EigenveilError
from eigenveil.study.grid import GridRows
from eigenveil_client.records.apart.fork_server import NUMBER, RUNNING
from eigenveil_client.records.apart.form import form_of
from eigenveil_client.records.apart.frames import WISH, Kind, send, send_rows
from eigenveil_client.records.apart.works import MEMORY, SURPRISE, ReadRecords, Request
from eigenveil_client.records.overflow.scratch import FULL
from eigenveil_client.records.tables.table import BadRecords
from eigenveil_common.confined import confine, limit
from eigenveil_common.log import places

LINGER_SECONDS = 60.0


def main() -> int:
    """Serve until nobody is there, or has asked for a while."""
    for one in (signal.SIGINT, signal.SIGTERM):  # are for whoever asks, which ends us; forks inherit it
        signal.signal(one, signal.SIG_IGN)
    control = socket.socket(fileno=0)
    pa.array(np.zeros(1))  # loads what each reader would load otherwise, for half a second
    gc.freeze()
    running, left = set[int](), set[int]()
    while True:
        left -= {pid for pid in left if os.waitpid(pid, os.WNOHANG)[0]}
        control.settimeout(None if running else LINGER_SECONDS)
        try:
            data, descriptors, *_ = socket.recv_fds(control, NUMBER, 1)
        except (TimeoutError, ConnectionError):
            return 0
        if not data:
            return 0
        if descriptors:
            pid = _forked(control, descriptors[0])
            running.add(pid)
            answer = pid
        else:
            answer = _ended(int.from_bytes(data, "big", signed=True), running, left)
        control.send(answer.to_bytes(NUMBER, "big"))


def _forked(control: socket.socket, descriptor: int) -> int:
    pid = os.fork()
    if pid:
        os.close(descriptor)
        return pid
    control.close()
    os._exit(_serve(socket.socket(fileno=descriptor)))


def _ended(pid: int, running: set[int], left: set[int]) -> int:
    """How a reader ended, or RUNNING: one that the kernel does not end must not keep the others waiting. One
    below 0 is left to end when it can."""
    if pid < 0:
        running.discard(-pid)
        left.add(-pid)
        return RUNNING
    gone, status = os.waitpid(pid, os.WNOHANG)
    if not gone:
        return RUNNING
    running.discard(pid)
    return status


def _serve(there: socket.socket) -> int:
    """Do the one thing that this process is for; its exit code, which says that all of it was said."""
    try:
        request = _request(there)
        limit(memory=request.memory, seconds=request.seconds)
        tempfile.tempdir = str(request.folders[-1])
        os.environ.update(request.environment)
        _go_to(request.begins)
        if _confined(request, there):
            _work(request, there)
    except (OSError, EOFError, ValueError):  # nobody listens any more, or what it would say is no frame
        return 1
    return 0


def _confined(request: Request, there: socket.socket) -> bool:
    """Set this process's limits, or say why that is not possible: then it reads nothing."""
    try:
        confine(network=request.network, folders=request.folders)
    except OSError as problem:
        said = f"{request.about} is not read: its reader cannot be confined ({problem})"
        send(there, Kind.ERROR, [Code.BAD_DATA.value, said, "reader-limits"])
        return False
    return True


def _go_to(folder: Path) -> None:
    """Have relative paths begin in `folder`; in the root, where nothing is found, if it is not open to us."""
    try:
        os.chdir(folder)
    except OSError:
        os.chdir("/")


def _request(there: socket.socket) -> Request:
    """What our parent asks, which is the process that started us: a reader believes it."""
    with there.makefile("rb") as stream:
        (size,) = WISH.unpack(stream.read(WISH.size))
        request: Request = pickle.loads(stream.read(size))
    return request


def _work(request: Request, there: socket.socket) -> None:
    work = request.work
    form = form_of(work.study) if isinstance(work, ReadRecords) else None

    def keep(rows: GridRows) -> None:
        assert form is not None
        send_rows(there, rows, form)

    try:
        done = work.run(request.said, lambda one: send(there, Kind.ITEM, one), keep)
    except BrokenPipeError:
        raise
    except Exception as problem:  # noqa: BLE001 - libraries raise all kinds over a damaged file
        send(there, Kind.ERROR, _words(problem))
    else:
        send(there, Kind.DONE, done)


def _words(problem: Exception) -> list[str]:
    """The code of an error, its sentence, and what it is about. Of one that nobody foresaw, its kind and
    place alone: what it says may quote a cell."""
    match problem:
        case BadRecords():
            return [problem.code.value, str(problem), problem.about]
        case MemoryError():
            return [Code.BAD_DATA.value, "", MEMORY]
        case EigenveilError(
            code=Code.STORAGE
        ):  # of a folder for what does not fit: no reason to end a daemon
            return [Code.BAD_DATA.value, FULL, "disk"]
        case EigenveilError():
            return [problem.code.value, str(problem), ""]
        case _:
            kind, at = type(problem).__qualname__, places(problem.__traceback__)
            return [Code.BAD_DATA.value, f"{kind} at {at}", SURPRISE]


if __name__ == "__main__":
    sys.exit(main())
