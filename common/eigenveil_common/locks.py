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
    file = _opened(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except OSError as problem:
        file.close()
        raise cannot("lock", path, problem) from problem
    return file


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock file at `path`, and hold it. Raises as `try_lock`."""
    with _opened(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as problem:
            raise cannot("lock", path, problem) from problem
        yield


def _opened(path: Path) -> IO[bytes]:
    """Whoever can open the file can hold it, so it is its owner's alone, whatever the umask, also if it was
    there before. A link is refused: it would have us make, or change, a file of somebody's choice."""
    try:
        file = os.fdopen(os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600), "r+b")
        os.fchmod(file.fileno(), 0o600)
    except OSError as problem:
        raise cannot("lock", path, problem) from problem
    return file


@contextmanager
def in_turn(folder: Path) -> Iterator[None]:
    """Wait until no other process is in turn in `folder`. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
