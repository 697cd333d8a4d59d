"""The cells of a batch as numbers or text, and what is said of those that are neither.

What becomes of a cell depends on that cell alone. Messages name columns and lines, and never a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from eigenveil.numerics.encoding import FloatArray
from eigenveil_client.records.tables.table import UNREADABLE, BadRecords, LeaveOut, Source

MISSING = ("", "na", "n/a", "nan", "-nan", "null")
TEXT = (pa.types.is_string, pa.types.is_large_string)
BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
NUMERIC = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """Cells of one column in one batch that are taken as missing: how many, in which row of the file (from 0)
    the first is, and what it is. Without a column: lines of the file that are left out."""

    column: str | None
    cells: int
    first: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fault:
    """Cells of one column of a batch that cannot be read, and what they are. Shape: cells (rows,)."""

    header: str
    cells: NDArray[np.bool_]
    what: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells:
    """One column of a batch as float64, NaN where a value is missing, and why some of them are.

    Shape: values and unreadable (rows,). What cannot be read is missing.
    """

    values: FloatArray
    faults: tuple[Fault, ...] = ()

    @property
    def unreadable(self) -> NDArray[np.bool_]:
        """Which values are missing because their cells cannot be read."""
        bad = np.zeros(len(self.values), dtype=np.bool_)
        for fault in self.faults:
            bad |= fault.cells
        return bad


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A source of records, and what is done about its bad cells."""

    table: Source
    unreadable: Callable[[Unreadable], None] | None

    @property
    def told_of_lines(self) -> LeaveOut | None:
        """What is told how many lines are left out; None if such a file is refused."""
        tell = self.unreadable
        what = "another number of cells than the header has"
        return tell and (lambda lines: tell(Unreadable(column=None, cells=lines, first=0, what=what)))

    def tell(self, faults: Iterable[Fault], start: int) -> None:
        """Refuse or tell of the faults of a batch that begins at row `start` of the file; of a cell that
        several columns are made of, once."""
        bad: dict[tuple[str, str], NDArray[np.bool_]] = {}
        for fault in faults:
            about = fault.header, fault.what
            bad[about] = bad[about] | fault.cells if about in bad else fault.cells
        for (header, what), cells in bad.items():
            first = start + int(np.argmax(cells))
            if self.unreadable is None:
                raise BadRecords(f"column {header!r}, {self.table.place(first)}: {what}", about=header)
            self.unreadable(Unreadable(column=header, cells=int(cells.sum()), first=first, what=what))


def faults(header: str, cells: NDArray[np.bool_], what: str) -> tuple[Fault, ...]:
    """Of cells of which some may be bad."""
    return (Fault(header=header, cells=cells, what=what),) if cells.any() else ()


def plain(column: pa.Array) -> pa.Array:
    """The cells themselves, where Arrow holds words and where they stand."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def text(header: str, column: pa.Array) -> tuple[pa.Array, tuple[Fault, ...]]:
    """A column of a batch as trimmed text; a cell that is no UTF-8 becomes null."""
    with about(header):
        cells = plain(column)
        if any(test(cells.type) for test in BYTES):  # a cast would look at all cells at once
            cells = pc.cast(cells, pa.binary()).view(pa.string())
        cells = pc.cast(cells, pa.string())
    bad = _no_utf8(cells)
    if bad is None:
        return pc.utf8_trim_whitespace(cells), ()
    cells = pc.if_else(pa.array(bad), pa.scalar(None, pa.string()), cells)
    found = faults(header, bad, "text that is not UTF-8; save the file as UTF-8")
    return pc.utf8_trim_whitespace(cells), found


def _no_utf8(text: pa.Array) -> NDArray[np.bool_] | None:
    """Which cells are no UTF-8; None if all are. Parquet promises UTF-8 and keeps anything, as CSV does."""
    with suppress(pa.ArrowInvalid):
        text.validate(full=True)
        return None
    cells = text.cast(pa.binary()).to_pylist()
    return np.array(
        [cell is not None and cell.decode(errors="ignore").encode() != cell for cell in cells], dtype=np.bool_
    )


@contextmanager
def about(header: str) -> Iterator[None]:
    """Name the column that Arrow can make nothing of, and not what is in it."""
    try:
        yield
    except MemoryError:
        raise
    except UNREADABLE:
        raise BadRecords(
            f"column {header!r} cannot be read as numbers or UTF-8 text; convert it", about=header
        ) from None


def readable(words: pa.Array) -> pa.Array:
    """Text as numbers; what is none becomes null, and nothing that stands beside a word changes it."""
    with suppress(pa.ArrowInvalid):
        return pc.cast(words, pa.float64())
    if len(words) == 1:
        return pa.nulls(1, pa.float64())
    half = len(words) // 2
    return pa.concat_arrays([readable(words[:half]), readable(words[half:])])
