"""Fork server, run as `python -m`: it loads the libraries, and forks a reader for each request.

Its standard input is a socket to its parent. A message with a descriptor requests a reader that uses that
descriptor, and is answered by a process id. A message with a process id requests its exit status; a negative
one abandons the process. The server ends with its parent, or after `LINGER_SECONDS` without a request."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import socket
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from eigenveil.errors import Code, EigenveilError
from eigenveil_client.records.isolated import tasks  # noqa: F401 - once, before readers are forked
from eigenveil_client.records.isolated.fork_server import NUMBER_BYTES, RUNNING
from eigenveil_client.records.isolated.frames import REQUEST_SIZE, FrameKind, send, send_rows
from eigenveil_client.records.isolated.requests import MEMORY, UNEXPECTED, ReaderRequest
from eigenveil_client.records.scratch_files import FULL
from eigenveil_client.records.tables.source import BadRecords
from eigenveil_common.log import frame_locations
from eigenveil_common.process_limits import limit_resources, restrict_process

LINGER_SECONDS = 60.0


def main() -> int:
    """Serve until the parent ends, or sends nothing for a while."""
    for one in (signal.SIGINT, signal.SIGTERM):  # are for the parent; forks inherit this
        signal.signal(one, signal.SIG_IGN)
    control = socket.socket(fileno=0)
    pa.array(np.zeros(1))  # otherwise each reader would load this, for half a second
    gc.freeze()
    running, abandoned = set[int](), set[int]()
    while True:
        abandoned -= {pid for pid in abandoned if os.waitpid(pid, os.WNOHANG)[0]}
        control.settimeout(None if running else LINGER_SECONDS)
        try:
            data, descriptors, *_ = socket.recv_fds(control, NUMBER_BYTES, 1)
        except (TimeoutError, ConnectionError):
            return 0
        if not data:
            return 0
        if descriptors:
            pid = _fork_reader(control, descriptors[0])
            running.add(pid)
            answer = pid
        else:
            answer = _exit_status(int.from_bytes(data, "big", signed=True), running, abandoned)
        control.send(answer.to_bytes(NUMBER_BYTES, "big"))


def _fork_reader(control: socket.socket, descriptor: int) -> int:
    pid = os.fork()
    if pid:
        os.close(descriptor)
        return pid
    control.close()
    os._exit(_serve(socket.socket(fileno=descriptor)))


def _exit_status(pid: int, running: set[int], abandoned: set[int]) -> int:
    """Return the exit status of a reader, or RUNNING: a stuck one must not block the others. A negative id
    abandons the reader, which ends when it can."""
    if pid < 0:
        running.discard(-pid)
        abandoned.add(-pid)
        return RUNNING
    finished, status = os.waitpid(pid, os.WNOHANG)
    if not finished:
        return RUNNING
    running.discard(pid)
    return status


def _serve(connection: socket.socket) -> int:
    """Serve the request of this process; return its exit code, 0 if the answer was sent in full."""
    try:
        request = _receive_request(connection)
        limit_resources(memory=request.memory, seconds=request.seconds)
        tempfile.tempdir = str(request.folders[-1])
        os.environ.update(request.environment)
        _change_folder(request.begins)
        if _confined(request, connection):
            _run_task(request, connection)
    except (OSError, EOFError, ValueError):  # the parent has closed the socket, or the answer is not a frame
        return 1
    return 0


def _confined(request: ReaderRequest, connection: socket.socket) -> bool:
    """Restrict this process, or send the reason for which that failed: then it reads nothing."""
    try:
        restrict_process(network=request.config.source is None, folders=request.folders)
    except OSError as problem:
        message = f"{request.config} is not read: its reader cannot be restricted ({problem})"
        send(connection, FrameKind.ERROR, [Code.BAD_DATA.value, message, "reader-limits"])
        return False
    return True


def _change_folder(folder: Path) -> None:
    """Change into `folder`, or into the root, where no relative path is found, if that is not permitted."""
    try:
        os.chdir(folder)
    except OSError:
        os.chdir("/")


def _receive_request(connection: socket.socket) -> ReaderRequest:
    """Receive the request of the parent, which started this process and is trusted."""
    with connection.makefile("rb") as stream:
        (size,) = REQUEST_SIZE.unpack(stream.read(REQUEST_SIZE.size))
        request: ReaderRequest = pickle.loads(stream.read(size))
    return request


def _run_task(request: ReaderRequest, connection: socket.socket) -> None:
    item, sink = partial(send, connection, FrameKind.ITEM), partial(send_rows, connection)
    try:
        done = request.task(request.config, item, sink)
    except BrokenPipeError:
        raise
    except Exception as problem:  # noqa: BLE001 - a damaged file makes libraries raise any error
        send(connection, FrameKind.ERROR, _error_message(problem))
    else:
        send(connection, FrameKind.DONE, done)


def _error_message(problem: Exception) -> list[str]:
    """Return the code of an error, its message, and its subject.

    Privacy: of an unexpected error only the class and the place, as its message may quote a cell."""
    match problem:
        case BadRecords():
            return [problem.code.value, str(problem), problem.about]
        case MemoryError():
            return [Code.BAD_DATA.value, "", MEMORY]
        case EigenveilError(code=Code.STORAGE):  # of a scratch folder: it must not end a daemon
            return [Code.BAD_DATA.value, FULL, "disk"]
        case EigenveilError():
            return [problem.code.value, str(problem), ""]
        case _:
            kind, at = type(problem).__qualname__, frame_locations(problem.__traceback__)
            return [Code.BAD_DATA.value, f"{kind} at {at}", UNEXPECTED]


if __name__ == "__main__":
    sys.exit(main())
