"""Locks between processes. The system frees them when a process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from eigenveil_common.files import cannot


def try_lock(path: Path) -> IO[bytes] | None:
    """The lock file at `path`, made if need be, held until it is closed; None if another process holds it.

    Raises:
        InternalError: code `storage`.
    """
    try:
        return os.fdopen(_held(path, fcntl.LOCK_EX | fcntl.LOCK_NB), "r+b")
    except BlockingIOError:
        return None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until nobody else holds `path`, a folder or such a file, and hold it. Raises as `try_lock`."""
    handle = _held(path, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(handle)


def _held(path: Path, how: int) -> int:
    try:
        handle = _opened(path)
        try:
            fcntl.flock(handle, how)
        except OSError:
            os.close(handle)
            raise
    except BlockingIOError:
        raise
    except OSError as problem:
        raise cannot("lock", path, problem) from problem
    return handle


def _opened(path: Path) -> int:
    """Whoever can open the file can hold it, so it is its owner's alone, whatever the umask, also if it was
    there before. A link is refused: it would have us make, or change, a file of somebody's choice."""
    if path.is_dir() and not path.is_symlink():
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    os.fchmod(handle, 0o600)
    return handle
