"""How good a column of the records is: counts over persons, for the site's own people and its own rules."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eigenveil.numerics.encoding import FloatArray

Bounds = tuple[float, float]
ANYTHING: Bounds = (-math.inf, math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnQuality:
    """Of one column, how many `persons` there are and how many of them have what is named. Counted over all
    persons in the records, before a study's rule for missing values drops any, and from this column alone: no
    other column that a study asks for changes a count.

    `missing` lack a value, and `unreadable` of these lack it because a cell of theirs cannot be read. Values
    `below` and `above` the bounds of the study count as the bound; `at_bound` equal one.
    """

    name: str
    persons: int
    missing: int = 0
    unreadable: int = 0
    below: int = 0
    above: int = 0
    at_bound: int = 0

    @property
    def outside(self) -> int:
        """How many persons have a value beyond the bounds."""
        return self.below + self.above

    def __add__(self, other: ColumnQuality) -> ColumnQuality:
        """The counts of two disjoint sets of persons together."""
        return ColumnQuality(
            name=self.name,
            persons=self.persons + other.persons,
            missing=self.missing + other.missing,
            unreadable=self.unreadable + other.unreadable,
            below=self.below + other.below,
            above=self.above + other.above,
            at_bound=self.at_bound + other.at_bound,
        )


def quality(name: str, bounds: Bounds, values: FloatArray, unreadable: NDArray[np.bool_]) -> ColumnQuality:
    """What a column is among some persons. Shape: values and unreadable (persons,); NaN is missing."""
    missing, (lower, upper) = np.isnan(values), bounds
    return ColumnQuality(
        name=name,
        persons=len(values),
        missing=int(missing.sum()),
        unreadable=int((missing & unreadable).sum()),
        below=int((values < lower).sum()),
        above=int((values > upper).sum()),
        at_bound=int(((values == lower) | (values == upper)).sum()),
    )
