"""Sheets: which one, where a row stands, and that a cell is the text that a CSV file would hold."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path

import pytest
import xlsxwriter

from eigenveil_client.records.sources.view import open_source
from eigenveil_client.records.tables.batches import text_of
from eigenveil_client.records.tables.source import BadRecords, Dialect, RecordsConfig, Source


def workbook(folder: Path, **sheets: dict[int, list[object]]) -> Path:
    """Rows by their number, from 1."""
    path = folder / "r.xlsx"
    with xlsxwriter.Workbook(path, {"default_date_format": "yyyy-mm-dd"}) as book:
        for name, rows in sheets.items():
            sheet = book.add_worksheet(name)
            for number, row in rows.items():
                sheet.write_row(number - 1, 1, row)
    return path


def cells(table: Source, header: str) -> list[object]:
    return [cell for batch in table.batches([header], None) for cell in batch.column(0).to_pylist()]


def test_rows_that_hold_nothing_are_no_records_and_places_are_the_sheets(tmp_path: Path) -> None:
    rows: dict[int, list[object]] = {
        3: ["id", "x [mg]"],
        4: [1, 2.5],
        7: [2, "n.d."],
        9: ["", date(2020, 1, 31)],
    }
    table = open_source(RecordsConfig(source=workbook(tmp_path, Werte=rows)))
    assert table.headers == ("id", "x [mg]")
    assert cells(table, "x [mg]") == ["2.5", "n.d.", "2020-01-31"]
    assert cells(table, "id") == ["1", "2", ""]
    assert [table.location(row) for row in range(3)] == ["row 4", "row 7", "row 9"]


def test_a_sheet_is_named_where_there_are_several(tmp_path: Path) -> None:
    path = workbook(tmp_path, A={1: ["x"], 2: [1]}, B={1: ["x"], 2: [2]}, C={})
    assert cells(open_source(RecordsConfig(source=path, sheet="B")), "x") == ["2"]
    for sheet, message in (
        ("", "3 sheets. Name one in `sheet`: A, B, C"),
        ("D", "no sheet 'D'"),
        ("C", "is empty"),
    ):
        with pytest.raises(BadRecords, match=message):
            open_source(RecordsConfig(source=path, sheet=sheet))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BadRecords, match="cannot be read as a workbook"):
        open_source(RecordsConfig(source=path, sheet="A"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5.0, "5"), (-0.1, "-0.1"), (1e-300, "1e-300"), (float("nan"), "nan"), (True, "True"), (7, "7"),
        (datetime(2020, 1, 2, 3, 4), "2020-01-02 03:04:00"), (datetime(2020, 1, 2), "2020-01-02"),  # noqa: DTZ001
    ],
)  # fmt: skip
def test_a_cell_is_the_text_that_reads_as_the_same_value(value: object, text: str) -> None:
    assert text_of(value) == text.encode()
    if isinstance(value, float) and value == value:
        assert float(text) == value


def test_numbers_and_texts_of_a_column_have_one_decimal_mark(tmp_path: Path) -> None:
    path = workbook(tmp_path, A={1: ["x"], 2: [2.125], 3: ["2,125"]})
    statement = RecordsConfig(source=path, dialect=Dialect(separator=";", decimal=",", thousands="."))
    assert cells(open_source(statement), "x") == ["2,125", "2,125"]
