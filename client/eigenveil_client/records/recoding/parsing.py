"""Parsers of a study's columns: cells as numbers or dates, from the columns of the records and by a rule.
Each value is a function of its cell alone. Dates are microseconds since 1970, in UTC where a zone is
stated."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from eigenveil.numerics.encoding import FloatArray
from eigenveil_client.records.recoding.rule import Censored, ColumnRule, Rows, Rules
from eigenveil_client.records.tables.cells import (
    NUMERIC,
    TEXT,
    ColumnCells,
    about,
    code_positions,
    distinct,
    faults,
    plain,
    readable,
    text,
)
from eigenveil_client.records.tables.codes import MISSING, number
from eigenveil_client.records.tables.names import name_and_unit
from eigenveil_client.records.tables.source import BadRecords, Dialect, Headers

SIGNED = r"^(?P<sign><=?|>=?|≤|≥)\s*(?P<limit>.*)$"
NO_NUMBER = "text instead of a number"


def numbers(header: str, column: pa.Array, rule: ColumnRule, dialect: Dialect) -> ColumnCells:
    """Parse a column by the table's dialect; BadRecords if it holds neither numbers nor text."""
    column = plain(header, column)
    if any(test(column.type) for test in TEXT):
        words, found = text(header, column)
        values, bad = _parse_text(words, rule, rule.number_marks(dialect))
        found += faults(header, bad, NO_NUMBER)
    elif any(test(column.type) for test in NUMERIC):
        with about(header):
            values, found = _to_floats(column), ()
    else:
        raise BadRecords(f"column {header!r} holds {column.type}, not numbers. Convert it", about=header)
    infinite = np.isinf(values)
    found += faults(header, infinite, "an infinite number. Correct it, or mark it as missing")
    missing = infinite | _is_code(values, rule, column.type) if rule.missing else infinite
    if missing.any():
        values = np.where(missing, np.nan, values)
    factor, offset = rule.linear
    if (factor, offset) != (1.0, 0.0):
        with np.errstate(over="ignore"):
            values = values * factor + offset
        beyond = np.isinf(values)
        found += faults(header, beyond, "a number beyond the range of numbers after its factor and offset")
        values = np.where(beyond, np.nan, values)
    return ColumnCells(values=values, faults=found)


def _to_floats(column: pa.Array) -> FloatArray:
    return np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False))


def _is_code(values: FloatArray, rule: ColumnRule, kind: pa.DataType) -> NDArray[np.bool_]:
    """Return True for values that are codes, rounded as the floats of the column are."""
    codes = np.array([value for code in rule.missing if (value := number(code)) is not None])
    if pa.types.is_float16(kind) or pa.types.is_float32(kind):
        codes = codes.astype(kind.to_pandas_dtype()).astype(np.float64)
    return np.isin(values, codes)


