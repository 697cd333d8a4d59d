"""Cells of a batch as numbers, text or words with a meaning to the site, and reports of unreadable ones. The
result for a cell depends on that cell alone. Messages name columns and lines, never a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil_client.records.tables.codes import MISSING, number
from eigenveil_client.records.tables.errors import UNREADABLE
from eigenveil_client.records.tables.source import BadRecords, Headers, OnLost, Source

TEXT = (pa.types.is_string, pa.types.is_large_string)
BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
NUMERIC = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)


# Called with the name of a column that has unreadable cells, which count as missing; None: lines are lost.
OnUnreadable = Callable[[str | None], None]


def ignore(column: str | None) -> None:
    """Handler that ignores columns with unreadable cells, and lost lines."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fault:
    """Unreadable cells of one column of a batch, and their fault. Shape: cells (rows,)."""

    header: str
    cells: NDArray[np.bool_]
    what: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnCells:
    """One column of a batch as float64, NaN where a value is missing, and the faults of its cells.

    Shape: values and unreadable (rows,). Unreadable cells are missing."""

    values: FloatArray
    faults: tuple[Fault, ...] = ()

    @property
    def unreadable(self) -> NDArray[np.bool_]:
        """True for values that are missing because their cells are unreadable."""
        bad: NDArray[np.bool_] = np.broadcast_to(np.False_, self.values.shape)  # takes no memory
        for fault in self.faults:
            bad = bad | fault.cells
        return bad


