"""Numbers, words, levels, dates and counts by a site's rules; and [P30]: no cell depends on another."""

from __future__ import annotations

import tempfile
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.study.study import Column
from eigenveil_client.records.recoding.parsing import numbers
from eigenveil_client.records.recoding.rule import Censored, ColumnRule, Rows
from eigenveil_client.records.tables.source import THOUSANDS, BadRecords, Dialect
from tests.client.records import support as records
from tests.client.records.support import column, made
from tests.client.site.support import a_study

MISSING, BAD = "missing", "unreadable"
SECRET = "8.7654321"


def ruled(**keys: Any) -> ColumnRule:
    return ColumnRule(name="a", **keys)


@pytest.mark.parametrize(("rule", "cells"), [
    (
        ruled(values=(("female", 0.0), ("1", 7.0)), missing=("?",)),
        {"female": 0.0, " female ": 0.0, "Female": BAD, "1": 7.0, "1.0": 7.0, "?": MISSING, "": MISSING},
    ),
    (ruled(levels=("x", "2"), missing=("u",)), {"x": 1.0, "2": 0.0, "2.0": 0.0, "y": MISSING, "U": MISSING}),
    (
        ruled(rows=Rows.COUNT, missing=("-1",)),
        {"x": 1.0, "5": 1.0, "": 0.0, "NA": 0.0, "-1.0": 0.0, "<3": 1.0},
    ),
])  # fmt: skip
def test_a_word_is_read_by_its_rule(tmp_path: Path, rule: ColumnRule, cells: dict[str, float | str]) -> None:
    assert column(tmp_path / "records.csv", list(cells), rule) == list(cells.values())


