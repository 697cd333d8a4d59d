"""Blocks of persons: a source after the site's rules, which reduce the rows of each person to one number.

The number is a function of that person's rows alone, and does not depend on their order, except for the first
row in the file. Sums are exact: a float is an integer of 53 bits times a power of two, split into digits of
32 bits at fixed places, and the digits of one place are summed as integers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil_client.records.recoding.parsing import ColumnParser
from eigenveil_client.records.recoding.persons import (
    SPILLED,
    MarkedValues,
    NamedRows,
    Persons,
    RowPersons,
    SpilledRows,
    joined,
    named,
    row_by_row,
)
from eigenveil_client.records.recoding.rule import ColumnRule, Rows
from eigenveil_client.records.scratch_files import SYSTEM, Scratch
from eigenveil_client.records.tables.cells import Fault, Reading, faults, text

DIGIT = 32  # bits
ONE = 36  # the place of 2^0; the last bit of the least float is at place 1
MASK = np.uint64(2**DIGIT - 1)
WIDE = np.uint64(DIGIT)


class ExactSums:
    """Fold to the exact mean, rounded once: sums of fewer than 2^30 terms each, and their numbers of terms.
    Memory holds the digits at places that some term has reached."""

    def __init__(self) -> None:
        self._first = ONE
        self._digits: NDArray[np.int64] = np.zeros((0, 0), dtype=np.int64)
        self._terms: IntArray = np.zeros(0, dtype=np.int64)

    def add(self, person_numbers: IntArray, values: FloatArray, moments: FloatArray, persons: int) -> None:
        if not len(values):
            return
        significand, exponent = np.frexp(values)
        whole = np.abs(significand * 2.0**53).astype(np.uint64)
        place, bits = np.divmod(exponent.astype(np.int64) - 53 + ONE * DIGIT, DIGIT)
        self._reach(int(place.min()), int(place.max()) + 3, persons)
        shift = bits.astype(np.uint64)
        low, high = (whole & MASK) << shift, (whole >> WIDE) << shift
        sign, place = np.where(values < 0, -1, 1), place - self._first
        for step, part in enumerate([low & MASK, (low >> WIDE) + (high & MASK), high >> WIDE]):
            np.add.at(self._digits, (place + step, person_numbers), sign * part.astype(np.int64))
        np.add.at(self._terms, person_numbers, 1)

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

    def values(self, persons: int) -> FloatArray:
        found, shift = np.full(persons, np.nan), DIGIT * (self._first - ONE)
        some = np.flatnonzero(self._terms[:persons])
        for which, digits, terms in zip(
            some, self._digits[:, some].T.tolist(), self._terms[some].tolist(), strict=True
        ):
            total = sum(digit << (DIGIT * place) for place, digit in enumerate(digits))
            found[which] = (total << max(shift, 0)) / (terms << max(-shift, 0))  # integers: rounded once
        return found


Kind = TypeVar("Kind", np.float64, np.bool_)


class FirstRowGather:
    """Gatherer of the cell in a person's first row in the file, also if it is missing. `take` returns the
    persons since the last call."""

    columns = 1

    def __init__(self) -> None:
        self._stored: list[MarkedValues] = []

    def add(self, row_persons: RowPersons, cells: MarkedValues) -> None:
        values, unreadable = cells
        self._stored.append((values[row_persons.first], unreadable[row_persons.first]))

    def take(self, persons: int) -> MarkedValues:
        stored, self._stored = self._stored, []
        return joined(stored)


class FoldGather:
    """Gatherer that folds all rows of a person, and skips rows without a value. A person without any value is
    missing, and unreadable if one of their cells was."""

    def __init__(self, fold: Fold, columns: int = 1) -> None:
        self._fold = fold
        self.columns = columns
        self._unreadable: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)

    def add(self, row_persons: RowPersons, cells: MarkedValues, dates: MarkedValues | None = None) -> None:
        """Add the rows of a batch, by their dates if the fold has the second column."""
        numbers, named = row_persons.person_numbers, row_persons.person_numbers >= 0
        (values, bad), (moments, undated) = cells, dates or (np.zeros(len(named)), np.False_)
        self._unreadable = grown(self._unreadable, row_persons.persons, False)
        self._unreadable[numbers[named & (bad | undated)]] = True
        usable = named & ~np.isnan(values) & ~np.isnan(moments)
        # -0 and 0 are equal; without this the result could depend on the order
        self._fold.add(numbers[usable], values[usable] + 0.0, moments[usable], row_persons.persons)

    def take(self, persons: int) -> MarkedValues:
        """Return the values of the persons so far. Shape: (persons,)."""
        values = self._fold.values(persons)
        return values, grown(self._unreadable, persons, False)[:persons] & np.isnan(values)


class ReduceFold:
    """Least or largest value, or sum: all values reduced by `reduce`, `empty` without a row."""

    def __init__(self, reduce: np.ufunc, empty: float = np.nan) -> None:
        self._reduce = reduce
        self._empty = empty
        self._stored: FloatArray = np.zeros(0)

    def add(self, person_numbers: IntArray, values: FloatArray, moments: FloatArray, persons: int) -> None:
        self._stored = grown(self._stored, persons, self._empty)
        self._reduce.at(self._stored, person_numbers, values)

    def values(self, persons: int) -> FloatArray:
        return grown(self._stored, persons, self._empty)[:persons]


class DateFold:
    """Value at the first moment, the least of several; or at the last, the largest of several."""

    def __init__(self, *, last: bool) -> None:
        self._sign = -1.0 if last else 1.0  # the last is the first of the negated moments
        self._moments: FloatArray = np.zeros(0)
        self._values: FloatArray = np.zeros(0)

    def add(self, person_numbers: IntArray, values: FloatArray, moments: FloatArray, persons: int) -> None:
        self._moments = grown(self._moments, persons, np.nan)
        self._values = grown(self._values, persons, np.nan)
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
        self._moments[person_numbers[sooner]] = moment[sooner]
        self._values[person_numbers[sooner]] = value[sooner]

    def values(self, persons: int) -> FloatArray:
        stored: FloatArray = self._sign * grown(self._values, persons, np.nan)[:persons]
        return stored + 0.0


# State that is folded for each person, from rows that have a value. A person without a row has NaN.
# Shape: person_numbers, values and moments (rows,).
Fold = ReduceFold | ExactSums | DateFold


def gather(rule: ColumnRule) -> FirstRowGather | FoldGather:
    """Return the gatherer of a column by its rule."""
    match rule.rows:
        case None:
            return FirstRowGather()
        case Rows.FIRST | Rows.LAST:
            return FoldGather(DateFold(last=rule.rows is Rows.LAST), columns=2)
        case Rows.MEAN:
            return FoldGather(ExactSums())
        case Rows.MINIMUM:
            return FoldGather(ReduceFold(np.fmin))
        case Rows.MAXIMUM:
            return FoldGather(ReduceFold(np.fmax))
        case Rows.COUNT:  # a cell is 1 or missing
            return FoldGather(ReduceFold(np.add, empty=0.0))


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
NO_PERSON = "no person is named. Every row needs a person"
LEVELS = 8  # of spills: 2^80 partitions


def blocks(
    reading: Reading, parsers: Sequence[ColumnParser], person: str | None, scratch: Scratch = SYSTEM
) -> Iterator[list[MarkedValues]]:
    """Yield blocks of persons, with the values of each parser. Every person comes once [P30].

    Without a person column, a block is a batch of rows, in the file's order. Otherwise persons who do not fit
    into memory are spilled to `scratch`, and come later. If the first row in the file is each person's
    record, a block holds the new persons of a batch. Else all persons in memory stay there until the last
    row, with one number for each parser (a few for a mean), and come in the order of their names. The same
    source gives the same order, which has no meaning.

    Shape: each parser's arrays have the length of the block."""
    header = reading.person_header(person)
    rows = _parsed(reading, parsers, header)
    if header is not None:
        yield from _gathered(rows, parsers, scratch, 0)
        return
    if all(parser.rule.rows is None for parser in parsers):
        yield from (batch.columns for batch in rows)
        return
    for batch in rows:
        gathers, row_persons = [gather(parser.rule) for parser in parsers], row_by_row(len(batch.names))
        _add(gathers, row_persons, batch)
        yield [one.take(row_persons.persons) for one in gathers]