@dataclass(slots=True)
class LineTally:
    """Numbers of rows read so far, of those without a person, and of lines that were lost below: in the file,
    before they were rows."""

    rows: int = 0
    unnamed: int = 0
    lost_below: int = 0

    @property
    def lines(self) -> int:
        return self.rows + self.lost_below

    @property
    def lost(self) -> int:
        return self.unnamed + self.lost_below


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Source of records, and the handler of its bad cells (None: they are errors). `missing`: the words for
    "missing" in every column. `person`: the source's own name of the person column, if it has another.
    `tally`: of the lines, while they are read once."""

    table: Source
    unreadable: OnUnreadable | None
    missing: tuple[str, ...] = ()
    person: str = ""
    tally: LineTally = field(default_factory=LineTally)

    @property
    def headers(self) -> Headers:
        return Headers(self.table.headers)

    def person_header(self, person: str | None) -> str | None:
        """Return the header of the person column, which a study and the policy call `person`; None without
        one."""
        return None if person is None else self.headers.find_person(self.person or person)

    @property
    def on_lost(self) -> OnLost | None:
        """The handler of the number of lost lines of a file; None if such lines are an error."""
        return None if self.unreadable is None else self._add_lost

    def _add_lost(self, lines: int) -> None:
        assert self.unreadable is not None
        self.tally.lost_below += lines
        self.unreadable(None)

    def report_lost(self, faults: Iterable[Fault], start: int) -> None:
        """Report that lines of a batch are lost by these faults, or raise BadRecords, as `report`."""
        if self.unreadable is None:
            self.report(faults, start)
        elif any(fault.cells.any() for fault in faults):
            self.unreadable(None)

    def report(
        self, faults: Iterable[Fault], start: int, used: NDArray[np.bool_] | np.bool_ = np.True_
    ) -> None:
        """Report the faults of the `used` rows of a batch that begins at row `start` of the file, or raise
        BadRecords. A cell that several columns use is reported once."""
        bad: dict[tuple[str, str], NDArray[np.bool_]] = {}
        for fault in faults:
            about = fault.header, fault.what
            bad[about] = bad[about] | fault.cells if about in bad else fault.cells
        for (header, what), cells in bad.items():
            if not (used & cells).any():
                continue
            if self.unreadable is None:
                place = self.table.locations([start + int(np.argmax(used & cells))])[0]
                raise BadRecords(f"column {header!r}, {place}: {what}", about=header)
            self.unreadable(header)


def faults(header: str, cells: NDArray[np.bool_], what: str) -> tuple[Fault, ...]:
    """Return the fault of these cells, if any of them is bad."""
    return (Fault(header=header, cells=cells, what=what),) if cells.any() else ()


def plain(header: str, column: pa.Array) -> pa.Array:
    """Return a column without dictionary encoding."""
    with about(header):
        return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def text(header: str, column: pa.Array) -> tuple[pa.Array, tuple[Fault, ...]]:
    """Return a column of a batch as trimmed text; a cell that is not UTF-8 becomes null."""
    cells = plain(header, column)
    with about(header):
        if any(test(cells.type) for test in BYTES):  # a cast would fail for all cells at once
            cells = pc.cast(cells, pa.binary()).view(pa.string())
        cells = pc.cast(cells, pa.string())
    bad = _no_utf8(cells)
    if bad is None:
        return pc.utf8_trim_whitespace(cells), ()
    cells = pc.utf8_trim_whitespace(pc.if_else(pa.array(bad), pa.scalar(None, pa.string()), cells))
    return cells, faults(header, bad, "text that is not UTF-8. Save the file as UTF-8")


def _no_utf8(text: pa.Array) -> NDArray[np.bool_] | None:
    """Return True for cells that are not UTF-8; None if all are. Parquet files do not guarantee UTF-8."""
    with suppress(pa.ArrowInvalid):
        text.validate(full=True)
        return None
    cells = text.cast(pa.binary()).to_pylist()
    return np.array(
        [cell is not None and cell.decode(errors="ignore").encode() != cell for cell in cells], dtype=np.bool_
    )


@contextmanager
def about(header: str) -> Iterator[None]:
    """Raise an error of Arrow as BadRecords that names the column, and none of its cells."""
    try:
        yield
    except MemoryError:
        raise
    except UNREADABLE:
        raise BadRecords(
            f"column {header!r} cannot be read as numbers or UTF-8 text. Convert it", about=header
        ) from None


def readable(words: pa.Array) -> pa.Array:
    """Return text as numbers, null for other text; each word is parsed independently of the rest."""
    with suppress(pa.ArrowInvalid):
        return pc.cast(words, pa.float64())
    if len(words) == 1:
        return pa.nulls(1, pa.float64())
    half = len(words) // 2
    return pa.concat_arrays([readable(words[:half]), readable(words[half:])])


def code_positions(words: pa.Array, codes: tuple[str, ...]) -> IntArray:
    """Return the position of the code that each word equals, as text or as a number; -1 if none.

    Shape: (n,) -> (n,)."""
    found = pc.fill_null(pc.index_in(words, value_set=pa.array(codes, pa.string())), -1)
    same: IntArray = found.to_numpy(zero_copy_only=False).astype(np.int64)
    numbers = {value: position for position, code in enumerate(codes) if (value := number(code)) is not None}
    if numbers and (same < 0).any():
        values = readable(words).to_numpy(zero_copy_only=False)
        for value, position in numbers.items():
            same[(same < 0) & (values == value)] = position
    return same


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DistinctCells:
    """The cells of a column of text as its distinct words, and the index of each row's word.

    A word is null if it means missing. Words that are not numbers often occur many times.

    Shape: words (k,), indices (rows,), null where the cell is."""

    words: pa.Array
    indices: pa.Array

    @property
    def present(self) -> NDArray[np.bool_]:
        """True for words that are not missing. Shape: (k,)."""
        return np.asarray(self.words.is_valid().to_numpy(zero_copy_only=False))

    def values(self, word_values: FloatArray) -> FloatArray:
        """Return the value of each row, NaN if its cell is null. Shape: (k,) -> (rows,)."""
        numbers = pa.array(word_values, pa.float64()).take(self.indices)
        return np.asarray(numbers.to_numpy(zero_copy_only=False))

    def where(self, word_values: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return True for rows that have one of these words. Shape: (k,) -> (rows,)."""
        return np.asarray(self.values(np.where(word_values, 1.0, 0.0)) == 1)


def distinct(cells: pa.Array, codes: tuple[str, ...]) -> DistinctCells:
    """Return the distinct words of a column. Missing are the usual words for it and `codes`, in any case."""
    encoded = cells.dictionary_encode()
    words, lowered = encoded.dictionary, tuple(code.lower() for code in codes)
    missing = code_positions(pc.utf8_lower(words), (*MISSING, *lowered)) >= 0
    words = pc.if_else(pa.array(missing), pa.scalar(None, pa.string()), words)
    return DistinctCells(words=words, indices=encoded.indices)
