"""Client of the fork server, which starts reader processes and reports their exit status."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import threading
import time
from importlib.util import find_spec

from eigenveil_client.records.tables.source import BadRecords
from eigenveil_common.concurrency import DEVNULL, ONE_THREAD, kill_process, start_isolated

TRIES = 2
NUMBER_BYTES = 8  # bytes of a process id (negative: abandoned), or of an exit status
RUNNING = 2**32  # no exit status of a process
ENDING_SECONDS, LEAST_PAUSE = 10.0, 0.001
# A memory limit counts reserved memory. Arrow's own allocators reserve a GiB at once. The system's allocator
# retains the gap of each freed block, one for each column of a file, unless large blocks are mapped singly.
# Mapping those of ordinary batches too, or returning them after each, would take as long as reading them.
SETTINGS = ONE_THREAD | {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(2**21),
    "MALLOC_TRIM_THRESHOLD_": str(2**25),
    "MALLOC_ARENA_MAX": "8",  # each reserves 64 MiB; the default is eight for each core
}
PROGRAM, LIBRARY = "eigenveil_client.records.isolated.program", "pyarrow"


class ForkServer:
    """Starts readers and reports their exit status. Its process is started at the first request, and again
    whenever it has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._owner = 0

    def reader(self) -> tuple[int, socket.socket]:
        """Return the process id of a new reader, and the socket to it. Raises BadRecords: it cannot be
        started; ModuleNotFoundError: as its library is not installed."""
        ours, theirs = socket.socketpair()
        with theirs:
            for _ in range(TRIES):
                try:
                    return self._send(b"reader", [theirs.fileno()]), ours
                except OSError as problem:  # it ended when idle
                    ended = isinstance(problem, ConnectionError)
                    why = "its process ended at once" if ended else problem.strerror
        ours.close()
        if find_spec(LIBRARY) is None:
            raise ModuleNotFoundError(f"No module named {LIBRARY!r}", name=LIBRARY)
        todo = f"Check that this user may run {sys.executable}, and the free memory"
        raise BadRecords(f"cannot start a reader of the records: {why}. {todo}", about="reader")

    def exit_status(self, pid: int) -> int | None:
        """Return the exit code of a killed reader (negative: a signal). RUNNING, if the kernel does not end
        it within `ENDING_SECONDS`; None, if the server has ended too."""
        deadline, pause = time.monotonic() + ENDING_SECONDS, LEAST_PAUSE
        try:
            while (status := self._send(_bytes(pid), [])) == RUNNING:
                if (remaining := deadline - time.monotonic()) <= 0:
                    self._send(_bytes(-pid), [])
                    return RUNNING
                time.sleep(min(pause, remaining))
                pause *= 2
            return os.waitstatus_to_exitcode(status)
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        """End the server and its readers; a fork of its parent has none."""
        with self._lock:
            if self._owner == os.getpid():
                self._stop()

    def _send(self, message: bytes, descriptors: list[int]) -> int:
        with self._lock:
            if self._owner != os.getpid():  # a fork of ours has none
                self._control = self._process = None
            try:
                control = self._control or self._start()
                socket.send_fds(control, [message], descriptors)
                answer = control.recv(NUMBER_BYTES)
                if len(answer) < NUMBER_BYTES:
                    raise ConnectionError
            except OSError:
                self._stop()
                raise
            return int.from_bytes(answer, "big")

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control, self._owner = ours, os.getpid()  # which `_stop` closes
        with theirs:
            self._process = start_isolated(
                PROGRAM, stdin=theirs.fileno(), stdout=DEVNULL, stderr=DEVNULL, settings=SETTINGS
            )
        return ours

    def _stop(self) -> None:
        control, process = self._control, self._process
        self._control = self._process = None
        if control is not None:
            control.close()
        if process is not None:
            kill_process(process)


def _bytes(number: int) -> bytes:
    return number.to_bytes(NUMBER_BYTES, "big", signed=True)


SERVER = ForkServer()
atexit.register(SERVER.close)