def test_an_undeclared_level_is_missing_in_every_indicator(tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    path.write_text("a,b\n0,A\n0,B\n0,C\n0,\n")
    values, unread = made(path, [ColumnRule(name="group", source="b", levels=("A", "B", "AB"))])
    assert values[:2].tolist() == [[1, 0, 0], [0, 1, 0]]
    assert np.isnan(values[2:]).all()
    assert not unread.any()


@pytest.mark.parametrize(("form", "born", "seen", "years"), [
    ("%d.%m.%Y", "1.3.1950", "01.03.2020", 25_568 / 365.25),
    (None, "1950-03-01", "2020-03-01", 25_568 / 365.25),
    (None, "2020-03-01T12:00:00+02:00", "2020-03-01 10:00:00", 0.0),
    ("%Y", "2020", "2019", -365 / 365.25),
    ("%d.%m.%Y", "30.2.1950", "1.1.2000", BAD),
    ("%d.%m.%Y", "1950-03-01", "1.1.2000", BAD),
    (None, "", "2000-01-01", MISSING),
    (None, "9999-01-01", "2000-01-01", MISSING),
    (None, "2000-01-01", "soon", BAD),
])  # fmt: skip
def test_years_lie_between_two_dates(
    tmp_path: Path, form: str | None, born: str, seen: str, years: float | str
) -> None:
    path = tmp_path / "records.csv"
    path.write_text(f"born,seen\n{born},{seen}\n")
    rule = ColumnRule(name="age", source="seen", years_since="born", dates=form, missing=("9999-01-01",))
    values, unread = made(path, [rule])
    found = values[0, 0] if not np.isnan(values[0, 0]) else BAD if unread[0, 0] else MISSING
    assert found == (pytest.approx(years, abs=1e-12) if isinstance(years, float) else years)


def test_dates_of_every_kind_are_the_same_dates(tmp_path: Path) -> None:
    days = [date(1950, 3, 1), None, date(2020, 2, 29)]
    noon = [day and datetime(day.year, day.month, day.day, tzinfo=UTC) for day in days]
    columns = {
        "date32": pa.array(days, pa.date32()),
        "date64": pa.array(days, pa.date64()),
        "text": pa.array([day and day.isoformat() for day in days]),
        "ordinal": pa.array([day and int(day.strftime("%Y%m%d")) for day in days]),
        **{unit: pa.array(noon, pa.timestamp(unit, "Europe/Berlin")) for unit in ("s", "ms", "us", "ns")},
        "far": pa.array([2**31 - 1, None, 0], pa.int32()).view(pa.date32()),
    }
    path = tmp_path / "records.parquet"
    parquet.write_table(pa.table({"epoch": [date(1970, 1, 1)] * 3, **columns}), path)
    forms = {"ordinal": "%Y%m%d"}
    values, _ = made(
        path, [ColumnRule(name=name, years_since="epoch", dates=forms.get(name)) for name in columns]
    )
    wanted = [(day - date(1970, 1, 1)).days / 365.25 if day else np.nan for day in days]
    for found in values.T[:-1]:
        assert found.tolist() == pytest.approx(wanted, nan_ok=True)
    assert values[0, -1] == pytest.approx((2**31 - 1) / 365.25)


RULES = [
    ruled(decimal=",", thousands=".", missing=("-9",), censored=Censored.HALF, factor=2.0),
    ruled(values=(("x", 1.0), ("2", 3.0)), missing=("-9",)), ruled(levels=("x", "2")),
    ruled(years_since="other", dates="%d"), ruled(rows=Rows.COUNT),
]  # fmt: skip


@given(
    st.sampled_from(RULES), st.lists(st.sampled_from(["x", "2", "1,5", "1.5", "<3", "-9", "", "é", "1.234"]))
)
def test_a_cell_is_read_as_if_it_stood_alone(rule: ColumnRule, cells: list[str]) -> None:
    """[P30] Whatever the other cells are, also those that cannot be read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.csv"
        alone = [column(path, [cell], rule)[0] for cell in cells]
        if cells:
            assert column(path, cells, rule) == alone


@pytest.mark.parametrize(("rule", "header", "unit", "message"), [
    (ruled(source="b"), "a", "g/L", "column 'b' is not in the records. Add it"),
    (ruled(years_since="b"), "a", "a", "column 'b' is not in"),
    (ruled(units=("g/dL", "g/L")), "a [g/dL]", "mg/L", "'a' is in 'g/L' by site.toml and in 'mg/L' in the"),
    (ruled(units=("g/dL", "g/L")), "a [mg/L]", "g/L", "'a' is in 'mg/L' in the records and in 'g/dL' by"),
    (ruled(missing=("x",)), "a [g/dL]", "g/L", "'a' is in 'g/dL' in the records and in 'g/L' in the study"),
    (ruled(levels=("x", "y")), "a", "1", "Use 'a=x', 'a=y' in the study"),
    (ruled(years_since="a"), "a", "a", "line 2: not a date in the expected form"),
    (ruled(values=(("x", 1.0),)), "a", "1", "line 2: a word without a number"),
])  # fmt: skip
def test_a_misfit_is_refused_by_name_not_by_value(
    tmp_path: Path, rule: ColumnRule, header: str, unit: str, message: str
) -> None:
    path = tmp_path / "records.csv"
    path.write_text(f"{header},c\n{SECRET},1\n")
    study = a_study(columns=(Column(name="a", unit=unit, lower=0, upper=10),))
    with pytest.raises(BadRecords, match=message) as caught:
        records.read(path, study, rules=(rule,))
    assert SECRET not in str(caught.value)
    assert caught.value.about in ("a", "b")


def test_a_column_of_a_kind_without_dates_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "records.parquet"
    parquet.write_table(pa.table({"a": [1.0, 2.0], "b": [[1], [2]]}), path)
    for rule in (ruled(years_since="a"), ruled(years_since="b", dates="%Y")):
        with pytest.raises(BadRecords, match="not dates"):
            made(path, [rule])
    assert made(path, [ColumnRule(name="b", rows=Rows.COUNT)])[0].tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize(("rule", "cells"), [
    (ruled(), {"1.5": 1.5, "1,5": BAD, "<1": BAD, "-999": -999.0, "ND": BAD, "": MISSING, "nan": MISSING}),
    (ruled(decimal=","), {"1,5": 1.5, " -2 ": -2.0, ",5": 0.5, "1e-2": 0.01, "1.5": BAD, "1,2,3": BAD}),
    (
        ruled(decimal=",", thousands="."),
        {"1.234,5": 1234.5, "1234,5": 1234.5, "1.5": BAD, "12.34": BAD, "1.234.567": 1234567.0, "1,": 1.0},
    ),
    (ruled(thousands="'"), {"1'234.5": 1234.5, "1'23": BAD, "'1": BAD, "inf": BAD, "NA": MISSING}),
    (ruled(thousands=","), {"1,234": 1234.0, "1,234,5": BAD, "0,123": 123.0, "-1,000": -1000.0}),
    (
        ruled(missing=("-999", "ND", ".")),
        {"-999": MISSING, "-999.0": MISSING, "-9.99e2": MISSING, "nd": MISSING, ".": MISSING, "-99": -99.0},
    ),
    (ruled(missing=("-999",), decimal=","), {"-999,0": MISSING, "-999": MISSING, "-999,1": -999.1}),
    (ruled(missing=("-999",), factor=2.0), {"-999": MISSING, "-499.5": -999.0}),
    (
        ruled(censored=Censored.HALF),
        {"<0.6": 0.3, "< 0.6": 0.3, "<=1": 0.5, "≤3": 1.5, ">90": 90.0, "<-2": -2.0, "<x": BAD, "4": 4.0},
    ),
    (ruled(censored=Censored.LIMIT), {"<0.6": 0.6, "≥90": 90.0, "<": BAD, "<<1": BAD, "1<2": BAD}),
    (ruled(censored=Censored.MISSING), {"<0.6": MISSING, ">90": MISSING, "<x": BAD, "5": 5.0, "x": BAD}),
    (ruled(censored=Censored.HALF, decimal=","), {"<0,6": 0.3, "<0.6": BAD}),
    (ruled(factor=0.5, offset=3.0), {"4": 5.0, "": MISSING, "x": BAD}),
    (ruled(factor=1e300), {"1e200": BAD, "1": 1e300}),
    (ruled(units=("g/dL", "g/L")), {"4": 40.0}),
])  # fmt: skip
def test_a_number_is_read_by_its_rule(
    tmp_path: Path, rule: ColumnRule, cells: dict[str, float | str]
) -> None:
    assert column(tmp_path / "records.csv", list(cells), rule) == list(cells.values())


@given(st.floats(-1e15, 1e15, allow_nan=False), st.sampled_from(".,"), st.sampled_from(THOUSANDS))
def test_a_number_written_with_any_marks_is_that_number(value: float, decimal: str, mark: str) -> None:
    if mark == decimal:
        return
    written = f"{value:,.9f}".replace(",", "!").replace(".", decimal).replace("!", mark)
    cells = numbers("a", pa.array([written]), ruled(decimal=decimal, thousands=mark), Dialect(separator=";"))
    assert cells.values.tolist() == [float(f"{value:.9f}")]
