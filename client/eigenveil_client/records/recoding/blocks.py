"""Blocks of persons: a source after the site's rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from eigenveil_client.records.recoding.column_parser import ColumnParser
from eigenveil_client.records.recoding.gather import PersonValues, gather
from eigenveil_client.records.recoding.persons import (
    SPILLED,
    NamedRows,
    Persons,
    SpilledRows,
    named,
    row_by_row,
)
from eigenveil_client.records.scratch_files import SYSTEM, Scratch
from eigenveil_client.records.tables.cells import Cells, Reading, faults, text
from eigenveil_client.records.tables.source import find_column

BLOCK = 65_536  # persons
GATHERED = 2**27  # bytes of memory for persons whose rows are gathered
A_PERSON, A_NUMBER = 256, 40  # bytes: a name and its number; one value under any rule
LEVELS = 8  # of spills: 2^80 partitions

ParsedColumns = list[tuple[Cells, Cells | None]]  # of each parser: its cells, and their dates if it has any


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rows:
    """Rows of a batch: the names of their persons (null: none), and the cells of each parser."""

    names: pa.Array
    found: ParsedColumns


def blocks(
    reading: Reading, parsers: Sequence[ColumnParser], person: str | None, scratch: Scratch = SYSTEM
) -> Iterator[list[PersonValues]]:
    """Yield blocks of persons, with the values of each parser. Every person comes once [P30].

    Without a person column, a block is a batch of rows, in the file's order. Otherwise persons who do not fit
    into memory are spilled to `scratch`, and come later. If the first row in the file is each person's
    record, a block holds the new persons of a batch. Else all persons in memory stay there until the last
    row, with one number for each parser (a few for a mean), and come in the order of their names. The same
    source gives the same order, which has no meaning.

    Shape: each measure's arrays have the length of the block.
    """
    header = None if person is None else find_column(reading.table.headers, person)
    rows = _measured(reading, parsers, header)
    if header is not None:
        yield from _gathered(rows, parsers, scratch, 0)
        return
    for batch in rows:
        gathers, row_persons = [gather(parser.rule) for parser in parsers], row_by_row(len(batch.names))
        for one, (cells, when) in zip(gathers, batch.found, strict=True):
            one.add(row_persons, cells, when)
        yield [one.take(row_persons.persons) for one in gathers]


def _measured(reading: Reading, parsers: Sequence[ColumnParser], header: str | None) -> Iterator[_Rows]:
    """Yield the source as numbers, batch by batch. Bad cells and rows without a person are reported."""
    headers = list(dict.fromkeys([h for m in parsers for h in m.headers] + ([header] if header else [])))
    start = 0
    for batch in reading.table.batches(headers, reading.line_handler):
        columns = dict(zip(headers, batch.columns, strict=True))
        names = pa.nulls(batch.num_rows, pa.string())
        if header is not None:
            names = named_persons(reading, header, columns[header], start)
        found = [(one.cells(columns, reading.table.dialect), one.when(columns)) for one in parsers]
        reading.report([bad for pair in found for cells in pair if cells for bad in cells.faults], start)
        start += batch.num_rows
        yield _Rows(names=names, found=found)


def named_persons(reading: Reading, header: str, column: pa.Array, start: int) -> pa.Array:
    """Return the names of the persons of rows from `start` on. A row without one is null, and reported."""
    words, bad = text(header, column)
    names = named(words)
    unnamed = names.is_null().to_numpy(zero_copy_only=False)
    reading.report((*bad, *faults(header, unnamed, "no person is named. Every row needs a person")), start)
    return names


def _gathered(
    batches: Iterable[_Rows], parsers: Sequence[ColumnParser], scratch: Scratch, level: int
) -> Iterator[list[PersonValues]]:
    """Yield the persons of some rows: those who fit into memory, then those spilled, by partition."""
    width = len(parsers) + sum(one.by is not None for one in parsers)
    most = max(1, GATHERED // (A_PERSON + A_NUMBER * width)) if level < LEVELS else 2**62
    persons, gathers, spilled_rows = Persons(most), [gather(one.rule) for one in parsers], None
    at_once = all(one.rule.rows is None for one in parsers)
    for rows in batches:
        row_persons = persons.row_persons(rows.names)
        for one, (cells, when) in zip(gathers, rows.found, strict=True):
            one.add(row_persons, cells, when)
        spilled = np.flatnonzero(row_persons.person_numbers == SPILLED)
        if len(spilled):
            spilled_rows = spilled_rows or SpilledRows(scratch, width, level)
            spilled_rows.add(_numbers(rows).only(spilled))
        if at_once:
            yield [one.take(row_persons.persons) for one in gathers]
    if not at_once:
        whole, order = [one.take(len(persons)) for one in gathers], persons.by_name()
        for first in range(0, len(order), BLOCK):
            here = order[first : first + BLOCK]
            yield [(values[here], unreadable[here]) for values, unreadable in whole]
        del whole, order
    del persons, gathers  # frees memory for the spilled persons
    if spilled_rows is not None:
        with closing(spilled_rows):
            for partition in spilled_rows.partitions():
                yield from _gathered((_rows(one, parsers) for one in partition), parsers, scratch, level + 1)


def _numbers(rows: _Rows) -> NamedRows:
    """Return rows as numbers, to be spilled."""
    cells = [one for pair in rows.found for one in pair if one is not None]
    return NamedRows(
        names=rows.names,
        numbers=np.column_stack([one.values for one in cells]),
        unreadable=np.column_stack([one.unreadable for one in cells]),
    )


def _rows(spilled_rows: NamedRows, parsers: Sequence[ColumnParser]) -> _Rows:
    """Return the rows that `_numbers` was made of. Their faults were reported before."""
    columns = iter(zip(spilled_rows.numbers.T, spilled_rows.unreadable.T, strict=True))

    def cells(header: str) -> Cells:
        values, unreadable = next(columns)
        return Cells(values=values, faults=faults(header, unreadable, ""))

    found: ParsedColumns = [(cells(one.header), cells(one.by) if one.by else None) for one in parsers]
    return _Rows(names=spilled_rows.names, found=found)
