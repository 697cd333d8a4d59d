"""A study's rows on its grid where memory does not hold them: one after the other in a file."""

from __future__ import annotations

import hashlib
import math
import sys
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from eigenveil.site.stored import StoredRows
from eigenveil.study.grid import GridRows, stored_dtype
from eigenveil.study.study import Study
from eigenveil_client.records.overflow.scratch import Scratch, ScratchFile

WINDOW = 2**20  # bytes that a thread reads at a time
OURS = 3  # references to a window's memory without a slice in use: the window's, its rows', and the count's


@dataclass(frozen=True, slots=True)
class _Window:
    """What a thread has read: rows from number `first` on, and the memory that they lie in."""

    first: int
    memory: NDArray[np.uint8]
    rows: GridRows

    @property
    def in_use(self) -> bool:
        """Whether somebody still looks at a slice of it."""
        return sys.getrefcount(self.memory) > OURS


class GridFile:
    """Rows in a file that slices read: `rows[a:b]` is an array, and nothing else of `rows` is in memory but a
    window for each thread. The threads that answer go over their rows from front to back.

    Shape: (n, d).
    """

    def __init__(self, file: ScratchFile, columns: int, dtype: DTypeLike) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self._file = file
        self._row = columns * self.dtype.itemsize
        self.shape = (file.size // self._row, columns)
        self._windows = threading.local()

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, where: slice) -> GridRows:
        """Consecutive rows, as a view of what this thread has read.

        Raises:
            BadRecords: the disk does not give them back.
        """
        start, stop, _ = where.indices(len(self))
        held: _Window | None = getattr(self._windows, "held", None)
        if held is None or not held.first <= start <= stop <= held.first + len(held.rows):
            held = self._windows.held = self._window(held, start, max(start, stop))
        rows = held.rows[start - held.first : max(start, stop) - held.first]
        rows.setflags(write=False)
        return rows

    def _window(self, held: _Window | None, start: int, stop: int) -> _Window:
        """The rows from `start` on, in the memory of the window before if nobody looks at that any more."""
        rows = min(len(self) - start, max(stop - start, WINDOW // self._row, 1))
        size = rows * self._row
        free = held is not None and len(held.memory) >= size and not held.in_use
        memory = held.memory if held is not None and free else np.empty(size, dtype=np.uint8)
        self._file.read_into(start * self._row, memory.data[:size])
        return _Window(start, memory, memory[:size].view(self.dtype).reshape(rows, self.shape[1]))

    def close(self) -> None:
        """Give the disk's room back."""
        self._file.close()


class GridSink:
    """Takes rows in, block by block: in memory up to `limit` bytes, and all of them in a file beyond."""

    def __init__(self, study: Study, scratch: Scratch, limit: float = math.inf) -> None:
        self._columns = study.dimension
        self._dtype = stored_dtype(study)
        self._scratch = scratch
        self._limit = limit
        self._held: list[GridRows] = []
        self._bytes = 0
        self._file: ScratchFile | None = None
        self._digest = hashlib.sha256()

    def __call__(self, rows: GridRows) -> None:
        """Raises BadRecords: the disk does not take them."""
        if not len(rows):
            return
        rows = np.ascontiguousarray(rows)
        self._digest.update(rows.data)
        self._bytes += rows.nbytes
        self._held.append(rows)
        if self._bytes > self._limit:
            self._file = self._file or self._scratch.file()
            for part in self._held:
                self._file.append(part.data.cast("B"))
            self._held.clear()

    def digest(self) -> bytes:
        """Of the rows so far, in their order."""
        return self._digest.digest()

    def rows(self) -> StoredRows:
        """All of them; asked once, at the end."""
        if self._file is not None:
            return GridFile(self._file, self._columns, self._dtype)
        return whole(self._held, self._columns, self._dtype)

    def close(self) -> None:
        """Let go of what came, where it is of no use."""
        if self._file is not None:
            self._file.close()


def whole(parts: list[GridRows], columns: int, dtype: DTypeLike) -> GridRows:
    """Rows one after the other; each part goes as soon as it is copied: no second copy of all."""
    rows: GridRows = np.empty((sum(map(len, parts)), columns), dtype=dtype)
    filled = 0
    while parts:
        part = parts.pop(0)
        rows[filled : filled + len(part)] = part
        filled += len(part)
    rows.setflags(write=False)
    return rows
