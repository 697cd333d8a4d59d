"""How good a column of the records is: counts over persons, for the site's own people and its own rules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.study.study import Column

Bounds = tuple[float, float]
ANYTHING: Bounds = (-math.inf, math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Between what nearly all values of a column lie, in `unit`: the site's word, or its dictionary's."""

    lower: float
    upper: float
    unit: str


Ranges = Mapping[str, Range]  # by the name of the column
NO_RANGES: Ranges = MappingProxyType({})
# UCUM's spelling of what many write, all in small letters.
SAME_UNIT = {
    "year": "a",
    "years": "a",
    "yr": "a",
    "y": "a",
    "kg/m^2": "kg/m2",
    "kg/m²": "kg/m2",
    "mmhg": "mm[hg]",
}


def check_units(columns: Iterable[Column], ranges: Ranges) -> None:
    """Insist that a study means columns in the units in which the site knows what is plausible of them: else
    its analyst chose whether anybody looks. Nothing but settings and the study is compared.

    Raises:
        RequestError: code `site-policy`.
    """
    known = [(one, ranges[one.name].unit) for one in columns if one.name in ranges]
    other = [
        f"{one.name} in {one.unit or 'no unit'}, where the site's dictionary has {unit or 'none'}"
        for one, unit in known
        if _unit(unit) != _unit(one.unit)
    ]
    if other:
        raise RequestError(
            Code.POLICY,
            f"the study has {'; '.join(other)}: use that unit, or name another dictionary in site.toml",
        )


def _unit(said: str) -> str:
    """A unit however it is written: analysts write mg/dl and year where UCUM has mg/dL and a."""
    folded = said.replace(" ", "").casefold()
    return SAME_UNIT.get(folded, folded)


def plausible_bounds(column: Column, ranges: Ranges) -> Bounds:
    """Between what a study's column should lie. Its unit was looked at before (`check_units`)."""
    found = ranges.get(column.name)
    return ANYTHING if found is None else (found.lower, found.upper)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnQuality:
    """Of one column, how many `persons` there are and how many of them have what is named. Counted over all
    persons in the records, before a study's rule for missing values drops any, and from this column alone: no
    other column that a study asks for changes a count.

    `missing` lack a value, and `unreadable` of these lack it because a cell of theirs cannot be read. Values
    `below` and `above` the bounds of the study count as the bound; `at_bound` equal one. `implausible` values
    lie outside the column's plausible range, if there is one: no study has a say in it.
    """

    name: str
    persons: int
    missing: int = 0
    unreadable: int = 0
    below: int = 0
    above: int = 0
    at_bound: int = 0
    implausible: int = 0

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
            implausible=self.implausible + other.implausible,
        )


def quality(
    name: str,
    bounds: Bounds,
    values: FloatArray,
    unreadable: NDArray[np.bool_],
    plausible: Bounds = ANYTHING,
) -> ColumnQuality:
    """What a column is among some persons. Shape: values and unreadable (persons,); NaN is missing."""
    missing, (lower, upper), (least, most) = np.isnan(values), bounds, plausible
    return ColumnQuality(
        name=name,
        persons=len(values),
        missing=int(missing.sum()),
        unreadable=int((missing & unreadable).sum()),
        below=int((values < lower).sum()),
        above=int((values > upper).sum()),
        implausible=int(((values < least) | (values > most)).sum()),
        at_bound=int(((values == lower) | (values == upper)).sum()),
    )
