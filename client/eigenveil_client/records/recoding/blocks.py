"""Records as a site's rules make them of a source, block by block of persons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from eigenveil_client.records.recoding.gather import Gather, Taken, gather
from eigenveil_client.records.recoding.measure import Measure
from eigenveil_client.records.recoding.persons import Persons, Whose, row_by_row
from eigenveil_client.records.tables.cells import Reading, faults, text
from eigenveil_client.records.tables.table import find_column

BLOCK = 65_536  # persons


def blocks(reading: Reading, measures: Sequence[Measure], person: str | None) -> Iterator[list[Taken]]:
    """What each measure is for some persons at a time; together they are all of the source, each once [P30].

    Where every row is a person, or the first row in the file stands for each, a block is what a batch brings,
    in the file's order. Else all is held until the end, one number for each person and measure (a mean: a
    few), and persons come in the order of their names: rows in another order give the same blocks.

    Shape: each measure's arrays have the length of the block.
    """
    header = None if person is None else find_column(reading.table.headers, person)
    headers = list(dict.fromkeys([h for m in measures for h in m.headers] + ([header] if header else [])))
    at_once = header is None or all(measure.rule.rows is None for measure in measures)
    persons, start, gathers = Persons(), 0, [gather(measure.rule) for measure in measures]
    for batch in reading.table.batches(headers, reading.told_of_lines):
        columns = dict(zip(headers, batch.columns, strict=True))
        whose = _whose(reading, persons, header, columns, start) if header else row_by_row(batch.num_rows)
        _add(reading, measures, gathers, columns, whose, start)
        start += batch.num_rows
        if at_once:
            yield [one.take(whose.persons) for one in gathers]
        if header is None:
            gathers = [gather(measure.rule) for measure in measures]
    if not at_once:
        whole = [one.take(len(persons)) for one in gathers]
        order = persons.by_name()
        for first in range(0, len(order), BLOCK):
            here = order[first : first + BLOCK]
            yield [(values[here], unreadable[here]) for values, unreadable in whole]


def _whose(
    reading: Reading, persons: Persons, header: str, columns: dict[str, pa.Array], start: int
) -> Whose:
    names, found = text(header, columns[header])
    whose = persons.whose(names)
    reading.tell((*found, *faults(header, whose.who < 0, "no person is named; every row needs one")), start)
    return whose


def _add(
    reading: Reading,
    measures: Sequence[Measure],
    gathers: Sequence[Gather],
    columns: dict[str, pa.Array],
    whose: Whose,
    start: int,
) -> None:
    """Take in a batch, and tell of its bad cells."""
    found = []
    for measure, gathered in zip(measures, gathers, strict=True):
        cells, when = measure.cells(columns, reading.table.dialect), measure.when(columns)
        found += [*cells.faults, *(when.faults if when else ())]
        gathered.add(whose, cells, when)
    reading.tell(found, start)
