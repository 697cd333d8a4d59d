"""Unnamed, encrypted temporary files for rows that do not fit into memory, and a study's rows in one.

Such a file ends when it is closed or its process ends, so no later start has to delete one. Blocks that
remain on the disk belong to no file. With `encrypt` they are AES-256 in counter mode, under a new key for
each file, which is in the memory of this process alone. Every byte is written once, so no part of the key
stream is used twice."""

from __future__ import annotations

import hashlib
import math
import os
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import DTypeLike, NDArray

from eigenveil.site.record_view import StoredRows
from eigenveil.study.grid import GridRows, stored_dtype
from eigenveil.study.study import Study
from eigenveil_client.records.tables.source import BadRecords
from eigenveil_common.files import make_folder

BLOCK = 16  # bytes: AES's
AHEAD = 2**23  # bytes of read-ahead
FULL = "rows that do not fit into memory cannot be stored on the disk. Check that it is not full"


@contextmanager
def _disk() -> Iterator[None]:
    """Raise an OSError as BadRecords. Privacy: its message has no size, which would reveal a number of
    records."""
    try:
        yield
    except OSError:
        raise BadRecords(FULL, about="disk") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """Folder of temporary files (None: the system's own), and True if they are encrypted."""

    folder: Path | None = None
    encrypt: bool = True

    def file(self) -> ScratchFile:
        """Create an empty file."""
        if self.folder is not None:
            make_folder(self.folder, mode=0o700)
        with _disk():
            # without a name from the start, or unlinked at once, by the system
            file = tempfile.TemporaryFile(dir=self.folder, prefix="eigenveil-", buffering=0)  # noqa: SIM115
        return ScratchFile(file, key=os.urandom(32) if self.encrypt else None)


SYSTEM = Scratch()


class ScratchFile:
    """Open `file`, encrypted under `key` if given: bytes are appended, then read at any place by any
    thread."""

    def __init__(self, file: FileIO, *, key: bytes | None = None) -> None:
        self._file, self._key = file, key
        weakref.finalize(self, file.close)  # closed with this object
        self.size = os.fstat(file.fileno()).st_size
        self._appending = None if key is None else self._cipher(self.size)

    def duplicate(self) -> ScratchFile:
        """Return the same file, for reading. The space on the disk is freed once both are closed."""
        with _disk():
            copy = ScratchFile(FileIO(os.dup(self._file.fileno()), "r+"), key=self._key)
        copy.size = self.size  # what is missing then is an error of its reader
        return copy

    def append(self, data: memoryview | bytes) -> None:
        """Append `data`. Raises BadRecords: it cannot be written to the disk."""
        rest = memoryview(data).cast("B")
        if self._appending is not None:
            rest = memoryview(self._appending.update(rest))
        self.size += len(rest)
        with _disk():
            while rest:
                rest = rest[self._file.write(rest) :]

    def read_into(self, begin: int, into: memoryview) -> None:
        """Fill `into` with the bytes from `begin` on, and start reading what follows, or raise BadRecords."""
        at, rest = begin, into
        with _disk():
            descriptor = self._file.fileno()
            if hasattr(os, "posix_fadvise"):  # not on every system
                os.posix_fadvise(descriptor, begin + AHEAD, len(into), os.POSIX_FADV_WILLNEED)
            while rest:
                done = os.preadv(descriptor, [rest], at)
                if not done:
                    raise OSError("the file has become shorter")
                at, rest = at + done, rest[done:]
        if self._key is not None:
            self._cipher(begin).update_into(into, into)

    def close(self) -> None:
        """Free the space on the disk; may be repeated."""
        self._file.close()

    def _cipher(self, begin: int) -> CipherContext:
        """Return the cipher that encrypts or decrypts bytes from `begin` on."""
        assert self._key is not None
        block, inside = divmod(begin, BLOCK)
        context = Cipher(AES256(self._key), CTR(block.to_bytes(BLOCK, "big"))).encryptor()
        context.update(bytes(inside))
        return context


