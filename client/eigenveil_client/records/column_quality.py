"""Quality counts and profiles of columns over persons, for the site's own staff and rules. Profiles are never
sent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import Code, RequestError
from eigenveil.study.study import Column

if TYPE_CHECKING:
    from eigenveil_client.records.recoding.persons import MarkedValues

Bounds = tuple[float, float]
ANYTHING: Bounds = (-math.inf, math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlausibleRange:
    """The range, in `unit`, of nearly all values of a column, from site.toml or its dictionary."""

    lower: float
    upper: float
    unit: str


PlausibleRanges = Mapping[str, PlausibleRange]  # by the name of the column
NO_RANGES: PlausibleRanges = MappingProxyType({})
# Common spellings of units and UCUM's, in small letters.
SAME_UNIT = {
    "year": "a",
    "years": "a",
    "yr": "a",
    "y": "a",
    "kg/m^2": "kg/m2",
    "kg/m²": "kg/m2",
    "mmhg": "mm[hg]",
}


def check_units(columns: Iterable[Column], ranges: PlausibleRanges) -> None:
    """Raise an error if a study uses another unit than the site's plausible range of a column.

    Otherwise a study could switch the check of plausible values off by its unit. Only settings and the study
    are compared, no record.

    Raises RequestError: code `site-policy`."""
    other = [
        f"{one.name} in {one.unit or 'no unit'} (site's dictionary: {ranges[one.name].unit or 'none'})"
        for one in columns
        if one.name in ranges and _unit(ranges[one.name].unit) != _unit(one.unit)
    ]
    if other:
        raise RequestError(
            Code.POLICY,
            f"the study has {'; '.join(other)}. Use that unit, or name another dictionary in site.toml",
        )


def _unit(unit: str) -> str:
    """Return a unit in one spelling: analysts write mg/dl and year where UCUM has mg/dL and a."""
    folded = unit.replace(" ", "").casefold()
    return SAME_UNIT.get(folded, folded)


def plausible_bounds(column: Column, ranges: PlausibleRanges) -> Bounds:
    """Return the plausible bounds of a study's column. Its unit was checked before (`check_units`)."""
    found = ranges.get(column.name)
    return ANYTHING if found is None else (found.lower, found.upper)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnQuality:
    """Numbers of persons by the value they have in one column.

    All persons in the records are counted, before a study's rule for missing values drops any, and from this
    column alone: no other column of a study changes a count. `missing` persons lack a value; `unreadable` are
    those of them with an unreadable cell. Values `below` and `above` the bounds of the study count as the
    bound; `at_bound` values equal one. `implausible` values lie outside the column's plausible range, if
    there is one, which no study can change."""

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
        """The number of persons with a value beyond the bounds."""
        return self.below + self.above

    @property
    def counts(self) -> dict[str, int]:
        """All counts, by their names."""
        return {name: getattr(self, name) for name in COUNTS}

    def __add__(self, other: ColumnQuality) -> ColumnQuality:
        """Return the counts of the union of two disjoint sets of persons."""
        sums = {name: count + other.counts[name] for name, count in self.counts.items()}
        return ColumnQuality(name=self.name, **sums)


COUNTS = tuple(field.name for field in fields(ColumnQuality) if field.name != "name")


def quality(name: str, bounds: Bounds, column: MarkedValues, plausible: Bounds = ANYTHING) -> ColumnQuality:
    """Return the counts of a column over some persons."""
    values, unreadable = column
    missing, (lower, upper), (least, most) = np.isnan(values), bounds, plausible
    return ColumnQuality(
        name=name,
        persons=len(values),
        missing=_number(missing),
        unreadable=_number(missing & unreadable),
        below=_number(values < lower),
        above=_number(values > upper),
        implausible=_number((values < least) | (values > most)),
        at_bound=_number((values == lower) | (values == upper)),
    )


def _number(marks: NDArray[np.bool_]) -> int:
    return int(np.count_nonzero(marks))


MOST_FREQUENT = 20
BINS = 20
PROFILE_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnProfile:
    """Profile of one column over all persons.

    `quality`: its counts. `frequent`: the values that most persons have, each with its number of persons.
    `quantiles`: the values at `PROFILE_QUANTILES`, each of which some person has. `histogram`: the number of
    persons in each of `BINS` equal parts of `span`, which is the bounds, or else the least and the largest
    value. A column without values has its counts alone, and a column that cannot be read its `problem`
    alone."""

    name: str
    quality: ColumnQuality | None = None
    frequent: tuple[tuple[float, int], ...] = ()
    quantiles: tuple[float, ...] = ()
    span: Bounds | None = None
    histogram: tuple[int, ...] = ()
    problem: str | None = None
