"""The rows of one person to one number: what is held for each person is a function of that person's rows
alone, and unless it is the first row in the file, of which these are and not of their order.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil_client.records.recoding.exact_sums import ExactSums
from eigenveil_client.records.recoding.persons import Whose
from eigenveil_client.records.recoding.rule import ColumnRule, Rows
from eigenveil_client.records.tables.cells import Cells

Kind = TypeVar("Kind", np.float64, np.bool_)
Taken = tuple[FloatArray, NDArray[np.bool_]]  # values, NaN if missing, and what is so as a cell is unreadable


class Gather(Protocol):
    """One column over the batches of a file."""

    def add(self, whose: Whose, cells: Cells, when: Cells | None) -> None:
        """Take in the rows of a batch."""

    def take(self, persons: int) -> Taken:
        """What the persons have, who are that many by now. Shape: (persons,)."""


class InFileOrder:
    """The cell of the person's first row in the file, also if that is missing. `take` gives those who came
    since the last time."""

    def __init__(self) -> None:
        self._held: list[Taken] = []

    def add(self, whose: Whose, cells: Cells, when: Cells | None) -> None:
        self._held.append((cells.values[whose.first], cells.unreadable[whose.first]))

    def take(self, persons: int) -> Taken:
        held, self._held = self._held, []
        values, unreadable = zip(*held, strict=True) if held else ((), ())
        return (
            np.concatenate([np.empty(0), *values]),
            np.concatenate([np.empty(0, dtype=np.bool_), *unreadable]),
        )


class OverRows:
    """What is common to all that look at every row: rows without a value are passed over, and a person for
    whom nothing is left has no value, an unreadable one if a cell of theirs was."""

    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self._unreadable: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)

    def add(self, whose: Whose, cells: Cells, when: Cells | None) -> None:
        named, values, bad = whose.who >= 0, cells.values, cells.unreadable
        moments = np.zeros(len(values)) if when is None else when.values
        if when is not None:
            bad = bad | when.unreadable
        self._unreadable = grown(self._unreadable, whose.persons, False)
        self._unreadable[whose.who[named & bad]] = True
        usable = named & ~np.isnan(values) & ~np.isnan(moments)
        # -0 and 0 are equal, and which of them was kept would hang on the order
        self._fold.add(whose.who[usable], values[usable] + 0.0, moments[usable], whose.persons)

    def take(self, persons: int) -> Taken:
        values = self._fold.values(persons)
        return values, grown(self._unreadable, persons, False)[:persons] & np.isnan(values)


class Fold(Protocol):
    """What is held for each person."""

    def add(self, who: IntArray, values: FloatArray, moments: FloatArray, persons: int) -> None:
        """Take in rows that have a value. Shape: who, values and moments (rows,)."""

    def values(self, persons: int) -> FloatArray:
        """One a person, NaN without a row."""


class Extreme:
    """The least value, or the largest."""

    def __init__(self, pick: np.ufunc) -> None:
        self._pick = pick
        self._held: FloatArray = np.zeros(0)

    def add(self, who: IntArray, values: FloatArray, moments: FloatArray, persons: int) -> None:
        self._held = grown(self._held, persons, np.nan)
        self._pick.at(self._held, who, values)

    def values(self, persons: int) -> FloatArray:
        return grown(self._held, persons, np.nan)[:persons]


class Count:
    """How many rows have a value; nobody has none."""

    def __init__(self) -> None:
        self._held: FloatArray = np.zeros(0)

    def add(self, who: IntArray, values: FloatArray, moments: FloatArray, persons: int) -> None:
        self._held = grown(self._held, persons, 0.0)
        np.add.at(self._held, who, 1.0)

    def values(self, persons: int) -> FloatArray:
        return grown(self._held, persons, 0.0)[:persons]


class Mean:
    """The exact mean, rounded once."""

    def __init__(self) -> None:
        self._sums = ExactSums()

    def add(self, who: IntArray, values: FloatArray, moments: FloatArray, persons: int) -> None:
        self._sums.add(who, values)

    def values(self, persons: int) -> FloatArray:
        return self._sums.means(persons)


class AtDate:
    """The value at the first moment, the least of several; or at the last, the largest of several."""

    def __init__(self, *, last: bool) -> None:
        self._sign = -1.0 if last else 1.0  # the last of all is the first of the negated ones
        self._moments: FloatArray = np.zeros(0)
        self._values: FloatArray = np.zeros(0)

    def add(self, who: IntArray, values: FloatArray, moments: FloatArray, persons: int) -> None:
        self._moments, self._values = (
            grown(self._moments, persons, np.nan),
            grown(self._values, persons, np.nan),
        )
        moments, values = self._sign * moments, self._sign * values
        order = np.lexsort((values, moments, who))
        who, at = np.unique(who[order], return_index=True)
        moment, value = moments[order][at], values[order][at]
        held = self._moments[who]
        sooner = np.isnan(held) | (moment < held) | ((moment == held) & (value < self._values[who]))
        self._moments[who[sooner]], self._values[who[sooner]] = moment[sooner], value[sooner]

    def values(self, persons: int) -> FloatArray:
        held: FloatArray = self._sign * grown(self._values, persons, np.nan)[:persons]
        return held + 0.0


def gather(rule: ColumnRule) -> Gather:
    """What gathers a column by its rule."""
    match rule.rows:
        case None:
            return InFileOrder()
        case Rows.FIRST | Rows.LAST:
            return OverRows(AtDate(last=rule.rows is Rows.LAST))
        case Rows.MEAN:
            return OverRows(Mean())
        case Rows.MINIMUM:
            return OverRows(Extreme(np.fmin))
        case Rows.MAXIMUM:
            return OverRows(Extreme(np.fmax))
        case Rows.COUNT:
            return OverRows(Count())


def grown(held: NDArray[Kind], persons: int, empty: float) -> NDArray[Kind]:
    """`held`, with room for that many persons."""
    if persons <= len(held):
        return held
    room = np.full(max(persons, 2 * len(held)), empty, dtype=held.dtype)
    room[: len(held)] = held
    return room
