"""Records as a site's rules make them of a source, block by block of persons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from eigenveil_client.records.overflow.aside import Aside, NamedRows
from eigenveil_client.records.overflow.scratch import SYSTEM, Scratch
from eigenveil_client.records.recoding.gather import Taken, gather
from eigenveil_client.records.recoding.measure import Measure
from eigenveil_client.records.recoding.persons import STRANGER, Persons, named, row_by_row
from eigenveil_client.records.tables.cells import Cells, Reading, faults, text
from eigenveil_client.records.tables.table import find_column

BLOCK = 65_536  # persons
GATHERED = 2**27  # bytes of memory for persons whose rows are being gathered
A_PERSON, A_NUMBER = 256, 40  # bytes: a name and its place; what is held of one number by whatever rule
LEVELS = 8  # as deep as rows are set aside: 2^80 parts

Found = list[tuple[Cells, Cells | None]]  # of each measure: its cells, and their dates if it has any


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rows:
    """Rows of a batch: whose they are (null: nobody's), and what each measure makes of them."""

    names: pa.Array
    found: Found


def blocks(
    reading: Reading, measures: Sequence[Measure], person: str | None, scratch: Scratch = SYSTEM
) -> Iterator[list[Taken]]:
    """What each measure is for some persons at a time; together they are all of the source, each once [P30].

    Where every row is a person, a block is what a batch brings, in the file's order. Else persons come as
    there is room for them: those whom memory does not hold are set aside in `scratch`, and their turn is
    later. Where the first row in the file stands for each person, a block is what a batch brings; else all
    persons in memory are held until the last row, one number for each measure (a mean: a few), and come in
    the order of their names. The order of persons means nothing; the same source gives the same one.

    Shape: each measure's arrays have the length of the block.
    """
    header = None if person is None else find_column(reading.table.headers, person)
    rows = _measured(reading, measures, header)
    if header is not None:
        yield from _gathered(rows, measures, scratch, 0)
        return
    for batch in rows:
        gathers, whose = [gather(measure.rule) for measure in measures], row_by_row(len(batch.names))
        for one, (cells, when) in zip(gathers, batch.found, strict=True):
            one.add(whose, cells, when)
        yield [one.take(whose.persons) for one in gathers]


def _measured(reading: Reading, measures: Sequence[Measure], header: str | None) -> Iterator[_Rows]:
    """The source as numbers, batch by batch; its bad cells are told of, and rows that name no person."""
    headers = list(dict.fromkeys([h for m in measures for h in m.headers] + ([header] if header else [])))
    start = 0
    for batch in reading.table.batches(headers, reading.told_of_lines):
        columns = dict(zip(headers, batch.columns, strict=True))
        names = pa.nulls(batch.num_rows, pa.string())
        if header is not None:
            names = named_persons(reading, header, columns[header], start)
        found = [(one.cells(columns, reading.table.dialect), one.when(columns)) for one in measures]
        reading.tell([bad for pair in found for cells in pair if cells for bad in cells.faults], start)
        start += batch.num_rows
        yield _Rows(names=names, found=found)


def named_persons(reading: Reading, header: str, column: pa.Array, start: int) -> pa.Array:
    """Whose the rows are that begin at row `start` of the source (null: nobody's, which is told of)."""
    words, bad = text(header, column)
    names = named(words)
    nobody = names.is_null().to_numpy(zero_copy_only=False)
    reading.tell((*bad, *faults(header, nobody, "no person is named; every row needs one")), start)
    return names


def _gathered(
    batches: Iterable[_Rows], measures: Sequence[Measure], scratch: Scratch, level: int
) -> Iterator[list[Taken]]:
    """The persons of some rows: those for whom there is room, and then, part by part, those set aside."""
    width = len(measures) + sum(one.by is not None for one in measures)
    most = max(1, GATHERED // (A_PERSON + A_NUMBER * width)) if level < LEVELS else 2**62
    persons, gathers, aside = Persons(most), [gather(one.rule) for one in measures], None
    at_once = all(one.rule.rows is None for one in measures)
    for rows in batches:
        whose = persons.whose(rows.names)
        for one, (cells, when) in zip(gathers, rows.found, strict=True):
            one.add(whose, cells, when)
        strangers = np.flatnonzero(whose.who == STRANGER)
        if len(strangers):
            aside = aside or Aside(scratch, width, level)
            aside.add(_numbers(rows).only(strangers))
        if at_once:
            yield [one.take(whose.persons) for one in gathers]
    if not at_once:
        whole, order = [one.take(len(persons)) for one in gathers], persons.by_name()
        for first in range(0, len(order), BLOCK):
            here = order[first : first + BLOCK]
            yield [(values[here], unreadable[here]) for values, unreadable in whole]
        del whole, order
    del persons, gathers  # their room is for those who come now
    if aside is not None:
        with closing(aside):
            for part in aside.parts():
                yield from _gathered((_rows(one, measures) for one in part), measures, scratch, level + 1)


def _numbers(rows: _Rows) -> NamedRows:
    """Rows as numbers, to be set aside."""
    cells = [one for pair in rows.found for one in pair if one is not None]
    return NamedRows(
        names=rows.names,
        numbers=np.column_stack([one.values for one in cells]),
        unreadable=np.column_stack([one.unreadable for one in cells]),
    )


def _rows(aside: NamedRows, measures: Sequence[Measure]) -> _Rows:
    """What `_numbers` was made of; their faults were told of before."""
    columns = iter(zip(aside.numbers.T, aside.unreadable.T, strict=True))

    def cells(header: str) -> Cells:
        values, unreadable = next(columns)
        return Cells(values=values, faults=faults(header, unreadable, ""))

    found: Found = [(cells(one.header), cells(one.by) if one.by else None) for one in measures]
    return _Rows(names=aside.names, found=found)
