"""Counting of the lines of a source, in the process that reads it. That a line is lost depends on that line
alone; in the result of a SELECT, which has no order, also on the other rows of its person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eigenveil_client.records.discovery.words import MOST_FILLERS, fillers
from eigenveil_client.records.genotype_table import GenotypeTable
from eigenveil_client.records.line_counts import LONGEST_CELL, CellExample, LineCounts, UnreadableCells
from eigenveil_client.records.recoding.gather import person_names
from eigenveil_client.records.recoding.offered import OfferedColumns
from eigenveil_client.records.recoding.parsing import ColumnParser, column_parser
from eigenveil_client.records.recoding.rule import Rules
from eigenveil_client.records.sources.delimited import CsvTable
from eigenveil_client.records.sources.view import View
from eigenveil_client.records.tables.cells import ColumnCells, Fault, Reading, plain
from eigenveil_client.records.tables.lost import EXAMPLES, LostPlaces, LostReason
from eigenveil_client.records.tables.row_hashes import RowHashes, row_hashes
from eigenveil_client.records.tables.source import BadRecords, Dialect, Source

SOME = 16  # different words of a batch
Mask = NDArray[np.bool_]
Columns = Mapping[str, pa.Array]  # of a batch, by header
ReadColumn = tuple[ColumnParser, tuple[ColumnCells, ...]]


def count_lines(
    reading: Reading, rules: Rules, offered: OfferedColumns, person: str | None, version: bytes, skipped: int
) -> LineCounts:
    """Return the counts of the whole source, which has `version`. `skipped`: lines before its header. Raises
    as `Source.batches`."""
    table, lines, hashes, rows = reading.table, PersonLines(reading, person), RowHashes(), 0
    if isinstance(table, CsvTable):
        table.check_separator()
    parsers = offered_parsers(reading, rules, offered)
    cells, headers = CellCounts(parsers, offered.named), _headers(table, parsers, lines.header)
    for batch in table.batches(headers, lambda count: None):
        columns = dict(zip(headers, batch.columns, strict=True))
        read = _read_columns(parsers, columns, table.dialect)
        cells.add(read, columns, lines.used(batch.num_rows, columns, read, rows), rows)
        if not isinstance(table, CsvTable | GenotypeTable):
            hashes.add(row_hashes(batch))
        rows += batch.num_rows
    numbers, below = sorted({*lines.lost.numbers, *cells.rows}), table.lost_lines()
    places = dict(zip(numbers, table.locations(numbers), strict=True))
    return LineCounts(
        version=version,
        lines=rows + sum(one.lines for one in below),
        used=rows - lines.lost.total,
        lost=(*below, *lines.lost.lost(places)),
        skipped=skipped,
        repeated=_repeated(table, hashes),
        cells=cells.unreadable(places),
        not_numbers=cells.not_numbers,
    )


def count_other_rows(reading: Reading, rules: Rules, offered: OfferedColumns, person: str | None) -> int:
    """Return the number of lines lost as `OtherRows`. Raises as `Source.batches`."""
    header = reading.person_header(person)
    if header is None or not isinstance(reading.table, View):
        return 0
    parsers = [one for one in offered_parsers(reading, rules, offered) if one.rule.rows is None]
    headers = list(dict.fromkeys([header, *(name for one in parsers for name in one.headers)]))
    others, found = OtherRows(), 0
    for batch in reading.table.batches(headers, lambda count: None):
        columns = dict(zip(headers, batch.columns, strict=True))
        names, _ = person_names(reading, header, columns[header])
        found += int(others.add(names, _read_columns(parsers, columns, reading.table.dialect)).sum())
    return found


def _repeated(table: Source, hashes: RowHashes) -> int | None:
    if isinstance(table, GenotypeTable):  # a hundred thousand columns
        return None
    return table.repeated_lines() if isinstance(table, CsvTable) else hashes.repeated


def _headers(table: Source, parsers: Sequence[ColumnParser], person: str | None) -> list[str]:
    """Return the columns to read: all where rows are compared, and otherwise those with a meaning."""
    if isinstance(table, CsvTable | GenotypeTable):
        needed = [header for one in parsers for header in one.headers]
        return list(dict.fromkeys([*needed, *([] if person is None else [person])])) or [table.headers[0]]
    once = Counter(table.headers)
    return [name for name in table.headers if once[name] == 1]


def offered_parsers(reading: Reading, rules: Rules, offered: OfferedColumns) -> list[ColumnParser]:
    """Return a parser of each column that studies may use; one of the levels for all of a rule. A column that
    cannot be found has no cells. Genotypes have no unreadable ones."""
    headers, found = reading.headers, dict[str, ColumnParser]()
    if isinstance(reading.table, GenotypeTable):
        return []
    for name in offered.columns_with_units(reading.table.headers, rules):
        with suppress(BadRecords):
            parser = column_parser(headers, rules, name, None, reading.missing)
            found.setdefault(parser.rule.name, parser)
    return list(found.values())


class PersonLines:
    """Lines so far that are lost because of their persons. `header`: the person column, or None."""

    def __init__(self, reading: Reading, person: str | None) -> None:
        self.header = reading.person_header(person)
        self.lost = LostPlaces()
        self._reading = reading
        self._others = OtherRows() if isinstance(reading.table, View) else None

    def used(self, rows: int, columns: Columns, read: Sequence[ReadColumn], start: int) -> Mask:
        """Return True for the used rows of a batch that begins at row `start`. Shape: (rows,)."""
        if self.header is None:
            return np.ones(rows, dtype=np.bool_)
        names, _ = person_names(self._reading, self.header, columns[self.header])
        named = names.is_valid().to_numpy(zero_copy_only=False)
        other = np.zeros(rows, dtype=np.bool_) if self._others is None else self._others.add(names, read)
        for reason, mask in ((LostReason.PERSON, ~named), (LostReason.OTHER_ROW, other)):
            self.lost.add(reason, (start + np.flatnonzero(mask)).tolist())
        return np.asarray(named & ~other)


def _read_columns(parsers: list[ColumnParser], columns: Columns, dialect: Dialect) -> list[ReadColumn]:
    """Return the cells of a batch. A parser of a column of another type is removed: its profile names it."""
    found = []
    for parser in list(parsers):
        try:
            found.append((parser, parser.cells_and_dates(columns, dialect)))
        except BadRecords:
            parsers.remove(parser)
    return found


class CellCounts:
    """Counts of the cells of the offered columns so far. `named`: columns that hold numbers in any case."""

    def __init__(self, parsers: Sequence[ColumnParser], named: frozenset[str]) -> None:
        self._found: dict[str, _ColumnCells] = {}
        for parser in parsers:
            ruled = not parser.rule.plain or parser.rule.name in named
            for header in parser.headers:
                one = self._found.setdefault(header, _ColumnCells())
                one.named = one.named or ruled

    def add(self, read: Sequence[ReadColumn], columns: Columns, used: Mask, start: int) -> None:
        """Add the cells of the used rows of a batch that begins at row `start`."""
        faults = dict[str, list[Fault]]()
        for parser, cells in read:
            self._found[parser.header].numbers += int((used & ~np.isnan(cells[0].values)).sum())
            for fault in (fault for one in cells for fault in one.faults):
                faults.setdefault(fault.header, []).append(fault)
        for header, found in faults.items():
            rows = np.flatnonzero(used & np.logical_or.reduce([fault.cells for fault in found])).tolist()
            if rows:
                what = next(fault.what for fault in found if fault.cells[rows[0]])
                self._found[header].add(rows, what, plain(header, columns[header]), start)

    @property
    def rows(self) -> set[int]:
        """The rows of all examples."""
        return {row for one in self._found.values() for row, _ in one.first}

    @property
    def not_numbers(self) -> tuple[str, ...]:
        return tuple(header for header, one in self._found.items() if not one.holds_numbers)

    def unreadable(self, places: Mapping[int, str]) -> tuple[UnreadableCells, ...]:
        """Return the counts of each column with unreadable cells. `places`: of the rows in `rows`."""
        return tuple(
            UnreadableCells(
                column=header,
                cells=one.cells,
                what=one.what,
                examples=tuple(CellExample(place=places[row], text=text) for row, text in one.first),
                fillers=fillers(one.words),
            )
            for header, one in self._found.items()
            if one.cells and one.holds_numbers
        )


@dataclass(slots=True)
class _ColumnCells:
    """Counts of one column of the records. `numbers`: cells with a value. `cells`: unreadable ones, with the
    row and the text of the first. `words`: their different texts; all if there are few. `named`: something
    names the column."""

    named: bool = False
    numbers: int = 0
    cells: int = 0
    what: str = ""
    first: list[tuple[int, str]] = field(default_factory=list)
    words: set[str] = field(default_factory=set)

    def add(self, rows: Sequence[int], what: str, column: pa.Array, start: int) -> None:
        """Add the unreadable cells at these rows of a batch that begins at row `start`."""
        self.cells += len(rows)
        self.what = self.what or what
        self.first += [(start + row, shown_cell(column[row])) for row in rows[: EXAMPLES - len(self.first)]]
        if len({word.lower() for word in self.words}) <= MOST_FILLERS:
            self.words |= set(map(shown_cell, column.take(rows).unique()[:SOME]))

    @property
    def holds_numbers(self) -> bool:
        """False of a column of text or dates that nothing names: a warning about it would never end."""
        return self.named or self.cells <= self.numbers


def shown_cell(cell: pa.Scalar) -> str:
    """Return a cell as one short line of printable characters, for a terminal or a page."""
    if pa.types.is_string(cell.type) or pa.types.is_large_string(cell.type):  # which may not be UTF-8
        text = cell.as_buffer().to_pybytes().decode(errors="replace") if cell.is_valid else ""
    else:
        text = str(cell.as_py())
    whole = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text.strip())
    return whole if len(whole) <= LONGEST_CELL else f"{whole[: LONGEST_CELL - 1]}…"


class OtherRows:
    """Rows of a SELECT's result that differ from the record of their person, in a column without `rows`.

    A file has a first row, and `[column.X]` without `rows` takes it. The result of a SELECT has none: a
    database returns rows in any order, and so they are sorted by their values, or the same records would
    have another digest each time. An ORDER BY of the SELECT would leave ties, and is not recognised. So such
    rows are lost lines, and the site declines if there are many; one row of each is still the same each time.
    """

    def __init__(self) -> None:
        self._first: dict[str, int] = {}

    def add(self, names: pa.Array, read: Sequence[ReadColumn]) -> Mask:
        """Return True for such rows of a batch, whose persons have these `names`. Shape: (rows,)."""
        found = np.zeros(len(names), dtype=np.bool_)
        values = [cells[0].values for parser, cells in read if parser.rule.rows is None]
        if values:
            plain_values = [np.where(np.isnan(one), np.nan, one + 0.0) for one in values]  # one NaN, one zero
            batch = pa.record_batch(plain_values, names=[str(number) for number in range(len(values))])
            pairs = zip(names.to_pylist(), row_hashes(batch).tolist(), strict=True)
            for row, (name, value) in enumerate(pairs):
                found[row] = name is not None and self._first.setdefault(name, value) != value
        return found
