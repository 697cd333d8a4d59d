"""The fork server as its parent sees it: it starts readers, and knows how they ended."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import threading
import time
from contextlib import suppress

from eigenveil_client.records.tables.table import BadRecords
from eigenveil_common.apart import NOWHERE, ONE_THREAD, apart, ended

TRIES = 2
NUMBER = 8  # bytes of a process id (below 0: nobody asks for it any more), or of how a process ended
RUNNING = 2**32  # no process has ended like this
ENDING_SECONDS, LEAST_PAUSE = 10.0, 0.001
# A limit of memory counts what is reserved. Arrow's own allocators reserve a GiB at once; the system's keeps
# the hole that a large block leaves, one for each column of a file, unless blocks are mapped one by one.
SETTINGS = ONE_THREAD | {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_MMAP_THRESHOLD_": "131072"}
PROGRAM = "eigenveil_client.records.apart.program"


class ForkServer:
    """Starts readers, and knows how they ended. Its process is started when it is asked for the first time,
    and again whenever it is gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._owner = 0

    def reader(self) -> tuple[int, socket.socket]:
        """The process id of a new reader, and the way to it."""
        ours, theirs = socket.socketpair()
        with theirs:
            for _ in range(TRIES):
                with suppress(OSError):  # it ended, for want of work
                    return self._ask(b"reader", [theirs.fileno()]), ours
        ours.close()
        raise BadRecords("no process can be started to read the records; is there memory?", about="reader")

    def ended(self, pid: int) -> int | None:
        """How a reader that was killed ended, as a negative signal or an exit code; RUNNING, as long as the
        kernel waits for something in it that does not come; None if its server is gone as well."""
        until, pause = time.monotonic() + ENDING_SECONDS, LEAST_PAUSE
        try:
            while (status := self._ask(_bytes(pid), [])) == RUNNING:
                if (left := until - time.monotonic()) <= 0:
                    self._ask(_bytes(-pid), [])
                    return RUNNING
                time.sleep(min(pause, left))
                pause *= 2
            return os.waitstatus_to_exitcode(status)
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        """End it, and all of its readers; a fork of its parent has none."""
        with self._lock:
            if self._owner == os.getpid():
                self._stop()

    def _ask(self, message: bytes, descriptors: list[int]) -> int:
        with self._lock:
            if self._owner != os.getpid():  # a fork of ours has none
                self._control = self._process = None
            try:
                control = self._control or self._start()
                socket.send_fds(control, [message], descriptors)
                answer = control.recv(NUMBER)
                if len(answer) < NUMBER:
                    raise ConnectionError
            except OSError:
                self._stop()
                raise
            return int.from_bytes(answer, "big")

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = apart(
                PROGRAM, stdin=theirs.fileno(), stdout=NOWHERE, stderr=NOWHERE, settings=SETTINGS
            )
        self._control, self._owner = ours, os.getpid()
        return ours

    def _stop(self) -> None:
        control, process = self._control, self._process
        self._control = self._process = None
        if control is not None:
            control.close()
        if process is not None:
            ended(process)


def _bytes(number: int) -> bytes:
    return number.to_bytes(NUMBER, "big", signed=True)


SERVER = ForkServer()
atexit.register(SERVER.close)
