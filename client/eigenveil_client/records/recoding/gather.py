"""Blocks of persons: a source after the site's rules, which reduce the rows of each person to one number.

The number is a function of that person's rows alone, and does not depend on their order, except for the first
row in the file. Sums are exact: a float is an integer of 53 bits times a power of two, split into digits of
32 bits at fixed places, and the digits of one place are summed as integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil_client.records.recoding.parsing import ColumnParser
from eigenveil_client.records.recoding.persons import (
    SPILLED,
    NamedRows,
    Persons,
    RowPersons,
    SpilledRows,
    named,
    row_by_row,
)
from eigenveil_client.records.recoding.rule import ColumnRule, Rows
from eigenveil_client.records.scratch_files import SYSTEM, Scratch
from eigenveil_client.records.tables.cells import ColumnCells, Reading, faults, text
from eigenveil_client.records.tables.source import find_column

DIGIT = 32  # bits
ONE = 36  # the place of 2^0; the last bit of the least float is at place 1
MASK = np.uint64(2**DIGIT - 1)
WIDE = np.uint64(DIGIT)


class ExactSums:
    """Sums of fewer than 2^30 terms each, and their numbers of terms.

    Memory holds the digits at places that some term has reached."""

    def __init__(self) -> None:
        self._first = ONE
        self._digits: NDArray[np.int64] = np.zeros((0, 0), dtype=np.int64)
        self._terms: IntArray = np.zeros(0, dtype=np.int64)

    def add(self, which: IntArray, values: FloatArray) -> None:
        """Add each of `values` to the sum number `which`. Shape: which and values (n,), all finite."""
        if not len(values):
            return
        significand, exponent = np.frexp(values)
        whole = np.abs(significand * 2.0**53).astype(np.uint64)
        place, bits = np.divmod(exponent.astype(np.int64) - 53 + ONE * DIGIT, DIGIT)
        self._reach(int(place.min()), int(place.max()) + 3, int(which.max()) + 1)
        shift = bits.astype(np.uint64)
        low, high = (whole & MASK) << shift, (whole >> WIDE) << shift
        sign, place = np.where(values < 0, -1, 1), place - self._first
        for step, part in enumerate([low & MASK, (low >> WIDE) + (high & MASK), high >> WIDE]):
            np.add.at(self._digits, (place + step, which), sign * part.astype(np.int64))
        np.add.at(self._terms, which, 1)

    def _reach(self, first: int, end: int, sums: int) -> None:
        """Extend the arrays to places from `first` to before `end`, and to `sums` sums."""
        places, width = self._digits.shape
        first, end = min(first, self._first), max(end, self._first + places)
        capacity = width if sums <= width else max(sums, 2 * width)
        if (first, end - first, capacity) == (self._first, places, width):
            return
        grown = np.zeros((end - first, capacity), dtype=np.int64)
        grown[self._first - first :][:places, :width] = self._digits
        self._terms = np.concatenate([self._terms, np.zeros(capacity - width, dtype=np.int64)])
        self._first, self._digits = first, grown

    def means(self, count: int) -> FloatArray:
        """Return the means of the first `count` sums, each rounded once; NaN without a term."""
        found, shift = np.full(count, np.nan), DIGIT * (self._first - ONE)
        some = np.flatnonzero(self._terms[:count])
        for which, digits, terms in zip(
            some, self._digits[:, some].T.tolist(), self._terms[some].tolist(), strict=True
        ):
            total = sum(digit << (DIGIT * place) for place, digit in enumerate(digits))
            found[which] = (total << max(shift, 0)) / (terms << max(-shift, 0))  # integers: rounded once
        return found


Kind = TypeVar("Kind", np.float64, np.bool_)
PersonValues = tuple[FloatArray, NDArray[np.bool_]]  # values, NaN if missing, and marks of unreadable cells


class Gather(Protocol):
    """Gatherer of one column over the batches of a file."""

    def add(self, row_persons: RowPersons, cells: ColumnCells, when: ColumnCells | None) -> None:
        """Add the rows of a batch."""

    def take(self, persons: int) -> PersonValues:
        """Return the values of the persons so far. Shape: (persons,)."""


class FirstRowGather:
    """Gatherer of the cell in a person's first row in the file, also if it is missing.

    `take` returns the persons since the last call."""

    def __init__(self) -> None:
        self._stored: list[PersonValues] = []

    def add(self, row_persons: RowPersons, cells: ColumnCells, when: ColumnCells | None) -> None:
        self._stored.append((cells.values[row_persons.first], cells.unreadable[row_persons.first]))

    def take(self, persons: int) -> PersonValues:
        stored, self._stored = self._stored, []
        values, unreadable = zip(*stored, strict=True) if stored else ((), ())
        return (
            np.concatenate([np.empty(0), *values]),
            np.concatenate([np.empty(0, dtype=np.bool_), *unreadable]),
        )


class FoldGather:
    """Gatherer that folds all rows of a person, and skips rows without a value.

    A person without any value is missing, and unreadable if one of their cells was."""

    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self._unreadable: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)

    def add(self, row_persons: RowPersons, cells: ColumnCells, when: ColumnCells | None) -> None:
        named, values, bad = row_persons.person_numbers >= 0, cells.values, cells.unreadable
        moments = np.zeros(len(values)) if when is None else when.values
        if when is not None:
            bad = bad | when.unreadable
        self._unreadable = grown(self._unreadable, row_persons.persons, False)
        self._unreadable[row_persons.person_numbers[named & bad]] = True
        usable = named & ~np.isnan(values) & ~np.isnan(moments)
        # -0 and 0 are equal; without this the result could depend on the order
        self._fold.add(
            row_persons.person_numbers[usable], values[usable] + 0.0, moments[usable], row_persons.persons
        )

    def take(self, persons: int) -> PersonValues:
        values = self._fold.values(persons)
        return values, grown(self._unreadable, persons, False)[:persons] & np.isnan(values)


class Fold(Protocol):
    """State that is folded for each person."""

    def add(self, person_numbers: IntArray, values: FloatArray, moments: FloatArray, persons: int) -> None:
        """Add rows that have a value. Shape: person_numbers, values and moments (rows,)."""

    def values(self, persons: int) -> FloatArray:
        """Return one value a person, NaN without a row."""


class ExtremeFold:
    """Least or largest value."""

    def __init__(self, pick: np.ufunc) -> None:
        self._pick = pick
        self._stored: FloatArray = np.zeros(0)

    def add(self, person_numbers: IntArray, values: FloatArray, moments: FloatArray, persons: int) -> None:
        self._stored = grown(self._stored, persons, np.nan)
        self._pick.at(self._stored, person_numbers, values)

    def values(self, persons: int) -> FloatArray:
        return grown(self._stored, persons, np.nan)[:persons]


class CountFold:
    """Number of rows with a value, which is 0 and never missing."""

    def __init__(self) -> None:
        self._stored: FloatArray = np.zeros(0)

    def add(self, person_numbers: IntArray, values: FloatArray, moments: FloatArray, persons: int) -> None:
        self._stored = grown(self._stored, persons, 0.0)
        np.add.at(self._stored, person_numbers, 1.0)

    def values(self, persons: int) -> FloatArray:
        return grown(self._stored, persons, 0.0)[:persons]


class MeanFold:
    """Exact mean, rounded once."""

    def __init__(self) -> None:
        self._sums = ExactSums()

    def add(self, person_numbers: IntArray, values: FloatArray, moments: FloatArray, persons: int) -> None:
        self._sums.add(person_numbers, values)

    def values(self, persons: int) -> FloatArray:
        return self._sums.means(persons)


class DateFold:
    """Value at the first moment, the least of several; or at the last, the largest of several."""

    def __init__(self, *, last: bool) -> None:
        self._sign = -1.0 if last else 1.0  # the last is the first of the negated moments
        self._moments: FloatArray = np.zeros(0)
        self._values: FloatArray = np.zeros(0)

    def add(self, person_numbers: IntArray, values: FloatArray, moments: FloatArray, persons: int) -> None:
        self._moments, self._values = (
            grown(self._moments, persons, np.nan),
            grown(self._values, persons, np.nan),
        )
        moments, values = self._sign * moments, self._sign * values
        order = np.lexsort((values, moments, person_numbers))
        person_numbers, at = np.unique(person_numbers[order], return_index=True)
        moment, value = moments[order][at], values[order][at]
        stored = self._moments[person_numbers]
        sooner = (
            np.isnan(stored)
            | (moment < stored)
            | ((moment == stored) & (value < self._values[person_numbers]))
        )
        self._moments[person_numbers[sooner]], self._values[person_numbers[sooner]] = (
            moment[sooner],
            value[sooner],
        )

    def values(self, persons: int) -> FloatArray:
        stored: FloatArray = self._sign * grown(self._values, persons, np.nan)[:persons]
        return stored + 0.0


def gather(rule: ColumnRule) -> Gather:
    """Return the gatherer of a column by its rule."""
    match rule.rows:
        case None:
            return FirstRowGather()
        case Rows.FIRST | Rows.LAST:
            return FoldGather(DateFold(last=rule.rows is Rows.LAST))
        case Rows.MEAN:
            return FoldGather(MeanFold())
        case Rows.MINIMUM:
            return FoldGather(ExtremeFold(np.fmin))
        case Rows.MAXIMUM:
            return FoldGather(ExtremeFold(np.fmax))
        case Rows.COUNT:
            return FoldGather(CountFold())


def grown(stored: NDArray[Kind], persons: int, empty: float) -> NDArray[Kind]:
    """Return `stored`, extended to at least `persons` entries."""
    if persons <= len(stored):
        return stored
    enlarged = np.full(max(persons, 2 * len(stored)), empty, dtype=stored.dtype)
    enlarged[: len(stored)] = stored
    return enlarged


BLOCK = 65_536  # persons
GATHERED = 2**27  # bytes of memory for persons whose rows are gathered
A_PERSON, A_NUMBER = 256, 40  # bytes: a name and its number; one value under any rule
LEVELS = 8  # of spills: 2^80 partitions

ParsedColumns = list[
    tuple[ColumnCells, ColumnCells | None]
]  # of each parser: its cells, and their dates if it has any


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

    def cells(header: str) -> ColumnCells:
        values, unreadable = next(columns)
        return ColumnCells(values=values, faults=faults(header, unreadable, ""))

    found: ParsedColumns = [(cells(one.header), cells(one.by) if one.by else None) for one in parsers]
    return _Rows(names=spilled_rows.names, found=found)
