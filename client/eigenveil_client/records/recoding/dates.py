"""Cells as dates, and the years between two: numbers of microseconds since 1970, in UTC where a zone is
stated."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from eigenveil_client.records.recoding.codes import distinct
from eigenveil_client.records.recoding.rule import ColumnRule
from eigenveil_client.records.tables.cells import TEXT, Cells, about, faults, plain, text
from eigenveil_client.records.tables.table import BadRecords

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
YEAR = 365.25 * 86_400e6  # the unit "a" of UCUM
UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}


def dates(header: str, column: pa.Array, rule: ColumnRule) -> Cells:
    """One column of a batch: Arrow's dates and timestamps as they are, text as `rule.dates` says, or ISO
    8601.

    Raises:
        BadRecords: a column of a kind that holds no dates.
    """
    with about(header):
        column = plain(column)
    kind = column.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _moments(header, column, rule)
    # 20240301 and 2024 are dates if a form says so
    written = any(test(kind) for test in TEXT) or (rule.dates is not None and pa.types.is_integer(kind))
    if not written:
        raise BadRecords(f"column {header!r} holds {kind}, where dates are due; convert it", about=header)
    cells, found = text(header, column)
    words = distinct(cells, rule.missing)
    read = [np.nan if word is None else _moment(word, rule.dates) for word in words.words.to_pylist()]
    values = np.array([np.nan if moment is None else moment for moment in read], dtype=np.float64)
    bad = words.where(np.array([moment is None for moment in read], dtype=np.bool_))
    found += faults(header, bad, "no date as it should be written")
    return Cells(values=words.values(values), faults=found)


def _moments(header: str, column: pa.Array, rule: ColumnRule) -> Cells:
    """In floats, as a day far away must not refuse the others of its batch."""
    kind = column.type
    if pa.types.is_date32(kind):
        scale, whole = 86_400e6, pa.int32()
    else:
        scale, whole = UNITS["ms" if pa.types.is_date64(kind) else kind.unit], pa.int64()
    values = column.view(whole).to_numpy(zero_copy_only=False).astype(np.float64) * scale
    if rule.missing:
        codes = [moment for code in rule.missing if (moment := _moment(code, rule.dates)) is not None]
        values = np.where(np.isin(values, codes), np.nan, values)
    return Cells(values=values)


def _moment(word: str, form: str | None) -> float | None:
    with suppress(ValueError, OverflowError):
        day = datetime.fromisoformat(word) if form is None else datetime.strptime(word, form)  # noqa: DTZ007
        zoned = day if day.tzinfo else day.replace(tzinfo=UTC)
        return float((zoned - EPOCH) // timedelta(microseconds=1))
    return None


def years_between(later: Cells, earlier: Cells) -> Cells:
    """Years from one date to another of each row; negative where the other is later."""
    return Cells(values=(later.values - earlier.values) / YEAR, faults=later.faults + earlier.faults)
