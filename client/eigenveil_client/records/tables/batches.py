"""How many rows are read at a time, so that wide tables need no more memory than narrow ones."""

from __future__ import annotations

BATCH_ROWS = 65_536
BATCH_CELLS = 2**23  # 64 MiB as float64
BATCH_BYTES = 2**26  # the same, where a cell stays one byte


def batch_rows(columns: int, *, one_byte: bool = False) -> int:
    """Rows of so many columns to read at a time; `one_byte` if all of them are integers of one byte."""
    return max(1, min(BATCH_ROWS, (BATCH_BYTES if one_byte else BATCH_CELLS) // max(columns, 1)))


def whole_chunks(size: int, chunk: int) -> int:
    """At most `size`, and whole chunks if it holds any: a part of one costs as much to read as all of it."""
    return size - size % chunk if chunk < size else size
