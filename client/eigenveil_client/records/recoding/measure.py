"""A column that a study asks for, as what the records have: which cells it is made of, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from eigenveil_client.records.recoding.codes import Words, distinct, places
from eigenveil_client.records.recoding.dates import dates, years_between
from eigenveil_client.records.recoding.numbers import numbers
from eigenveil_client.records.recoding.rule import ColumnRule, Rows
from eigenveil_client.records.tables.cells import NUMERIC, TEXT, Cells, Fault, faults, plain, text
from eigenveil_client.records.tables.dialect import Dialect
from eigenveil_client.records.tables.table import BadRecords, Headers, name_and_unit

Columns = Mapping[str, pa.Array]  # of a batch, by header


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """`name` by its `rule`, from the column `header`, and of dates from `since` and `by`; of a column with
    levels, number `level` of them. Its cells in a row are a function of that row."""

    name: str
    rule: ColumnRule
    header: str
    since: str | None = None
    by: str | None = None
    level: int | None = None

    @property
    def headers(self) -> tuple[str, ...]:
        """The columns of the records that it is made of."""
        return tuple(header for header in (self.header, self.since, self.by) if header is not None)

    def cells(self, columns: Columns, dialect: Dialect) -> Cells:
        """A number for each row of a batch. Raises `BadRecords` for a column that holds neither text nor
        numbers nor dates, as the rule has it."""
        header, column = self.header, columns[self.header]
        if self.rule.rows is Rows.COUNT:
            return _there(header, column, self.rule)
        if self.level is not None:
            return _is_level(header, column, self.rule, self.level)
        if self.rule.values:
            return _by_word(header, column, self.rule)
        if self.since is not None:
            later = dates(header, column, self.rule)
            return years_between(later, dates(self.since, columns[self.since], self.rule))
        return numbers(header, column, self.rule, dialect)

    def when(self, columns: Columns) -> Cells | None:
        """The date of each row, if rows are chosen by one."""
        return None if self.by is None else dates(self.by, columns[self.by], self.rule)


def measure(headers: Headers, rules: tuple[ColumnRule, ...], name: str, unit: str | None) -> Measure:
    """The column `name`, in `unit` if that is given, in records with these headers.

    Raises:
        BadRecords: a column is missing or there twice, or its unit is another one.
    """
    rule, level = _rule(rules, name)
    if rule.units and unit is not None and unit != rule.units[1]:
        raise BadRecords(
            f"column {name!r} is in {rule.units[1]!r} by site.toml and in {unit!r} in the study; convert it",
            about=name,
        )
    header = headers.find(rule.header, None if rule.recodes or rule.units else unit)
    stated = name_and_unit(header)[1]
    if rule.units and header.strip() != rule.header and stated not in (None, rule.units[0]):
        raise BadRecords(
            f"column {rule.header!r} is in {stated!r} in the records and in {rule.units[0]!r} by site.toml",
            about=name,
        )
    return Measure(
        name=name,
        rule=rule,
        header=header,
        since=rule.years_since and headers.find(rule.years_since),
        by=rule.by and headers.find(rule.by),
        level=level,
    )


def check_rules(headers: tuple[str, ...], rules: tuple[ColumnRule, ...]) -> None:
    """Insist that the columns which the rules are about are there. Raises as `measure`."""
    names = Headers(headers)
    for rule in rules:
        measure(names, rules, rule.columns[0], None)


def _rule(rules: tuple[ColumnRule, ...], name: str) -> tuple[ColumnRule, int | None]:
    for rule in rules:
        if name in rule.columns:
            return rule, rule.columns.index(name) if rule.levels else None
        if name == rule.name:
            raise BadRecords(
                f"column {name!r} has levels, so a study asks for {', '.join(map(repr, rule.columns))}",
                about=name,
            )
    return ColumnRule(name=name), None


def _words(header: str, column: pa.Array, rule: ColumnRule) -> tuple[Words, tuple[Fault, ...]]:
    cells, found = text(header, column)
    return distinct(cells, rule.missing), found


def _there(header: str, column: pa.Array, rule: ColumnRule) -> Cells:
    """1 where a cell is not missing, whatever it holds."""
    if not any(test(plain(column).type) for test in (*TEXT, *NUMERIC)):
        return Cells(values=np.where(column.is_valid().to_numpy(zero_copy_only=False), 1.0, np.nan))
    words, found = _words(header, column, rule)
    return Cells(values=words.values(np.where(words.said, 1.0, np.nan)), faults=found)


def _is_level(header: str, column: pa.Array, rule: ColumnRule, level: int) -> Cells:
    """1 at this level and 0 at another that is declared; missing at any other word, in all indicators
    alike."""
    words, found = _words(header, column, rule)
    place = places(words.words, rule.levels)
    return Cells(values=words.values(np.where(place < 0, np.nan, place == level)), faults=found)


def _by_word(header: str, column: pa.Array, rule: ColumnRule) -> Cells:
    """The number of each word that has one; any other cannot be read."""
    words, found = _words(header, column, rule)
    place = places(words.words, tuple(word for word, _ in rule.values))
    numbers = np.array([number for _, number in rule.values])
    found += faults(header, words.where(words.said & (place < 0)), "a word that has no number")
    return Cells(values=words.values(np.where(place < 0, np.nan, numbers[place])), faults=found)
