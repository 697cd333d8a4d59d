"""Batches of rows: their sizes, blocks of one-byte integers, and Python values as cells of text. Wide tables
need no more memory than narrow ones. A cell of a one-byte block has one of 257 kinds. A Python value becomes
text by its own type, as one record's cell must not affect the others of its column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, time
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

BATCH_ROWS = 65_536
BATCH_CELLS = 2**23  # 64 MiB as float64
BATCH_BYTES = 2**26  # the same memory, for cells of one byte


def batch_rows(columns: int, *, one_byte: bool = False) -> int:
    """Return the number of rows in a batch of this many columns; `one_byte` if all are one-byte integers."""
    return max(1, min(BATCH_ROWS, (BATCH_BYTES if one_byte else BATCH_CELLS) // max(columns, 1)))


def whole_chunks(size: int, chunk: int) -> int:
    """Return `size`, rounded down to whole chunks if it holds one, as part of a chunk costs a whole one."""
    return size - size % chunk if chunk < size else size


VALUES = np.arange(256, dtype=np.uint8).view(np.int8)  # of each byte from 0 to 255
MISSING = len(VALUES)
KINDS = MISSING + 1
Kinds = NDArray[np.intp]


class ArrowBytes:
    """Block of the columns of a batch; `headers` are those that hold bytes."""

    def __init__(self, batch: pa.RecordBatch, headers: Sequence[str]) -> None:
        self._columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        self._headers = headers
        self.rows = int(batch.num_rows)

    def kinds(self, start: int, stop: int) -> Kinds:
        """Return the cells of some columns, as a new array of indices of VALUES, or MISSING.

        Shape: (stop - start, rows)."""
        found = np.zeros((stop - start, self.rows), dtype=np.intp)
        if not self.rows:
            return found
        for out, header in zip(found, self._headers[start:stop], strict=True):
            column = self._columns[header]
            bits, data = column.buffers()
            out[:] = np.frombuffer(data, dtype=np.uint8, count=self.rows, offset=column.offset)
            if bits is not None:
                there = np.unpackbits(np.frombuffer(bits, dtype=np.uint8), bitorder="little")
                out[there[column.offset :][: self.rows] == 0] = MISSING
        return found

    def texts(self, header: str) -> pa.Array:
        """Return the cells of a column of text. Shape: (rows,)."""
        return self._columns[header]


TEXT_BATCH_ROWS = 16_384
MIDNIGHT = time()


def text_of(value: Any, decimal: str = ".") -> bytes | None:
    """Return a cell as text, with the stated decimal mark. A whole number has none; bytes are unchanged."""
    match value:
        case None | bytes():
            return value
        case float() if value.is_integer():
            return b"%d" % int(value)
        case datetime() if value.time() == MIDNIGHT:
            return value.date().isoformat().encode()
        case datetime():
            return value.isoformat(sep=" ").encode()
        case float():
            return repr(value).replace(".", decimal).encode()
        case _:
            return str(value).encode(errors="replace")


def text_batches(
    headers: Sequence[str], rows: Iterator[Sequence[Any]], decimal: str
) -> Iterator[pa.RecordBatch]:
    """Yield batches of rows, which have one cell for each header."""
    while piece := list(islice(rows, TEXT_BATCH_ROWS)):
        columns = [
            pa.array((text_of(cell, decimal) for cell in cells), pa.binary())
            for cells in zip(*piece, strict=True)
        ]
        yield pa.record_batch([column.view(pa.string()) for column in columns], names=list(headers))


def text_schema(headers: Sequence[str]) -> pa.Schema:
    return pa.schema([(header, pa.string()) for header in headers])
