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
from eigenveil_client.records.table import UNREADABLE, BadRecords, LeaveOut, Table

MISSING = ("", "na", "n/a", "nan", "null")
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
    """Cells of a batch that cannot be read, and what they are. Shape: cells (rows,)."""

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
        nobody = np.zeros(len(self.values), dtype=np.bool_)
        return np.logical_or.reduce([nobody, *(fault.cells for fault in self.faults)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table, and what is done about its bad cells."""

    table: Table
    unreadable: Callable[[Unreadable], None] | None

    @property
    def told_of_lines(self) -> LeaveOut | None:
        """What is told how many lines are left out; None if such a file is refused."""
        tell = self.unreadable
        what = "another number of cells than the header has"
        return tell and (lambda lines: tell(Unreadable(column=None, cells=lines, first=0, what=what)))

    def tell(self, header: str, faults: Iterable[Fault], start: int) -> None:
        """Refuse or tell of the faults of a batch that begins at row `start` of the file."""
        for fault in faults:
            first = start + int(np.argmax(fault.cells))
            if self.unreadable is None:
                place = self.table.place(first)
                raise BadRecords(f"column {header!r}, {place}: {fault.what}", about=header)
            cells = int(fault.cells.sum())
            self.unreadable(Unreadable(column=header, cells=cells, first=first, what=fault.what))


def faults(cells: NDArray[np.bool_], what: str) -> tuple[Fault, ...]:
    """Of cells of which some may be bad."""
    return (Fault(cells=cells, what=what),) if cells.any() else ()


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
    return pc.utf8_trim_whitespace(cells), faults(bad, "text that is not UTF-8; save the file as UTF-8")


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
    except UNREADABLE:
        raise BadRecords(
            f"column {header!r} cannot be read as numbers or UTF-8 text; convert it", about=header
        ) from None


def numbers(header: str, column: pa.Array) -> Cells:
    """The cells of a batch as numbers.

    Raises:
        BadRecords: a column of a kind that holds neither numbers nor text.
    """
    with about(header):
        column = plain(column)
    kind, found = column.type, tuple[Fault, ...]()
    if any(test(kind) for test in TEXT):
        words, no_text = text(header, column)
        column, no_number = _parse(words)
        found = no_text + no_number
    elif not any(test(kind) for test in NUMERIC):
        raise BadRecords(f"column {header!r} holds {kind}, where numbers are due; convert it", about=header)
    with about(header):
        values: FloatArray = pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    infinite = np.isinf(values)
    found += faults(infinite, "an infinite number; mark it as missing or mend it")
    return Cells(values=np.where(infinite, np.nan, values), faults=found)


def _parse(text: pa.Array) -> tuple[pa.Array, tuple[Fault, ...]]:
    missing = pc.is_in(pc.utf8_lower(text), pa.array(MISSING))
    text = pc.if_else(missing, pa.scalar(None, pa.string()), text)
    with suppress(pa.ArrowInvalid):
        return pc.cast(text, pa.float64()), ()
    words = text.dictionary_encode()  # a word that is no number is often there many times
    numbers = _readable(words.dictionary).take(words.indices)
    bad = pc.and_(pc.is_null(numbers), pc.is_valid(text)).to_numpy(zero_copy_only=False)
    return numbers, faults(bad, "text where a number is due")


def _readable(words: pa.Array) -> pa.Array:
    """Text as numbers, by the same cast as where all are readable; what is none becomes null."""
    try:
        return pc.cast(words, pa.float64())
    except pa.ArrowInvalid:
        if len(words) == 1:
            return pa.nulls(1, pa.float64())
    half = len(words) // 2
    return pa.concat_arrays([_readable(words[:half]), _readable(words[half:])])
