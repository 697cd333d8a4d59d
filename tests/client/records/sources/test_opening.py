"""The same rows in every kind of file, and by every SELECT, are the same records."""

from __future__ import annotations

import gzip
import sqlite3
import sys
from contextlib import closing
from datetime import date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest
import xlsxwriter

from eigenveil.errors import Code, RequestError
from eigenveil_client.records.sources.view import open_source
from eigenveil_client.records.tables.batches import text_of
from eigenveil_client.records.tables.source import BadRecords, Dialect, RecordsConfig, Source
from tests.client.records.support import read
from tests.client.site.support import a_study
from tests.support import Patch

# Person, and what it has; in the order of persons, which a SELECT gives.
ROWS = [(number, number % 9 + 0.25, None if number == 5 else number / 8, -3.5) for number in range(1, 40)]
NAMES = ("person", "a", "b", "c")
LOCAL = Dialect(separator=";", decimal=",", encoding="latin-1")
NUMBERED = "SELECT person::INT AS person, {} FROM records".format(
    ", ".join(f"TRY_CAST(replace({name}::TEXT, ',', '.') AS DOUBLE) AS {name}" for name in "abc")
)


def delimited(mark: str, decimal: str) -> str:
    cells = [["" if cell is None else repr(cell).replace(".", decimal) for cell in row] for row in ROWS]
    return "".join(f"{mark.join(row)}\n" for row in [list(NAMES), *cells])


def write(folder: Path) -> dict[str, RecordsConfig]:
    """The rows in every kind of file, and what says how to read it."""
    columns = dict(zip(NAMES, map(list, zip(*ROWS, strict=True)), strict=True))
    table = pa.table(columns)
    (folder / "r.csv").write_text(delimited(",", "."))
    (folder / "r.tsv").write_text(delimited("\t", "."))
    (folder / "r.csv.gz").write_bytes(gzip.compress(delimited(",", ".").encode()))
    (folder / "local.txt.gz").write_bytes(gzip.compress(delimited(";", ",").encode("latin-1")))
    parquet.write_table(table, folder / "r.parquet")
    (folder / "parts").mkdir()
    parquet.write_table(table.slice(0, 11), folder / "parts" / "0.parquet")
    parquet.write_table(table.slice(11), folder / "parts" / "1.pq")
    feather.write_feather(table, folder / "r.arrow", compression="uncompressed")
    with xlsxwriter.Workbook(folder / "r.xlsx") as book:
        sheet = book.add_worksheet()
        for number, row in enumerate([NAMES, *ROWS]):
            sheet.write_row(number, 0, row)
    with closing(sqlite3.connect(folder / "r.db")) as database, database:
        database.execute("CREATE TABLE r (person INTEGER, a REAL, b REAL, c REAL)")
        database.executemany("INSERT INTO r VALUES (?, ?, ?, ?)", reversed(ROWS))
    names = ("r.csv", "r.tsv", "r.csv.gz", "r.parquet", "parts", "r.arrow", "r.xlsx")
    plain = {name: RecordsConfig(source=folder / name) for name in names}
    local = RecordsConfig(source=folder / "local.txt.gz", dialect=LOCAL)
    return plain | {"local.txt.gz": local, "r.db": RecordsConfig(source=folder / "r.db", table="r")}


def test_a_select_over_every_kind_of_file_gives_the_same_grid_and_the_same_digest(tmp_path: Path) -> None:
    grids, digests = set(), set()
    for name, message in write(tmp_path).items():
        sql = "SELECT person, a, b, c FROM r" if name == "r.db" else NUMBERED
        view = RecordsConfig(source=message.source, dialect=message.dialect, sql=sql, one_row_per="person")
        grids.add(read(view, a_study(person_column="person")).rows.tobytes())
        if name != "r.db":  # whose cells are text
            digests.add(open_source(view).digest())
    assert len(grids) == len(digests) == 1


@pytest.mark.parametrize(("name", "message", "library"), [
    ("r.xlsx", {}, "python_calamine"),
    ("r.csv", {"sql": "SELECT 1"}, "duckdb"),
    ("", {"database": "service=omop", "sql": "SELECT 1"}, "adbc_driver_manager"),
])  # fmt: skip
def test_a_missing_driver_names_its_extra(
    tmp_path: Path, monkeypatch: Patch, name: str, message: dict[str, str], library: str
) -> None:
    write(tmp_path)
    config = RecordsConfig(source=tmp_path / name if name else None, **message)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(RequestError, match=rf"this needs {library}.*eigenveil\[sources\]") as caught:
        open_source(config).schema()
    assert caught.value.code is Code.BAD_CONFIG
    assert len(read(tmp_path / "r.parquet", a_study()).rows) == len(ROWS) - 1


def workbook(folder: Path, **sheets: dict[int, list[object]]) -> Path:
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
        3: ["id", "x [mg]"], 4: [1, 2.5], 7: [2, "n.d."], 9: ["", date(2020, 1, 31)],
    }  # fmt: skip
    table = open_source(RecordsConfig(source=workbook(tmp_path, Werte=rows)))
    assert (table.headers, cells(table, "x [mg]")) == (("id", "x [mg]"), ["2.5", "n.d.", "2020-01-31"])
    assert cells(table, "id") == ["1", "2", ""]
    assert table.locations(range(3)) == ["row 4", "row 7", "row 9"]


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
    ("name", "data", "message"),
    [
        ("r.xlsx", b"\xef\xbb\xbf\n<HTML><table>", "it is an HTML page. Open it in a spreadsheet program"),
        ("r.xlsx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0", "it is an old or an encrypted workbook"),
        ("r.xls", b"a,b\n1,2\n", "it is text. If it is a table, give its name the ending .csv"),
        ("r", b"a,b\n1,2\n", "not a file without an ending: it is text. If it is a table, give"),
        ("r.zip", b"PK\x03\x04\0", "it is a zip archive. Unpack it"),
        ("r", b"\0\1", "not a file without an ending"),
        ("r.dat", b"\0\1", "not '.dat'"),
        ("parts/0.csv", b"a,b\n1,2\n", r"read one at a time. State one, such as .*parts/0.csv"),
    ],
)
def test_an_unreadable_source_is_called_what_it_is(
    name: str, data: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    with pytest.raises(BadRecords, match=message):
        open_source(RecordsConfig(source=path.parent if path.parent != tmp_path else path))


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
