"""Cells as numbers, by a rule: what a cell becomes is a function of that cell alone."""

from __future__ import annotations

import re
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from eigenveil.numerics.encoding import FloatArray
from eigenveil_client.records.recoding.codes import distinct, number
from eigenveil_client.records.recoding.rule import Censored, ColumnRule
from eigenveil_client.records.tables.cells import (
    MISSING,
    NUMERIC,
    TEXT,
    Cells,
    about,
    faults,
    plain,
    readable,
    text,
)
from eigenveil_client.records.tables.dialect import Dialect
from eigenveil_client.records.tables.table import BadRecords

SIGNED = r"^(?P<sign><=?|>=?|≤|≥)\s*(?P<limit>.*)$"
NO_NUMBER = "text where a number is due"


def numbers(header: str, column: pa.Array, rule: ColumnRule, dialect: Dialect) -> Cells:
    """One column of a batch; the dialect is the table's.

    Raises:
        BadRecords: a column of a kind that holds neither numbers nor text.
    """
    with about(header):
        column = plain(column)
    if any(test(column.type) for test in TEXT):
        words, found = text(header, column)
        values, bad = _written(words, rule, rule.written(dialect))
        found += faults(header, bad, NO_NUMBER)
    elif any(test(column.type) for test in NUMERIC):
        with about(header):
            values, found = _floats(column), ()
    else:
        raise BadRecords(
            f"column {header!r} holds {column.type}, where numbers are due; convert it", about=header
        )
    infinite = np.isinf(values)
    found += faults(header, infinite, "an infinite number; mark it as missing or mend it")
    values = np.where(infinite | _coded(values, rule, column.type), np.nan, values)
    factor, offset = rule.linear
    if (factor, offset) != (1.0, 0.0):
        with np.errstate(over="ignore"):
            values = values * factor + offset
        beyond = np.isinf(values)
        found += faults(
            header, beyond, "a number that its factor and offset take beyond the range of numbers"
        )
        values = np.where(beyond, np.nan, values)
    return Cells(values=values, faults=found)


def _floats(column: pa.Array) -> FloatArray:
    values: FloatArray = pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values


def _coded(values: FloatArray, rule: ColumnRule, kind: pa.DataType) -> NDArray[np.bool_]:
    """Which values are codes; a column of short floats holds a code rounded as they are."""
    codes = np.array([value for code in rule.missing if (value := number(code)) is not None])
    if pa.types.is_float16(kind) or pa.types.is_float32(kind):
        codes = codes.astype(kind.to_pandas_dtype()).astype(np.float64)
    return np.isin(values, codes)


def _written(cells: pa.Array, rule: ColumnRule, marks: Dialect) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Text as numbers, and which of it is none."""
    if (rule.missing, rule.censored, marks.decimal, marks.thousands) == ((), None, ".", ""):
        missing = pc.is_in(pc.utf8_lower(cells), pa.array(MISSING))
        plain_cells = pc.if_else(missing, pa.scalar(None, pa.string()), cells)
        with suppress(pa.ArrowInvalid):  # if some cell is no number, each is looked at by itself
            return _floats(pc.cast(plain_cells, pa.float64())), np.zeros(len(cells), dtype=np.bool_)
    words = distinct(cells, rule.missing)
    found = _worded(words.words, rule, marks)
    bad = words.said & found.is_null().to_numpy(zero_copy_only=False)
    return words.values(_floats(found)), words.where(bad)


def _worded(words: pa.Array, rule: ColumnRule, marks: Dialect) -> pa.Array:
    """Words as numbers: null is no number, NaN a missing one."""
    if rule.censored is None:
        return readable(_plain(words, marks))
    parts = pc.extract_regex(words, SIGNED)
    signed = pc.is_valid(parts)
    sign = pc.struct_field(parts, "sign")
    limit = pc.utf8_trim_whitespace(pc.struct_field(parts, "limit"))
    values = readable(_plain(pc.if_else(signed, limit, words), marks))
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


def _plain(words: pa.Array, marks: Dialect) -> pa.Array:
    """Numbers that are written with these marks as Arrow reads them; null for what is not written so: a mark
    of thousands stands before three digits, and a decimal mark of another country is no mark."""
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