def _parse_text(cells: pa.Array, rule: ColumnRule, marks: Dialect) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return text as numbers, and True where it is not a number."""
    if _is_simple(rule, marks):
        missing = pc.is_in(pc.utf8_lower(cells), pa.array(MISSING))
        plain_cells = pc.if_else(missing, pa.scalar(None, pa.string()), cells)
        with suppress(pa.ArrowInvalid):  # a cell is not a number: parse each by itself
            return _to_floats(pc.cast(plain_cells, pa.float64())), np.zeros(len(cells), dtype=np.bool_)
    words = distinct(cells, rule.missing)
    found = _parse_words(words.words, rule, marks)
    bad = words.present & found.is_null().to_numpy(zero_copy_only=False)
    return words.values(_to_floats(found)), words.where(bad)


def _is_simple(rule: ColumnRule, marks: Dialect) -> bool:
    """Return True if cells of text are numbers as Arrow writes them, or the usual words for "missing"."""
    return (rule.missing, rule.censored, marks.decimal, marks.thousands) == ((), None, ".", "")


def _parse_words(words: pa.Array, rule: ColumnRule, marks: Dialect) -> pa.Array:
    """Return words as numbers: null if it is not a number, NaN if it is missing."""
    if rule.censored is None:
        return readable(_without_marks(words, marks))
    parts = pc.extract_regex(words, SIGNED)
    signed = pc.is_valid(parts)
    sign = pc.struct_field(parts, "sign")
    limit = pc.utf8_trim_whitespace(pc.struct_field(parts, "limit"))
    values = readable(_without_marks(pc.if_else(signed, limit, words), marks))
    match rule.censored:
        case Censored.LIMIT:
            return values
        case Censored.MISSING:
            missing = pc.and_(signed, pc.is_valid(values))
            return pc.if_else(pc.fill_null(missing, False), pa.scalar(np.nan, pa.float64()), values)
        case Censored.HALF:
            under = pc.is_in(sign, value_set=pa.array(["<", "<=", "≤"]))
            halved = pc.and_(under, pc.fill_null(pc.greater(values, 0), False))
            return pc.if_else(halved, pc.divide(values, 2.0), values)


def _without_marks(words: pa.Array, marks: Dialect) -> pa.Array:
    """Return numbers with these marks as Arrow reads them; null for text of another form. A mark of thousands
    stands before three digits. The decimal mark of another country is not accepted."""
    if (marks.decimal, marks.thousands) == (".", ""):
        return words
    decimal, group = re.escape(marks.decimal), re.escape(marks.thousands)
    grouped = rf"|[0-9]{{1,3}}(?:{group}[0-9]{{3}})+" if marks.thousands else ""
    shape = rf"^[+-]?(?:(?:[0-9]+{grouped})(?:{decimal}[0-9]*)?|{decimal}[0-9]+)(?:[eE][+-]?[0-9]+)?$"
    fits = pc.match_substring_regex(words, shape)
    if marks.thousands:
        words = pc.replace_substring(words, marks.thousands, "")
    words = pc.replace_substring(words, marks.decimal, ".")
    return pc.if_else(fits, words, pa.scalar(None, pa.string()))


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
YEAR = 365.25 * 86_400e6  # the unit "a" of UCUM
UNITS = {"days": 86_400e6, "s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}


def dates(header: str, column: pa.Array, rule: ColumnRule) -> ColumnCells:
    """Parse Arrow's dates, and text as `rule.dates` or ISO 8601; BadRecords for other types."""
    column = plain(header, column)
    kind = column.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _moments(header, column, rule)
    # with a stated form, integers such as 20240301 and 2024 are dates
    if not (any(test(kind) for test in TEXT) or (rule.dates is not None and pa.types.is_integer(kind))):
        raise BadRecords(f"column {header!r} holds {kind}, not dates. Convert it", about=header)
    cells, found = text(header, column)
    words = distinct(cells, rule.missing)
    read = [np.nan if word is None else _moment(word, rule.dates) for word in words.words.to_pylist()]
    bad = words.where(np.array([moment is None for moment in read], dtype=np.bool_))
    found += faults(header, bad, "not a date in the expected form")
    return ColumnCells(values=words.values(np.array(read, dtype=np.float64)), faults=found)


def _moments(header: str, column: pa.Array, rule: ColumnRule) -> ColumnCells:
    """Convert dates to floats, as one date out of range must not refuse its batch."""
    kind = column.type
    days, whole = pa.types.is_date32(kind), pa.int32() if pa.types.is_date32(kind) else pa.int64()
    unit = "days" if days else "ms" if pa.types.is_date64(kind) else kind.unit
    values = column.view(whole).to_numpy(zero_copy_only=False).astype(np.float64) * UNITS[unit]
    if rule.missing:
        codes = [moment for code in rule.missing if (moment := _moment(code, rule.dates)) is not None]
        values = np.where(np.isin(values, codes), np.nan, values)
    return ColumnCells(values=values)


WITH_YEAR = re.compile("%[YyGcx]")


