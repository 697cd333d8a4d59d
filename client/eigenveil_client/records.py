"""A site's records, from a CSV or Parquet file onto a study's grid.

Columns are found by name. Messages name columns and lines, never a value: they go to logs, and
values do not. With a person column, the rows of one person are one record: the first row in the
file stands for the person (also when it has a missing value and the study drops it). Which row that
is depends on that person's rows alone, so a person more or less changes one record.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from eigenveil.errors import Code, RequestError
from eigenveil.grid import GridRows, to_grid
from eigenveil.ints import FloatArray
from eigenveil.study import Study
from eigenveil_client.tables import Table, open_table

MISSING = ("", "na", "n/a", "nan", "null")
NUMERIC = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)


def load(path: Path, study: Study) -> GridRows:
    """The records of `path` on the study's grid. Shape: (n, d), d in the study's order.

    A cell that is empty, NA, N/A, NaN or null (in any case) is missing.

    Raises:
        RequestError: code `bad-data`, naming the column and the line, or the file.
    """
    table = open_table(path)
    headers = match_columns(table.headers, study)
    first = _first_rows(table, study.person_column)
    parts: list[GridRows] = []
    start = 0
    for batch in table.batches(headers):
        values = np.column_stack(
            [_numbers(table, header, batch.column(i), start) for i, header in enumerate(headers)]
        )
        stop = start + len(values)
        parts.append(to_grid(values if first is None else values[first[start:stop]], study))
        start = stop
    rows = np.concatenate(parts) if parts else np.empty((0, study.dimension), dtype=np.int16)
    rows.setflags(write=False)
    return rows


def constant_columns(rows: GridRows, study: Study) -> list[str]:
    """Columns whose records all sit on one grid point: for the operator's eyes, never sent."""
    if len(rows) == 0:
        return []
    same = (rows == rows[0]).all(axis=0)
    return [column.name for column, constant in zip(study.columns, same, strict=True) if constant]


def match_columns(headers: tuple[str, ...], study: Study) -> list[str]:
    """The file's header for each column of the study, in the study's order.

    Raises:
        RequestError: a column is missing or there twice, or its unit in brackets is another one.
    """
    found = [_header(headers, column.name, column.unit) for column in study.columns]
    if study.person_column is not None:
        _header(headers, study.person_column, None)
    return found


def name_and_unit(header: str) -> tuple[str, str | None]:
    """`glucose [mmol/L]` is the column glucose in mmol/L; without brackets there is no unit."""
    name, bracket, unit = header.strip().rpartition("[")
    if not bracket or not unit.endswith("]") or not name.strip():
        return header.strip(), None
    return name.strip(), unit[:-1].strip()


def _header(headers: tuple[str, ...], name: str, unit: str | None) -> str:
    fits = [h for h in headers if h.strip() == name or name_and_unit(h)[0] == name]
    if not fits:
        hint = " (is the file separated by commas?)" if len(headers) == 1 else ""
        raise RequestError(
            Code.BAD_DATA, f"the records have no column {name!r}{hint}; add it, or decline the study"
        )
    if len(fits) > 1:
        raise RequestError(Code.BAD_DATA, f"the records have {len(fits)} columns {name!r}; keep one")
    stated = None if fits[0].strip() == name else name_and_unit(fits[0])[1]
    if unit is not None and stated is not None and stated != unit:
        raise RequestError(
            Code.BAD_DATA,
            f"column {name!r} is in {stated!r} in the records and in {unit!r} in the study; convert it",
        )
    return fits[0]


def _first_rows(table: Table, person: str | None) -> NDArray[np.bool_] | None:
    """Which rows are the first of their person; None when every row is a person of its own."""
    if person is None:
        return None
    header = _header(table.headers, person, None)
    chunks = [_text(batch.column(0)) for batch in table.batches([header])]
    people = pa.chunked_array(chunks, type=pa.string()).combine_chunks()
    nobody = pc.fill_null(pc.is_in(people, pa.array(["", None], pa.string())), True)
    if pc.any(nobody).as_py():
        row = int(np.argmax(nobody.to_numpy(zero_copy_only=False)))
        raise RequestError(
            Code.BAD_DATA,
            f"column {person!r}, {table.place(row)}: no person is named; every row needs one",
        )
    codes = pc.dictionary_encode(people).indices.to_numpy(zero_copy_only=False)
    mask = np.zeros(len(codes), dtype=np.bool_)
    mask[np.unique(codes, return_index=True)[1]] = True
    return mask


def _text(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return pc.utf8_trim_whitespace(pc.cast(column, pa.string()))


def _numbers(table: Table, header: str, column: pa.Array, start: int) -> FloatArray:
    """One column of a batch as float64, missing as NaN. `start` is the batch's first row in the file."""
    kind = column.type
    if pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = _parse(table, header, _text(column), start)
    elif not any(test(kind) for test in NUMERIC):
        raise RequestError(
            Code.BAD_DATA, f"column {header!r} holds {kind}, where numbers are due; convert it"
        )
    values: FloatArray = pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    infinite = np.isinf(values)
    if infinite.any():
        raise RequestError(
            Code.BAD_DATA,
            f"column {header!r}, {table.place(start + int(np.argmax(infinite)))}: an infinite number; "
            "mark it as missing or mend it",
        )
    return values


def _parse(table: Table, header: str, text: pa.Array, start: int) -> pa.Array:
    missing = pc.is_in(pc.utf8_lower(text), pa.array(MISSING))
    text = pc.if_else(missing, pa.scalar(None, pa.string()), text)
    try:
        return pc.cast(text, pa.float64())
    except pa.ArrowInvalid:
        row = start + next(i for i, cell in enumerate(text) if not _is_number(cell))
    # Outside the `except`, so that Arrow's message, which quotes the cell, is not chained to ours.
    raise RequestError(Code.BAD_DATA, f"column {header!r}, {table.place(row)}: text where a number is due")


def _is_number(cell: pa.Scalar) -> bool:
    try:
        pc.cast(cell, pa.float64())
    except pa.ArrowInvalid:
        return False
    return True
