"""Cells that are Python's values, each of its own type, as the text that a file of them would hold.

Which type a column has is not asked: one record's cell would decide about the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, time
from itertools import islice
from typing import Any

import pyarrow as pa

BATCH_ROWS = 16_384
MIDNIGHT = time()


def text_of(value: Any, decimal: str = ".") -> bytes | None:
    """A cell as text, with the decimal mark that is stated for cells which are text already; a whole number
    has none, whatever type holds it. Bytes stay as they are."""
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
    """Rows of as many cells as there are headers."""
    while piece := list(islice(rows, BATCH_ROWS)):
        columns = [
            pa.array((text_of(cell, decimal) for cell in cells), pa.binary())
            for cells in zip(*piece, strict=True)
        ]
        yield pa.record_batch([column.view(pa.string()) for column in columns], names=list(headers))


def text_schema(headers: Sequence[str]) -> pa.Schema:
    return pa.schema([(header, pa.string()) for header in headers])
