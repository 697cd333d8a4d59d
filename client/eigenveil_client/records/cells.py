"""The cells of a batch as numbers or text, and what is said of those that are neither.

What becomes of a cell depends on that cell alone. Messages name columns and lines, and never a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from eigenveil.numerics.encoding import FloatArray
from eigenveil_client.records.table import UNREADABLE, BadRecords, LeaveOut, Source

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

    def fault(self, header: str, bad: NDArray[np.bool_], start: int, what: str) -> None:
        """Refuse or tell if there are `bad` cells in a batch that begins at row `start` of the file."""
        if not bad.any():
            return
        first = start + int(np.argmax(bad))
        if self.unreadable is None:
            raise BadRecords(f"column {header!r}, {self.table.place(first)}: {what}", about=header)
        self.unreadable(Unreadable(column=header, cells=int(bad.sum()), first=first, what=what))


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def text(source: Reading, header: str, column: pa.Array, start: int) -> pa.Array:
    """A column of a batch as trimmed text; a cell that is no UTF-8 becomes null."""
    with _about(header):
        plain = _plain(column)
        if any(test(plain.type) for test in BYTES):  # a cast would look at all cells at once
            plain = pc.cast(plain, pa.binary()).view(pa.string())
        text = pc.cast(plain, pa.string())
    bad = _no_utf8(text)
    if bad is not None:
        source.fault(header, bad, start, "text that is not UTF-8; save the file as UTF-8")
        text = pc.if_else(pa.array(bad), pa.scalar(None, pa.string()), text)
    return pc.utf8_trim_whitespace(text)


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
def _about(header: str) -> Iterator[None]:
    """Name the column that Arrow can make nothing of, and not what is in it."""
    try:
        yield
    except UNREADABLE:
        raise BadRecords(
            f"column {header!r} cannot be read as numbers or UTF-8 text; convert it", about=header
        ) from None


def numbers(source: Reading, header: str, column: pa.Array, start: int) -> FloatArray:
    """One column of a batch as float64, missing as NaN. `start` is the batch's first row in the file."""
    with _about(header):
        column = _plain(column)
    kind = column.type
    if any(test(kind) for test in TEXT):
        column = _parse(source, header, text(source, header, column, start), start)
    elif not any(test(kind) for test in NUMERIC):
        raise BadRecords(f"column {header!r} holds {kind}, where numbers are due; convert it", about=header)
    with _about(header):
        values: FloatArray = pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    infinite = np.isinf(values)
    source.fault(header, infinite, start, "an infinite number; mark it as missing or mend it")
    return np.where(infinite, np.nan, values)


def _parse(source: Reading, header: str, text: pa.Array, start: int) -> pa.Array:
    missing = pc.is_in(pc.utf8_lower(text), pa.array(MISSING))
    text = pc.if_else(missing, pa.scalar(None, pa.string()), text)
    with suppress(pa.ArrowInvalid):
        return pc.cast(text, pa.float64())
    words = text.dictionary_encode()  # a word that is no number is often there many times
    numbers = _readable(words.dictionary).take(words.indices)
    bad = pc.and_(pc.is_null(numbers), pc.is_valid(text)).to_numpy(zero_copy_only=False)
    source.fault(header, bad, start, "text where a number is due")
    return numbers


def _readable(words: pa.Array) -> pa.Array:
    """Text as numbers, by the same cast as where all are readable; what is none becomes null."""
    try:
        return pc.cast(words, pa.float64())
    except pa.ArrowInvalid:
        if len(words) == 1:
            return pa.nulls(1, pa.float64())
    half = len(words) // 2
    return pa.concat_arrays([_readable(words[:half]), _readable(words[half:])])
