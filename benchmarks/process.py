"""Processor time and memory of a process, free ports, and temporary folders whose logs outlive a failure."""

from __future__ import annotations

import random
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

PORTS = range(2**14, 2**15)  # below those that Linux gives to connections


def cpu_seconds(pid: int) -> float:
    """CPU seconds of all threads of a process so far, to the microsecond (Linux)."""
    return time.clock_gettime((~pid << 3) | 2)  # its CPUCLOCK_SCHED, as clock_getcpuclockid makes it


def resident_mib(pid: int, field: str = "VmRSS") -> float:
    """MiB of memory that a process has now, or at most so far (`VmHWM`)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) / 1024


def free_ports(count: int) -> tuple[int, ...]:
    """Loopback ports that are free now, all different. The system gives none of them to a connection, however
    long it takes until somebody listens."""
    found = list[int]()
    with ExitStack() as stack:
        while len(found) < count:
            port, tried = random.choice(PORTS), stack.enter_context(socket.socket())
            with suppress(OSError):
                tried.bind(("127.0.0.1", port))
                found.append(port)
    return tuple(found)


@contextmanager
def kept_if_failed() -> Iterator[Path]:
    """A temporary folder, removed unless the block raises; then its path is printed: logs are in it."""
    folder = Path(tempfile.mkdtemp(prefix="eigenveil-bench-"))
    try:
        yield folder
    except BaseException:
        print(f"failed; the logs are in {folder}", file=sys.stderr, flush=True)
        raise
    shutil.rmtree(folder)
