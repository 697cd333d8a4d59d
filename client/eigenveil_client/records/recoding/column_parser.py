"""Parsers of a study's columns: the columns of the records that each uses, and its rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from eigenveil_client.records.recoding.parsing import dates, numbers, years_between
from eigenveil_client.records.recoding.rule import ColumnRule, Rows
from eigenveil_client.records.tables.cells import (
    NUMERIC,
    TEXT,
    Cells,
    DistinctCells,
    Fault,
    code_positions,
    distinct,
    faults,
    plain,
    text,
)
from eigenveil_client.records.tables.records_config import Dialect
from eigenveil_client.records.tables.source import BadRecords, Headers, name_and_unit

Columns = Mapping[str, pa.Array]  # of a batch, by header


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnParser:
    """Parser of the column `name`, by its `rule`, from the column `header` of the records.

    `since` and `by`: columns of dates. `level`: the number of a level, of a column with levels. A cell is a
    function of its row."""

    name: str
    rule: ColumnRule
    header: str
    since: str | None = None
    by: str | None = None
    level: int | None = None

    @property
    def headers(self) -> tuple[str, ...]:
        """The columns of the records that it uses."""
        return tuple(header for header in (self.header, self.since, self.by) if header is not None)

    def cells(self, columns: Columns, dialect: Dialect) -> Cells:
        """Return a number for each row of a batch. Raises `BadRecords`: the rule does not fit a column's
        type."""
        header, column = self.header, columns[self.header]
        if self.rule.rows is Rows.COUNT:
            return _presence(header, column, self.rule)
        if self.level is not None:
            return _level_indicator(header, column, self.rule, self.level)
        if self.rule.values:
            return _mapped_values(header, column, self.rule)
        if self.since is not None:
            later = dates(header, column, self.rule)
            return years_between(later, dates(self.since, columns[self.since], self.rule))
        return numbers(header, column, self.rule, dialect)

    def when(self, columns: Columns) -> Cells | None:
        """Return the date of each row, if the rule chooses rows by date."""
        return None if self.by is None else dates(self.by, columns[self.by], self.rule)


def column_parser(
    headers: Headers, rules: tuple[ColumnRule, ...], name: str, unit: str | None
) -> ColumnParser:
    """Return the parser of the column `name`, in `unit` if that is given, of records with these headers.

    Raises:
        BadRecords: a column is missing or repeated, or has another unit.
    """
    rule, level = _rule(rules, name)
    if rule.units and unit is not None and unit != rule.units[1]:
        raise BadRecords(
            f"column {name!r} is in {rule.units[1]!r} by site.toml and in {unit!r} in the study. Convert it",
            about=name,
        )
    header = headers.find(rule.header, None if rule.recodes or rule.units else unit)
    stated = name_and_unit(header)[1]
    if rule.units and header.strip() != rule.header and stated not in (None, rule.units[0]):
        raise BadRecords(
            f"column {rule.header!r} is in {stated!r} in the records and in {rule.units[0]!r} by site.toml",
            about=name,
        )
    return ColumnParser(
        name=name,
        rule=rule,
        header=header,
        since=rule.years_since and headers.find(rule.years_since),
        by=rule.by and headers.find(rule.by),
        level=level,
    )


def check_rules(headers: tuple[str, ...], rules: tuple[ColumnRule, ...]) -> None:
    """Raise an error if a column of a rule is missing. Raises as `column_parser`."""
    names = Headers(headers)
    for rule in rules:
        column_parser(names, rules, rule.columns[0], None)


def _rule(rules: tuple[ColumnRule, ...], name: str) -> tuple[ColumnRule, int | None]:
    for rule in rules:
        if name in rule.columns:
            return rule, rule.columns.index(name) if rule.levels else None
        if name == rule.name:
            raise BadRecords(
                f"column {name!r} has levels. Use {', '.join(map(repr, rule.columns))} in the study",
                about=name,
            )
    return ColumnRule(name=name), None


def _distinct_words(
    header: str, column: pa.Array, rule: ColumnRule
) -> tuple[DistinctCells, tuple[Fault, ...]]:
    cells, found = text(header, column)
    return distinct(cells, rule.missing), found


def _presence(header: str, column: pa.Array, rule: ColumnRule) -> Cells:
    """Return 1 where a cell is not missing, whatever it holds."""
    if not any(test(plain(column).type) for test in (*TEXT, *NUMERIC)):
        return Cells(values=np.where(column.is_valid().to_numpy(zero_copy_only=False), 1.0, np.nan))
    words, found = _distinct_words(header, column, rule)
    return Cells(values=words.values(np.where(words.present, 1.0, np.nan)), faults=found)


def _level_indicator(header: str, column: pa.Array, rule: ColumnRule, level: int) -> Cells:
    """Return 1 at this level and 0 at another declared level; any other word is missing, in all
    indicators."""
    words, found = _distinct_words(header, column, rule)
    position = code_positions(words.words, rule.levels)
    return Cells(values=words.values(np.where(position < 0, np.nan, position == level)), faults=found)


def _mapped_values(header: str, column: pa.Array, rule: ColumnRule) -> Cells:
    """Return the number of each word that has one; any other word is unreadable."""
    words, found = _distinct_words(header, column, rule)
    position = code_positions(words.words, tuple(word for word, _ in rule.values))
    numbers = np.array([number for _, number in rule.values])
    found += faults(header, words.where(words.present & (position < 0)), "a word without a number in values")
    return Cells(values=words.values(np.where(position < 0, np.nan, numbers[position])), faults=found)
