"""Gatherers that reduce the rows of each person to one number.

The number is a function of that person's rows alone, and does not depend on their order, except for the first
row in the file. Sums are exact: a float is an integer of 53 bits times a power of two, split into digits of
32 bits at fixed places, and the digits of one place are summed as integers.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil_client.records.recoding.persons import RowPersons
from eigenveil_client.records.recoding.rule import ColumnRule, Rows
from eigenveil_client.records.tables.cells import Cells

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

    def add(self, row_persons: RowPersons, cells: Cells, when: Cells | None) -> None:
        """Add the rows of a batch."""

    def take(self, persons: int) -> PersonValues:
        """Return the values of the persons so far. Shape: (persons,)."""


class FirstRowGather:
    """Gatherer of the cell in a person's first row in the file, also if it is missing.

    `take` returns the persons since the last call."""

    def __init__(self) -> None:
        self._stored: list[PersonValues] = []

    def add(self, row_persons: RowPersons, cells: Cells, when: Cells | None) -> None:
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

    def add(self, row_persons: RowPersons, cells: Cells, when: Cells | None) -> None:
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