def _moment(word: str, form: str | None) -> float | None:
    if form is not None and not WITH_YEAR.search(form):  # of 1900, as ever: Python 3.15 may take another year
        word, form = f"1900|{word}", f"%Y|{form}"
    with suppress(ValueError, OverflowError):
        day = datetime.fromisoformat(word) if form is None else datetime.strptime(word, form)  # noqa: DTZ007
        zoned = day if day.tzinfo else day.replace(tzinfo=UTC)
        return float((zoned - EPOCH) // timedelta(microseconds=1))
    return None


Columns = Mapping[str, pa.Array]  # of a batch, by header


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnParser:
    """Parser of a column by its `rule`, from the column `header` of the records. `since` and `by`: columns of
    dates. `level`: the number of a level, of a column with levels."""

    rule: ColumnRule
    header: str
    since: str | None = None
    by: str | None = None
    level: int | None = None

    @property
    def headers(self) -> tuple[str, ...]:
        """The columns of the records that it uses."""
        return tuple(header for header in (self.header, self.since, self.by) if header is not None)

    @property
    def is_number(self) -> bool:
        """True if a cell is the number itself, before its unit is converted."""
        words = self.rule.rows is Rows.COUNT or self.rule.levels or self.rule.values
        return self.since is None and not words

    def cells_and_dates(self, columns: Columns, dialect: Dialect) -> tuple[ColumnCells, ...]:
        """Return a number for each row of a batch, and its date if the rule chooses rows by date."""
        cells = self._cells(columns, dialect)
        return (cells,) if self.by is None else (cells, dates(self.by, columns[self.by], self.rule))

    def _cells(self, columns: Columns, dialect: Dialect) -> ColumnCells:
        header, column, counted = self.header, columns[self.header], self.rule.rows is Rows.COUNT
        if counted and not any(test(plain(header, column).type) for test in (*TEXT, *NUMERIC)):
            present = column.is_valid().to_numpy(zero_copy_only=False)  # whatever a cell holds
            return ColumnCells(values=np.where(present, 1.0, np.nan))
        if counted or self.rule.levels or self.rule.values:
            return _word_values(header, column, self.rule, self.level)
        if self.since is not None:
            later, earlier = (
                dates(header, column, self.rule),
                dates(self.since, columns[self.since], self.rule),
            )
            years = (later.values - earlier.values) / YEAR  # negative if they are swapped
            return ColumnCells(values=years, faults=later.faults + earlier.faults)
        return numbers(header, column, self.rule, dialect)


def column_parser(
    headers: Headers, rules: Rules, name: str, unit: str | None, missing: tuple[str, ...] = ()
) -> ColumnParser:
    """Return the parser of the column `name`, in `unit` if that is given, of records with these headers.
    `missing`: the words for "missing" in every column."""
    rule, level = _rule(rules, name)
    rule = rule.with_missing(missing)
    if rule.units and unit not in (None, rule.units[1]):
        units = f"{rule.units[1]!r} by site.toml and in {unit!r} in the study"
        raise BadRecords(f"column {name!r} is in {units}. Convert it", about=name)
    header = headers.find(rule.header, None if rule.recodes or rule.units else unit)
    stated = name_and_unit(header)[1]
    if rule.units and header.strip() != rule.header and stated not in (None, rule.units[0]):
        units = f"{stated!r} in the records and in {rule.units[0]!r} by site.toml"
        raise BadRecords(f"column {rule.header!r} is in {units}", about=name)
    since, by = (other and headers.find(other) for other in (rule.years_since, rule.by))
    return ColumnParser(rule=rule, header=header, since=since, by=by, level=level)


def number_headers(parsers: Sequence[ColumnParser], dialect: Dialect, person: str | None) -> frozenset[str]:
    """Return the columns of the records of which only such numbers are used, never the text."""
    simple = [
        one for one in parsers if one.is_number and _is_simple(one.rule, one.rule.number_marks(dialect))
    ]
    text = {header for one in parsers if one not in simple for header in one.headers}
    text |= {one.by for one in parsers if one.by is not None}
    return frozenset({one.header for one in simple} - text - {person})


def check_rules(headers: tuple[str, ...], rules: Rules) -> None:
    """Raise an error if a column of a rule is missing. Raises as `column_parser`."""
    names = Headers(headers)
    for rule in rules:
        column_parser(names, rules, rule.columns[0], None)


def _rule(rules: Rules, name: str) -> tuple[ColumnRule, int | None]:
    for rule in rules:
        if name in rule.columns:
            return rule, rule.columns.index(name) if rule.levels else None
        if name == rule.name:
            use = f"Use {', '.join(map(repr, rule.columns))} in the study"
            raise BadRecords(f"column {name!r} has levels. {use}", about=name)
    return ColumnRule(name=name), None


def _word_values(header: str, column: pa.Array, rule: ColumnRule, level: int | None) -> ColumnCells:
    """Return a number for each word: 1 if it is counted or of this level, 0 if of another, or as in `values`.
    A word that is no declared level is missing, in all indicators; one without a number in `values` is
    unreadable."""
    cells, found = text(header, column)
    words = distinct(cells, rule.missing)
    if rule.rows is Rows.COUNT:
        return ColumnCells(values=words.values(np.where(words.present, 1.0, np.nan)), faults=found)
    codes = rule.levels if rule.levels else tuple(word for word, _ in rule.values)
    position = code_positions(words.words, codes)
    if level is not None:
        indicator = np.where(position < 0, np.nan, position == level)
        return ColumnCells(values=words.values(indicator), faults=found)
    numbers = np.array([number for _, number in rule.values])
    found += faults(header, words.where(words.present & (position < 0)), "a word without a number in values")
    return ColumnCells(values=words.values(np.where(position < 0, np.nan, numbers[position])), faults=found)
