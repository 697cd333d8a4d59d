"""Hashes of whole rows, by which repeated rows are counted. A count is shown to the site's people alone, so
that two rows with one hash of 64 bits, by chance, do no harm."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
MOST_HASHED = 2**26  # rows: 512 MiB, and as much again while they are sorted
NULL = np.uint64(0x9E3779B97F4A7C15)
FACTOR = np.uint64(0xBF58476D1CE4E5B9)


class RowHashes:
    """Hashes of the rows so far."""

    def __init__(self) -> None:
        self._parts: list[Hashes] = []
        self._rows = 0

    def add(self, hashes: Hashes) -> None:
        self._rows += len(hashes)
        if self._rows <= MOST_HASHED:
            self._parts.append(hashes)
        else:
            self._parts.clear()

    @property
    def repeated(self) -> int | None:
        """The number of rows that equal an earlier one; None if there were too many to compare."""
        if self._rows > MOST_HASHED:
            return None
        every = np.concatenate([np.zeros(0, dtype=np.uint64), *self._parts])
        return self._rows - len(np.unique(every))


def row_hashes(batch: pa.RecordBatch) -> Hashes:
    """Return a hash of each row of a batch, from all of its columns. Shape: (rows,)."""
    found = np.zeros(batch.num_rows, dtype=np.uint64)
    for column in batch.columns:
        found = (found ^ _cell_hashes(column)) * FACTOR
        found ^= found >> np.uint64(29)
    return found


def _cell_hashes(column: pa.Array) -> Hashes:
    """Return a hash of each cell; equal cells of one column have one hash. Shape: (rows,)."""
    kind = column.type
    if (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and kind.bit_width == 64:
        bits = column.view(pa.uint64()).fill_null(0).to_numpy(zero_copy_only=False)
        hashes = (bits + FACTOR) * FACTOR
    else:
        words = column if pa.types.is_dictionary(kind) else _plain(column).dictionary_encode()
        by_word = [hash(repr(word)) for word in _texts(words.dictionary)]
        known = np.array([*by_word, 0], dtype=np.int64).view(np.uint64)
        hashes = known[words.indices.fill_null(len(by_word)).to_numpy(zero_copy_only=False)]
    there = column.is_valid().to_numpy(zero_copy_only=False)
    return np.where(there, hashes, NULL)


def _plain(column: pa.Array) -> pa.Array:
    """Return a column that can be encoded by its distinct cells."""
    if pa.types.is_nested(column.type) or isinstance(column.type, pa.BaseExtensionType):
        return pa.array([None if cell is None else repr(cell) for cell in column.to_pylist()], pa.string())
    return column.view(pa.binary()) if pa.types.is_string(column.type) else column


def _texts(words: pa.Array) -> list[object]:
    """Return cells as Python values; text need not be UTF-8."""
    if pa.types.is_string(words.type):
        words = words.view(pa.binary())
    elif pa.types.is_large_string(words.type):
        words = words.view(pa.large_binary())
    found: list[object] = words.to_pylist()
    return found
