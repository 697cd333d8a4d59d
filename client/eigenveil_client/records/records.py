"""A site's records, from a CSV or Parquet file onto a study's grid.

Columns are found by name. Messages name columns and lines, for the operator's eyes, and never a
value. With a person column, the rows of one person are one record: the first row in the
file stands for the person (also when it has a missing value and the study drops it). Which row that
is depends on that person's rows alone, so a person more or less changes one record.

How many persons a file holds is counted before a study's rules drop any of them: nothing that an analyst
chooses bears on it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from eigenveil.numerics.encoding import FloatArray
from eigenveil.site.quantize import to_grid
from eigenveil.study.grid import GridRows
from eigenveil.study.study import Study
from eigenveil_client.records.tables import UNREADABLE, BadRecords, LeaveOut, Table, open_table
from eigenveil_common.threads import side_by_side

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
class Records:
    """What a study sees of a file, and what no study's choices bear on.

    Shape: rows (n, d), the usable records on the study's grid, d in the study's order. `persons` are counted
    in the whole file, before a missing value drops any; n <= persons. `file` is the SHA-256 of the file.
    """

    rows: GridRows
    persons: int
    file: bytes


def load(path: Path, study: Study, *, unreadable: Callable[[Unreadable], None] | None = None) -> GridRows:
    """The rows of `read`."""
    return read(path, study, unreadable=unreadable).rows


def read(path: Path, study: Study, *, unreadable: Callable[[Unreadable], None] | None = None) -> Records:
    """The records of `path`.

    A cell that is empty, NA, N/A, NaN or null (in any case) is missing.

    A cell that is no finite number or no UTF-8 is an error, and a line with too many or too few cells; but
    where `unreadable` is given, it is told of them, such cells are missing, and such a line is left out, like
    a row that names no person. Either way what becomes of a record depends on that record alone.

    Raises:
        BadRecords: naming the column and the line, or the file.
    """
    source = _Source(table=open_table(path), unreadable=unreadable)
    file = _digest(path)
    headers = match_columns(source.table.headers, study)
    first = _first_rows(source, study.person_column)
    parts: list[GridRows] = []
    start = 0
    for batch in source.table.batches(headers, source.told_of_lines):
        values = np.column_stack(
            [_numbers(source, header, batch.column(i), start) for i, header in enumerate(headers)]
        )
        stop = start + len(values)
        _check_people(first, stop, more=True)
        parts.append(to_grid(values if first is None else values[first[start:stop]], study, side_by_side))
        start = stop
    _check_people(first, start, more=False)
    rows = np.concatenate(parts) if parts else np.empty((0, study.dimension), dtype=np.int16)
    rows.setflags(write=False)
    return Records(rows=rows, persons=start if first is None else int(first.sum()), file=file)


def _digest(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as problem:
        raise BadRecords(f"cannot read {path}: {problem.strerror}") from None


def _check_people(first: NDArray[np.bool_] | None, rows: int, *, more: bool) -> None:
    """A damaged Parquet file may hold more or fewer persons than measurements."""
    if first is not None and (rows > len(first) or (rows < len(first) and not more)):
        raise BadRecords("the columns of the records have different lengths; write the file anew")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A table, and what is done about its bad cells."""

    table: Table
    unreadable: Callable[[Unreadable], None] | None

    @property
    def told_of_lines(self) -> LeaveOut | None:
        """What is told how many lines are left out; None if such a file is refused."""
        tell = self.unreadable
        what = "another number of cells than the header has"
        return tell and (lambda lines: tell(Unreadable(column=None, cells=lines, first=0, what=what)))

    @property
    def quietly(self) -> LeaveOut | None:
        """The same for a file that is read once more."""
        return self.unreadable and (lambda lines: None)

    def fault(self, header: str, bad: NDArray[np.bool_], start: int, what: str) -> None:
        """Refuse or tell if there are `bad` cells in a batch that begins at row `start` of the file."""
        if not bad.any():
            return
        first = start + int(np.argmax(bad))
        if self.unreadable is None:
            raise BadRecords(f"column {header!r}, {self.table.place(first)}: {what}", about=header)
        self.unreadable(Unreadable(column=header, cells=int(bad.sum()), first=first, what=what))


