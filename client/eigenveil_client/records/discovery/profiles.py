"""Profiles of columns over persons, in the process that reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from eigenveil_client.records.column_quality import (
    ANYTHING,
    BINS,
    MOST_FREQUENT,
    PROFILE_QUANTILES,
    Bounds,
    ColumnProfile,
    quality,
)
from eigenveil_client.records.genotype_table import GenotypeTable
from eigenveil_client.records.recoding.gather import blocks
from eigenveil_client.records.recoding.parsing import column_parser
from eigenveil_client.records.recoding.persons import MarkedValues, joined
from eigenveil_client.records.recoding.rule import Rules
from eigenveil_client.records.tables.cells import Reading
from eigenveil_client.records.tables.source import BadRecords

AT_ONCE = 16  # columns in memory at a time, with one number a person for each
CELLS = 2**24  # of genotypes in memory at a time: few persons, many columns


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
