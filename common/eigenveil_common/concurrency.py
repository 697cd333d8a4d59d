"""Locks between processes, a parallel map, isolated subprocesses and the time grid for sending noise. The
system releases locks when a process ends in any way. Drawn noise is sent on the grid, so that its sampling
time is not visible [P6]."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, TypeVar

from eigenveil_common.files import HAS_FILE_OWNERS, storage_errors

IN_FOLDER = "folder.lock"  # lock file of a folder where the system cannot open folders
RETRY_SECONDS = 0.05  # polling interval where the system has no blocking lock


def try_lock(path: Path) -> IO[bytes] | None:
    """Return the file at `path`, locked until it is closed; None if another process holds the lock."""
    try:
        return os.fdopen(_acquire(path, wait=False), "r+b")
    except BlockingIOError:
        return None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of `path`, a folder or a lock file, waiting for other holders. Raises as `try_lock`."""
    handle = _acquire(path, wait=True)
    try:
        yield
    finally:
        os.close(handle)


def _acquire(path: Path, *, wait: bool) -> int:
    with storage_errors("lock", path), ExitStack() as undo:
        handle = _open_lock(path)
        undo.callback(os.close, handle)
        _lock_handle(handle, wait=wait)
        undo.pop_all()
    return handle


def _lock_handle(handle: int, *, wait: bool) -> None:
    """Lock the whole file; on Windows its first byte."""
    if HAS_FILE_OWNERS:
        import fcntl  # not on Windows

        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    msvcrt = import_module("msvcrt")
    while True:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            return
        except OSError as problem:
            if not wait:
                raise BlockingIOError(problem.errno, problem.strerror) from problem
        time.sleep(RETRY_SECONDS)


def _open_lock(path: Path) -> int:
    """Open a folder or a lock file. Only the owner may open a lock file, because every user who opens it can
    lock it. Links are refused, because they could point to any file."""
    if path.is_dir() and not path.is_symlink():
        if HAS_FILE_OWNERS:
            return os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        path = path / IN_FOLDER
    handle = os.open(path, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o600)
    if HAS_FILE_OWNERS:
        os.fchmod(handle, 0o600)
    return handle


Piece = TypeVar("Piece")
Done = TypeVar("Done")

CORES = os.cpu_count() or 1
MOST_AHEAD = 8  # pieces in memory


def map_in_threads(work: Callable[[Piece], Done], pieces: Iterable[Piece], /) -> Iterator[Done]:
    """Yield the results of `map` in threads; an exception of a thread is raised here."""
    with ThreadPoolExecutor(CORES) as threads:
        yield from threads.map(work, pieces)


def map_ahead(work: Callable[[Piece], Done], pieces: Iterable[Piece], /) -> Iterator[Done]:
    """Yield the same, but take few pieces before their results are used, on any number of cores."""
    most = min(CORES, MOST_AHEAD)
    with ThreadPoolExecutor(most) as threads:
        ahead = deque[Future[Done]]()
        try:
            for piece in pieces:
                ahead.append(threads.submit(work, piece))
                if len(ahead) > most:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for one in ahead:
                one.cancel()


# One BLAS thread: idle BLAS threads use processor time, which would then differ between machines.
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
SECRET_PREFIX = "PG"  # prefix of the database's environment variables, which hold its password
PIPE, DEVNULL = subprocess.PIPE, subprocess.DEVNULL


def start_isolated(
    module: str,
    *,
    stdin: int = PIPE,
    stdout: int = PIPE,
    stderr: int | None = None,
    settings: Mapping[str, str] = ONE_THREAD,
) -> subprocess.Popen[bytes]:
    """Start a subprocess that runs `module` without our secrets, with `settings` in its environment."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(SECRET_PREFIX)}
    # -P: no module is loaded from the current folder.
    command = [sys.executable, "-P", "-m", module]
    return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, env=env | dict(settings))


def kill_process(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and release its resources."""
    process.kill()
    with suppress(BrokenPipeError):
        process.communicate()


TICK = 0.002  # seconds


def wait_for_tick() -> None:
    time.sleep(TICK - time.monotonic() % TICK)
