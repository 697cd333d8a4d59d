"""Blocks of rows whose cells are integers of one byte: what a cell is, is one of 257 things."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

VALUES = np.arange(256, dtype=np.uint8).view(np.int8)  # of a byte, in the order of its bits
MISSING = len(VALUES)
KINDS = MISSING + 1
Kinds = NDArray[np.intp]


class ByteBlock(Protocol):
    """Some rows of a table."""

    @property
    def rows(self) -> int:
        """How many there are."""

    def kinds(self, start: int, stop: int) -> Kinds:
        """The cells of the columns from `start` to `stop`: a value by its place in VALUES, or MISSING; a new
        array. Shape: (stop - start, rows)."""

    def texts(self, header: str) -> pa.Array:
        """The cells of a column of text. Shape: (rows,)."""


class ArrowBytes:
    """The columns of a batch, by the headers of those that hold bytes."""

    def __init__(self, batch: pa.RecordBatch, headers: Sequence[str]) -> None:
        self._columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        self._headers = headers
        self.rows = int(batch.num_rows)

    def kinds(self, start: int, stop: int) -> Kinds:
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
        return self._columns[header]
