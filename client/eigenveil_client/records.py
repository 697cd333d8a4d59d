"""A site's records, from a CSV or Parquet file onto a study's grid.

Columns are found by name. Messages name columns and lines, for the operator's eyes, and never a
value. With a person column, the rows of one person are one record: the first row in the
file stands for the person (also when it has a missing value and the study drops it). Which row that
is depends on that person's rows alone, so a person more or less changes one record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from eigenveil.grid import GridRows, to_grid
from eigenveil.ints import FloatArray
from eigenveil.study import Study
from eigenveil_client.tables import UNREADABLE, BadRecords, Table, open_table

MISSING = ("", "na", "n/a", "nan", "null")
TEXT = (pa.types.is_string, pa.types.is_large_string)
NUMERIC = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """Cells of one column in one batch that are taken as missing: how many, in which row of the file (from 0)
    the first is, and what it is."""

    column: str
    cells: int
    first: int
    what: str


def load(path: Path, study: Study, *, unreadable: Callable[[Unreadable], None] | None = None) -> GridRows:
    """The records of `path` on the study's grid. Shape: (n, d), d in the study's order.

    A cell that is empty, NA, N/A, NaN or null (in any case) is missing.

    A cell that is no finite number is an error; but where `unreadable` is given, it is told of such cells
    and they are missing, and a row that names no person is left out. Either way what becomes of a
    record depends on that record alone.

    Raises:
        BadRecords: naming the column and the line, or the file.
    """
    source = _Source(table=open_table(path), unreadable=unreadable)
    headers = match_columns(source.table.headers, study)
    first = _first_rows(source, study.person_column)
    parts: list[GridRows] = []
    start = 0
    for batch in source.table.batches(headers):
        values = np.column_stack(
            [_numbers(source, header, batch.column(i), start) for i, header in enumerate(headers)]
        )
        stop = start + len(values)
        _check_people(first, stop, more=True)
        parts.append(to_grid(values if first is None else values[first[start:stop]], study))
        start = stop
    _check_people(first, start, more=False)
    rows = np.concatenate(parts) if parts else np.empty((0, study.dimension), dtype=np.int16)
    rows.setflags(write=False)
    return rows


def _check_people(first: NDArray[np.bool_] | None, rows: int, *, more: bool) -> None:
    """A damaged Parquet file may hold more or fewer persons than measurements."""
    if first is not None and (rows > len(first) or (rows < len(first) and not more)):
        raise BadRecords("the columns of the records have different lengths; write the file anew")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A table, and what is done about its bad cells."""

    table: Table
    unreadable: Callable[[Unreadable], None] | None

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
    chunks = [_text(header, batch.column(0)) for batch in source.table.batches([header])]
    people = pa.chunked_array(chunks, type=pa.string()).combine_chunks()
    # Whatever says "missing" in a measurement names nobody here: else its rows were one person's.
    nobody = pc.is_in(pc.utf8_lower(people), value_set=pa.array((*MISSING, "-nan")))
    named = ~pc.fill_null(nobody, True).to_numpy(zero_copy_only=False)
    source.fault(header, ~named, 0, "no person is named; every row needs one")
    codes = pc.dictionary_encode(people, null_encoding="encode").indices.to_numpy(zero_copy_only=False)
    mask = np.zeros(len(codes), dtype=np.bool_)
    mask[np.unique(codes, return_index=True)[1]] = True
    mask &= named
    return mask


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _text(header: str, column: pa.Array) -> pa.Array:
    with _about(header):
        text = pc.cast(_plain(column), pa.string())
        text.validate(full=True)  # Parquet promises UTF-8 and keeps anything
        return pc.utf8_trim_whitespace(text)


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
        column = _parse(source, header, _text(header, column), start)
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
