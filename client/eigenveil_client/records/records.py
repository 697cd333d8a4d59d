"""A site's records, from a file or a view onto a study's grid.

With a person column, the rows of one person are one record: the first row in the
file stands for the person (also when it has a missing value and the study drops it). Which row that
is depends on that person's rows alone, so a person more or less changes one record.

How many persons a file holds is counted before a study's rules drop any of them: nothing that an analyst
chooses bears on it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from eigenveil.site.quantize import to_grid
from eigenveil.study.grid import GridRows
from eigenveil.study.study import Study
from eigenveil_client.records.cells import MISSING, Reading, Unreadable, numbers, text
from eigenveil_client.records.config import RecordsConfig
from eigenveil_client.records.sources.opening import open_source
from eigenveil_client.records.table import BadRecords, LeaveOut, find_column, match_columns
from eigenveil_common.log import event
from eigenveil_common.threads import side_by_side

LINES = "(whole lines)"  # no column's name, where columns are listed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Records:
    """What a study sees of a file, and what no study's choices bear on.

    Shape: rows (n, d), the usable records on the study's grid, d in the study's order. `persons` are counted
    in the whole file, before a missing value drops any; n <= persons. `file` is the digest of all of it.
    """

    rows: GridRows
    persons: int
    file: bytes


def load(path: Path, study: Study, *, unreadable: Callable[[Unreadable], None] | None = None) -> GridRows:
    """The rows of `read`, in a file of which nothing else is said."""
    return read(RecordsConfig(source=path), study, unreadable=unreadable).rows


def read(
    said: RecordsConfig, study: Study, *, unreadable: Callable[[Unreadable], None] | None = None
) -> Records:
    """The records of a site.

    A cell that is empty, NA, N/A, NaN or null (in any case) is missing.

    A cell that is no finite number or no UTF-8 is an error, and a line with too many or too few cells; but
    where `unreadable` is given, it is told of them, such cells are missing, and such a line is left out, like
    a row that names no person. Either way what becomes of a record depends on that record alone.

    Raises:
        BadRecords: naming the column and the line, or the file.
    """
    source = Reading(table=open_source(said), unreadable=unreadable)
    file = source.table.digest()
    headers = match_columns(source.table.headers, study)
    first = _first_rows(source, study.person_column)
    parts: list[GridRows] = []
    start = 0
    for batch in source.table.batches(headers, source.told_of_lines):
        values = np.column_stack(
            [numbers(source, header, batch.column(i), start) for i, header in enumerate(headers)]
        )
        stop = start + len(values)
        _check_people(first, stop, more=True)
        parts.append(to_grid(values if first is None else values[first[start:stop]], study, side_by_side))
        start = stop
    _check_people(first, start, more=False)
    rows = np.concatenate(parts) if parts else np.empty((0, study.dimension), dtype=np.int16)
    rows.setflags(write=False)
    return Records(rows=rows, persons=start if first is None else int(first.sum()), file=file)


def _check_people(first: NDArray[np.bool_] | None, rows: int, *, more: bool) -> None:
    """A damaged Parquet file may hold more or fewer persons than measurements."""
    if first is not None and (rows > len(first) or (rows < len(first) and not more)):
        raise BadRecords("the columns of the records have different lengths; write the file anew")


def constant_columns(rows: GridRows, study: Study) -> list[str]:
    """Columns whose records all sit on one grid point: for the operator's eyes, never sent."""
    if len(rows) == 0:
        return []
    same = (rows == rows[0]).all(axis=0)
    return [column.name for column, constant in zip(study.columns, same, strict=True) if constant]


def _first_rows(source: Reading, person: str | None) -> NDArray[np.bool_] | None:
    """Which rows are the first of their person; None when every row is a person of its own."""
    if person is None:
        return None
    header = find_column(source.table.headers, person)
    chunks, start = [], 0
    # It is told of what is left out when the file is read for its numbers.
    quietly: LeaveOut | None = None if source.unreadable is None else lambda lines: None
    for batch in source.table.batches([header], quietly):
        chunks.append(text(source, header, batch.column(0), start))
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


class Reader:
    """Reads a site's records for its daemon: a cell that is no number is a missing value of its record, and a
    line with too many or too few cells is no record.

    One such cell must not show itself to the coordinator as a refusal; the operator is warned of its
    column, once, and finds the line with `eigenveil-site check`.
    """

    def __init__(self, said: RecordsConfig) -> None:
        self._said = said
        self._warned: set[str] = set()

    def __call__(self, study: Study) -> Records:
        """The records of a study. Raises as `read`."""
        found: set[str] = set()
        taken = read(self._said, study, unreadable=lambda cells: found.add(cells.column or LINES))
        if found - self._warned:
            event("cells-unreadable", logging.WARNING, columns=", ".join(sorted(found - self._warned)))
            self._warned |= found
        return taken
