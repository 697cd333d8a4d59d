"""What the columns of a site's records look like, for its own people's eyes: nothing of this is ever sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eigenveil.numerics.encoding import FloatArray
from eigenveil_client.records.genotypes.table import GenotypeTable
from eigenveil_client.records.quality import ANYTHING, Bounds, ColumnQuality, quality
from eigenveil_client.records.recoding.blocks import blocks
from eigenveil_client.records.recoding.measure import measure
from eigenveil_client.records.recoding.rule import ColumnRule
from eigenveil_client.records.tables.cells import Reading
from eigenveil_client.records.tables.table import BadRecords, Headers

AT_ONCE = 16  # columns whose values are in memory together: one number a person for each
CELLS = 2**24  # of genotypes, so many numbers: persons are counted there, and columns many
MOST_FREQUENT = 20
BINS = 20
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)

Rules = tuple[ColumnRule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnProfile:
    """One column over all persons: its counts; the values that most persons have, with how many do; values at
    `QUANTILES`, each of which some person has; and how many persons have a value in each of `BINS` equal
    parts of `span`: the bounds, or without any the least and the largest value. Without a value there are
    counts alone, and of a column that cannot be read nothing but its `problem`.
    """

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
    """A profile of each of `columns`, by name, with its bounds if there are any.

    Raises:
        BadRecords: the records cannot be read, whichever column is looked at.
    """
    names, table, at_once = list(columns), reading.table, AT_ONCE
    if isinstance(table, GenotypeTable):
        at_once = max(at_once, CELLS // max(1, table.persons))
    for first in range(0, len(names), at_once):
        some = {name: columns[name] for name in names[first : first + at_once]}
        try:
            yield from _together(reading, rules, some, person)
        except BadRecords:  # of one of them, or of all: each is looked at by itself
            for name, bounds in some.items():
                yield _alone(reading, rules, name, bounds, person)


def _alone(
    reading: Reading, rules: Rules, name: str, bounds: Bounds | None, person: str | None
) -> ColumnProfile:
    try:
        headers = measure(Headers(reading.table.headers), rules, name, None).headers
    except BadRecords as problem:
        return ColumnProfile(name=name, problem=str(problem))
    try:
        return _together(reading, rules, {name: bounds}, person)[0]
    except BadRecords as problem:
        if problem.about not in headers:
            raise
        return ColumnProfile(name=name, problem=str(problem))


def _together(
    reading: Reading, rules: Rules, columns: Mapping[str, Bounds | None], person: str | None
) -> list[ColumnProfile]:
    headers = Headers(reading.table.headers)
    measures = [measure(headers, rules, name, None) for name in columns]
    found = list(blocks(reading, measures, person))
    return [
        _profile(
            name,
            bounds,
            np.concatenate([np.empty(0), *(block[place][0] for block in found)]),
            np.concatenate([np.empty(0, dtype=np.bool_), *(block[place][1] for block in found)]),
        )
        for place, (name, bounds) in enumerate(columns.items())
    ]


def _profile(
    name: str, bounds: Bounds | None, values: FloatArray, unreadable: NDArray[np.bool_]
) -> ColumnProfile:
    counts = quality(name, bounds or ANYTHING, values, unreadable)
    known = values[~np.isnan(values)]
    if not len(known):
        return ColumnProfile(name=name, quality=counts)
    lower, upper = span = bounds or (float(known.min()), float(known.max()))
    different, times = np.unique(known, return_counts=True)
    most = np.argsort(-times, kind="stable")[:MOST_FREQUENT]
    return ColumnProfile(
        name=name,
        quality=counts,
        frequent=tuple(zip(different[most].tolist(), times[most].tolist(), strict=True)),
        quantiles=tuple(np.quantile(known, QUANTILES, method="inverted_cdf").tolist()),
        span=span,
        # of halves, as the width of a span may be beyond the largest float
        histogram=tuple(np.histogram(known / 2, BINS, (lower / 2, upper / 2))[0].tolist()),
    )