def _parsed(reading: Reading, parsers: Sequence[ColumnParser], header: str | None) -> Iterator[NamedRows]:
    """Yield the source as numbers, batch by batch. Bad cells and rows without a person are reported."""
    headers = list(dict.fromkeys([h for one in parsers for h in one.headers] + ([header] if header else [])))
    start = 0
    for batch in reading.table.batches(headers, reading.on_lost):
        columns = dict(zip(headers, batch.columns, strict=True))
        names = pa.nulls(batch.num_rows, pa.string())
        if header is not None:
            names = named_persons(reading, header, columns[header], start)
        found = [cells for one in parsers for cells in one.cells_and_dates(columns, reading.table.dialect)]
        used = np.True_ if header is None else names.is_valid().to_numpy(zero_copy_only=False)
        reading.report([bad for cells in found for bad in cells.faults], start, used)
        start += batch.num_rows
        reading.tally.rows += batch.num_rows
        yield NamedRows(names=names, columns=[(cells.values, cells.unreadable) for cells in found])


def named_persons(reading: Reading, header: str, column: pa.Array, start: int) -> pa.Array:
    """Return the names of the persons of rows from `start` on. A row without one is null, and reported."""
    names, bad = person_names(reading, header, column)
    unnamed = names.is_null().to_numpy(zero_copy_only=False)
    reading.report_lost((*bad, *faults(header, unnamed, NO_PERSON)), start)
    reading.tally.unnamed += int(unnamed.sum())
    return names


def person_names(reading: Reading, header: str, column: pa.Array) -> tuple[pa.Array, tuple[Fault, ...]]:
    """Return the names of the persons of rows, null for a row without one, and the faults of their cells."""
    words, bad = text(header, column)
    return named(words, reading.missing), bad


def _add(gathers: Sequence[FirstRowGather | FoldGather], row_persons: RowPersons, rows: NamedRows) -> None:
    columns = iter(rows.columns)
    for one in gathers:
        one.add(row_persons, *islice(columns, one.columns))


def _gathered(
    batches: Iterable[NamedRows], parsers: Sequence[ColumnParser], scratch: Scratch, level: int
) -> Iterator[list[MarkedValues]]:
    """Yield the persons of some rows: those who fit into memory, then those spilled, by partition."""
    gathers, spilled_rows = [gather(one.rule) for one in parsers], None
    width = sum(one.columns for one in gathers)
    persons = Persons(max(1, GATHERED // (A_PERSON + A_NUMBER * width)) if level < LEVELS else 2**62)
    at_once = all(one.rule.rows is None for one in parsers)
    for rows in batches:
        row_persons = persons.row_persons(rows.names)
        _add(gathers, row_persons, rows)
        spilled = np.flatnonzero(row_persons.person_numbers == SPILLED)
        if len(spilled):
            spilled_rows = spilled_rows or SpilledRows(scratch, width, level)
            spilled_rows.add(rows.only(spilled))
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
                yield from _gathered(partition, parsers, scratch, level + 1)