def constant_columns(rows: GridRows, study: Study) -> list[str]:
    """Columns whose records all sit on one grid point: for the operator's eyes, never sent."""
    if len(rows) == 0:
        return []
    same = (rows == rows[0]).all(axis=0)
    return [column.name for column, constant in zip(study.columns, same, strict=True) if constant]


def match_columns(headers: tuple[str, ...], study: Study) -> list[str]:
    """The file's header for each column of the study, in the study's order.

    Raises:
        BadRecords: a column is missing or there twice, or its unit in brackets is another one.
    """
    found = [find_column(headers, column.name, column.unit) for column in study.columns]
    if study.person_column is not None:
        find_column(headers, study.person_column)
    return found


def name_and_unit(header: str) -> tuple[str, str | None]:
    """`glucose [mmol/L]` is the column glucose in mmol/L; without brackets there is no unit."""
    name, bracket, unit = header.strip().rpartition("[")
    if not bracket or not unit.endswith("]") or not name.strip():
        return header.strip(), None
    return name.strip(), unit[:-1].strip()


def find_column(headers: tuple[str, ...], name: str, unit: str | None = None) -> str:
    """The file's header for the column `name`, in `unit` if that is given.

    Raises:
        BadRecords: as `match_columns`.
    """
    fits = [h for h in headers if h.strip() == name or name_and_unit(h)[0] == name]
    if not fits:
        hint = " (is the file separated by commas?)" if len(headers) == 1 else ""
        raise BadRecords(f"the records have no column {name!r}{hint}; add it", about=name)
    if len(fits) > 1:
        raise BadRecords(f"the records have {len(fits)} columns {name!r}; keep one", about=name)
    stated = None if fits[0].strip() == name else name_and_unit(fits[0])[1]
    if unit is not None and stated is not None and stated != unit:
        raise BadRecords(
            f"column {name!r} is in {stated!r} in the records and in {unit!r} in the study; convert it",
            about=name,
        )
    return fits[0]


def _first_rows(source: _Source, person: str | None) -> NDArray[np.bool_] | None:
    """Which rows are the first of their person; None when every row is a person of its own."""
    if person is None:
        return None
    header = find_column(source.table.headers, person)
    chunks, start = [], 0
    for batch in source.table.batches([header], source.quietly):
        chunks.append(_text(source, header, batch.column(0), start))
        start += batch.num_rows
    people = pa.chunked_array(chunks, type=pa.string()).combine_chunks()
    # Whatever says "missing" in a measurement names nobody here: else its rows were one person's.
    nobody = pc.is_in(pc.utf8_lower(people), value_set=pa.array((*MISSING, "-nan", None)))
    named = ~nobody.to_numpy(zero_copy_only=False)
    source.fault(header, ~named, 0, "no person is named; every row needs one")
    codes = pc.dictionary_encode(people, null_encoding="encode").indices.to_numpy(zero_copy_only=False)
    mask = np.zeros(len(codes), dtype=np.bool_)
    mask[np.unique(codes, return_index=True)[1]] = True
    mask &= named
    return mask


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _text(source: _Source, header: str, column: pa.Array, start: int) -> pa.Array:
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
    return np.array([cell is not None and not _is_utf8(cell) for cell in cells], dtype=np.bool_)


def _is_utf8(cell: bytes) -> bool:
    try:
        cell.decode()
    except UnicodeDecodeError:
        return False
    return True


@contextmanager
def _about(header: str) -> Iterator[None]:
    """Name the column that Arrow can make nothing of, and not what is in it."""
    try:
        yield
    except UNREADABLE:
        raise BadRecords(
            f"column {header!r} cannot be read as numbers or UTF-8 text; convert it", about=header
        ) from None


def _numbers(source: _Source, header: str, column: pa.Array, start: int) -> FloatArray:
    """One column of a batch as float64, missing as NaN. `start` is the batch's first row in the file."""
    with _about(header):
        column = _plain(column)
    kind = column.type
    if any(test(kind) for test in TEXT):
        column = _parse(source, header, _text(source, header, column, start), start)
    elif not any(test(kind) for test in NUMERIC):
        raise BadRecords(f"column {header!r} holds {kind}, where numbers are due; convert it", about=header)
    with _about(header):
        values: FloatArray = pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    infinite = np.isinf(values)
    source.fault(header, infinite, start, "an infinite number; mark it as missing or mend it")
    return np.where(infinite, np.nan, values)


def _parse(source: _Source, header: str, text: pa.Array, start: int) -> pa.Array:
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
