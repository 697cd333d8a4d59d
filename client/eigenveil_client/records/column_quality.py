"""Quality counts and profiles of columns over persons, for the site's own staff and rules. Profiles are never
sent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import Code, RequestError
from eigenveil.study.study import Column
from eigenveil_client.records.genotype_table import GenotypeTable
from eigenveil_client.records.recoding.gather import blocks
from eigenveil_client.records.recoding.parsing import column_parser
from eigenveil_client.records.recoding.persons import MarkedValues, joined
from eigenveil_client.records.recoding.rule import Rules
from eigenveil_client.records.tables.cells import Reading
from eigenveil_client.records.tables.source import BadRecords

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


AT_ONCE = 16  # columns in memory at a time, with one number a person for each
CELLS = 2**24  # of genotypes in memory at a time: few persons, many columns
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


def profile(
    reading: Reading, rules: Rules, columns: Mapping[str, Bounds | None], person: str | None
) -> Iterator[ColumnProfile]:
    """Yield a profile of each of `columns`, which maps names to bounds, if there are any."""
    names, table, at_once = list(columns), reading.table, AT_ONCE
    if isinstance(table, GenotypeTable):
        at_once = max(at_once, CELLS // max(1, table.persons))
    for first in range(0, len(names), at_once):
        some = {name: columns[name] for name in names[first : first + at_once]}
        try:
            yield from _profile_columns(reading, rules, some, person)
        except BadRecords:  # one column, or all of them: profile each by itself
            for name, bounds in some.items():
                yield _profile_column(reading, rules, name, bounds, person)


def _profile_column(
    reading: Reading, rules: Rules, name: str, bounds: Bounds | None, person: str | None
) -> ColumnProfile:
    headers: tuple[str, ...] = ()
    try:
        headers = column_parser(reading.headers, rules, name, None, reading.missing).headers
        return _profile_columns(reading, rules, {name: bounds}, person)[0]
    except BadRecords as problem:
        if headers and problem.about not in headers:
            raise
        return ColumnProfile(name=name, problem=str(problem))


def _profile_columns(
    reading: Reading, rules: Rules, columns: Mapping[str, Bounds | None], person: str | None
) -> list[ColumnProfile]:
    headers = reading.headers
    parsers = [column_parser(headers, rules, name, None, reading.missing) for name in columns]
    found = list(blocks(reading, parsers, person))
    return [
        _profile(name, bounds, joined([block[position] for block in found]))
        for position, (name, bounds) in enumerate(columns.items())
    ]


def _profile(name: str, bounds: Bounds | None, column: MarkedValues) -> ColumnProfile:
    counts = quality(name, bounds or ANYTHING, column)
    known = column[0][~np.isnan(column[0])]
    if not len(known):
        return ColumnProfile(name=name, quality=counts)
    lower, upper = span = bounds or (float(known.min()), float(known.max()))
    different, times = np.unique(known, return_counts=True)
    most = np.argsort(-times, kind="stable")[:MOST_FREQUENT]
    return ColumnProfile(
        name=name,
        quality=counts,
        frequent=tuple(zip(different[most].tolist(), times[most].tolist(), strict=True)),
        quantiles=tuple(np.quantile(known, PROFILE_QUANTILES, method="inverted_cdf").tolist()),
        span=span,
        # halved, as the width of a span may exceed the largest float
        histogram=tuple(np.histogram(known / 2, BINS, (lower / 2, upper / 2))[0].tolist()),
    )
