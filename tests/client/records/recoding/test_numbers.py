"""Numbers as hospitals write them: a cell is what its rule says, and no cell is guessed at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil_client.records.recoding.parsing import numbers
from eigenveil_client.records.recoding.rule import Censored, ColumnRule
from eigenveil_client.records.tables.source import THOUSANDS, Dialect
from tests.client.records.recoding.support import column

MISSING, BAD = "missing", "unreadable"


def ruled(**keys: Any) -> ColumnRule:
    return ColumnRule(name="a", **keys)


@pytest.mark.parametrize(
    ("rule", "cells"),
    [
        (
            ruled(),
            {"1.5": 1.5, "1,5": BAD, "<1": BAD, "-999": -999.0, "ND": BAD, "": MISSING, "nan": MISSING},
        ),
        (ruled(decimal=","), {"1,5": 1.5, " -2 ": -2.0, ",5": 0.5, "1e-2": 0.01, "1.5": BAD, "1,2,3": BAD}),
        (
            ruled(decimal=",", thousands="."),
            {
                "1.234,5": 1234.5,
                "1234,5": 1234.5,
                "1.5": BAD,
                "12.34": BAD,
                "1.234.567": 1234567.0,
                "1,": 1.0,
            },
        ),
        (ruled(thousands="'"), {"1'234.5": 1234.5, "1'23": BAD, "'1": BAD, "inf": BAD, "NA": MISSING}),
        (ruled(thousands=","), {"1,234": 1234.0, "1,234,5": BAD, "0,123": 123.0, "-1,000": -1000.0}),
        (
            ruled(missing=("-999", "ND", ".")),
            {
                "-999": MISSING,
                "-999.0": MISSING,
                "-9.99e2": MISSING,
                "nd": MISSING,
                ".": MISSING,
                "-99": -99.0,
            },
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
    ],
)
def test_a_cell_is_what_its_rule_says(
    tmp_path: Path, rule: ColumnRule, cells: dict[str, float | str]
) -> None:
    assert column(tmp_path / "records.csv", list(cells), rule) == list(cells.values())


@given(st.floats(-1e15, 1e15, allow_nan=False), st.sampled_from(".,"), st.sampled_from(THOUSANDS))
def test_a_number_that_is_written_with_any_marks_is_that_number(
    value: float, decimal: str, mark: str
) -> None:
    if mark == decimal:
        return
    written = f"{value:,.9f}".replace(",", "!").replace(".", decimal).replace("!", mark)
    cells = numbers("a", pa.array([written]), ruled(decimal=decimal, thousands=mark), Dialect(separator=";"))
    assert cells.values.tolist() == [float(f"{value:.9f}")]


def test_a_rule_without_marks_has_those_of_the_whole_table() -> None:
    table = Dialect(separator=";", decimal=",")
    cells = pa.array(["1,5", "1.5"])
    assert numbers("a", cells, ruled(), table).values.tolist()[0] == 1.5
    assert numbers("a", cells, ruled(decimal="."), table).values.tolist()[1] == 1.5
    assert numbers("a", cells, ruled(), table).unreadable.tolist() == [False, True]


def test_numbers_that_are_none_of_text_have_codes_and_factors_as_well() -> None:
    rule = ruled(missing=("-999", "ND"), factor=2.0, censored=Censored.HALF, decimal=",")
    for kind in (pa.int32(), pa.float32(), pa.decimal128(30, 2)):
        values = numbers("a", pa.array([1, -999, None, 4]).cast(kind), rule, Dialect()).values
        assert np.array_equal(values, [2.0, np.nan, np.nan, 8.0], equal_nan=True)