WINDOW = 2**20  # bytes that a thread reads at a time
OURS = 3  # references to a window's memory without a slice in use: the window, its rows, and the argument


@dataclass(frozen=True, slots=True)
class _Window:
    """Rows that a thread has read, from number `first` on, and their memory."""

    first: int
    memory: NDArray[np.uint8]
    rows: GridRows

    @property
    def in_use(self) -> bool:
        """True if a slice of it is still in use."""
        return sys.getrefcount(self.memory) > OURS


class GridFile:
    """Rows in a file: the slice `rows[a:b]` reads an array.

    Memory holds one window for each thread. Threads read their rows from front to back.

    Shape: (n, d)."""

    def __init__(self, file: ScratchFile, columns: int, dtype: DTypeLike) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.file = file
        self._row = columns * self.dtype.itemsize
        self.shape = (file.size // self._row, columns)
        self._windows = threading.local()

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, where: slice) -> GridRows:
        """Return consecutive rows, as a view of this thread's window. Raises as `ScratchFile.read_into`."""
        start, stop, _ = where.indices(len(self))
        window: _Window | None = getattr(self._windows, "current", None)
        if window is None or not window.first <= start <= stop <= window.first + len(window.rows):
            window = self._windows.current = self._window(window, start, max(start, stop))
        rows = window.rows[start - window.first : max(start, stop) - window.first]
        rows.setflags(write=False)
        return rows

    def _window(self, window: _Window | None, start: int, stop: int) -> _Window:
        """Read the rows from `start` on, into the memory of the previous window if it is unused."""
        rows = min(len(self) - start, max(stop - start, WINDOW // self._row, 1))
        size = rows * self._row
        free = window is not None and len(window.memory) >= size and not window.in_use
        memory = window.memory if window is not None and free else np.empty(size, dtype=np.uint8)
        self.file.read_into(start * self._row, memory.data[:size])
        return _Window(start, memory, memory[:size].view(self.dtype).reshape(rows, self.shape[1]))

    def close(self) -> None:
        """Free the space on the disk."""
        self.file.close()


class GridSink:
    """Sink of blocks of rows: in memory up to `limit` bytes, beyond that all of them in a file."""

    def __init__(self, study: Study, scratch: Scratch, limit: float = math.inf) -> None:
        self._columns, self._dtype = study.dimension, stored_dtype(study)
        self._scratch, self._limit = scratch, limit
        self._blocks: list[GridRows] = []
        self._bytes = 0
        self._file: ScratchFile | None = None
        self._digest = hashlib.sha256()

    def __call__(self, rows: GridRows) -> None:
        """Add rows. Raises BadRecords: they cannot be written to the disk."""
        if not len(rows):
            return
        rows = np.ascontiguousarray(rows)
        self._digest.update(rows.data)
        self._bytes += rows.nbytes
        self._blocks.append(rows)
        if self._bytes > self._limit:
            self._file = self._file or self._scratch.file()
            for part in self._blocks:
                self._file.append(part.data.cast("B"))
            self._blocks.clear()

    def digest(self) -> bytes:
        """Return the digest of the rows so far, in their order."""
        return self._digest.digest()

    def rows(self) -> StoredRows:
        """Return all rows; called once, at the end."""
        if self._file is not None:
            return GridFile(self._file, self._columns, self._dtype)
        return whole(self._blocks, self._columns, self._dtype)

    def close(self) -> None:
        """Discard the rows."""
        if self._file is not None:
            self._file.close()


def whole(parts: list[GridRows], columns: int, dtype: DTypeLike) -> GridRows:
    """Concatenate rows. Each part is freed as soon as it is copied, so there is no second copy of all."""
    rows: GridRows = np.empty((sum(map(len, parts)), columns), dtype=dtype)
    filled = 0
    while parts:
        part = parts.pop(0)
        rows[filled : filled + len(part)] = part
        filled += len(part)
    rows.setflags(write=False)
    return rows
