"""The digest of a stream of rows, whatever batches it comes in."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NULL = np.int64(-1)


class RowsDigest:
    """SHA-256 of the columns' names and types, and of each column: the lengths of its cells' texts, -1 where
    there is no cell, and the texts one after the other."""

    def __init__(self, schema: pa.Schema) -> None:
        self._begun = hashlib.sha256(schema.to_string().encode())
        self._columns = [(hashlib.sha256(), hashlib.sha256()) for _ in schema]

    def take(self, batch: pa.RecordBatch) -> None:
        """Go on with the next rows."""
        for column, (lengths, texts) in zip(batch.columns, self._columns, strict=True):
            cells = _texts(column)
            sizes = pc.binary_length(cells).to_numpy(zero_copy_only=False)
            lengths.update(np.where(column.is_null().to_numpy(zero_copy_only=False), NULL, sizes).tobytes())
            texts.update(_bytes(cells))

    def value(self) -> bytes:
        whole = self._begun.copy()
        for lengths, texts in self._columns:
            whole.update(lengths.digest() + texts.digest())
        return whole.digest()


def _texts(column: pa.Array) -> pa.Array:
    """Cells as bytes of text; none is empty. Floats become the shortest text that reads as the same float."""
    kind = column.type
    if pa.types.is_nested(kind):
        column = pa.array([None if cell is None else repr(cell) for cell in column.to_pylist()], pa.string())
    elif not any(test(kind) for test in (pa.types.is_binary, pa.types.is_string, pa.types.is_large_string)):
        column = pc.cast(column, pa.string())
    return pc.fill_null(pc.cast(column, pa.large_binary()), b"")


def _bytes(cells: pa.Array) -> memoryview:
    _, offsets, data = cells.buffers()
    if data is None or not len(cells):
        return memoryview(b"")
    ends = np.frombuffer(offsets, dtype=np.int64)[cells.offset : cells.offset + len(cells) + 1]
    return memoryview(data)[int(ends[0]) : int(ends[-1])]
