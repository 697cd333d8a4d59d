"""Locks between processes. The system frees them when a process ends, however it ends."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO

from eigenveil_common.files import HAS_OWNERS, cannot

IN_FOLDER = "folder.lock"  # stands for its folder where the system opens none
GLANCE_SECONDS = 0.05  # where the system does not wake who waits


def try_lock(path: Path) -> IO[bytes] | None:
    """The lock file at `path`, made if need be, held until it is closed; None if another process holds it.

    Raises:
        InternalError: code `storage`.
    """
    try:
        return os.fdopen(_held(path, wait=False), "r+b")
    except BlockingIOError:
        return None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until nobody else holds `path`, a folder or such a file, and hold it. Raises as `try_lock`."""
    handle = _held(path, wait=True)
    try:
        yield
    finally:
        os.close(handle)


def _held(path: Path, *, wait: bool) -> int:
    try:
        handle = _opened(path)
        try:
            _take(handle, wait=wait)
        except OSError:
            os.close(handle)
            raise
    except BlockingIOError:
        raise
    except OSError as problem:
        raise cannot("lock", path, problem) from problem
    return handle


def _take(handle: int, *, wait: bool) -> None:
    """The whole file; on Windows its first byte.

    Raises:
        BlockingIOError: another process holds it, and we are not to wait.
    """
    if HAS_OWNERS:
        import fcntl  # which Windows does not have

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
        time.sleep(GLANCE_SECONDS)


def _opened(path: Path) -> int:
    """Whoever can open the file can hold it, so it is its owner's alone, whatever the umask, also if it was
    there before. A link is refused: it would have us make, or change, a file of somebody's choice."""
    if path.is_dir() and not path.is_symlink():
        if HAS_OWNERS:
            return os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        path = path / IN_FOLDER
    handle = os.open(path, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o600)
    if HAS_OWNERS:
        os.fchmod(handle, 0o600)
    return handle
