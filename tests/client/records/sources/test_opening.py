"""The same rows in every kind of file, and by every SELECT, are the same records."""

from __future__ import annotations

import gzip
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest
import xlsxwriter

from eigenveil.errors import Code, RequestError
from eigenveil_client.records.records import read
from eigenveil_client.records.sources.view import open_source
from eigenveil_client.records.tables.source import BadRecords, Dialect, RecordsConfig
from tests.client.records.recoding.support import open_table
from tests.client.site.support import a_study

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


def test_every_kind_of_file_holds_the_same_records(tmp_path: Path) -> None:
    columns_of = {}
    for name, message in write(tmp_path).items():
        found = read(message, a_study(person_column="person"))
        columns_of[name] = (sorted(found.rows.tolist()), found.persons)
        assert open_source(message).schema().names == list(NAMES)
    assert all(found == columns_of["r.csv"] for found in columns_of.values()), columns_of
    assert len(columns_of["r.csv"][0]) == len(ROWS) - 1


def test_a_select_over_every_kind_of_file_gives_the_same_grid_and_the_same_digest(tmp_path: Path) -> None:
    grids, digests = set(), set()
    for name, message in write(tmp_path).items():
        sql = "SELECT person, a, b, c FROM r" if name == "r.db" else NUMBERED
        view = RecordsConfig(source=message.source, dialect=message.dialect, sql=sql, one_row_per="person")
        grids.add(read(view, a_study(person_column="person")).rows.tobytes())
        if name != "r.db":  # whose cells are text
            digests.add(open_source(view).digest())
    assert len(grids) == len(digests) == 1


@pytest.mark.parametrize(
    ("name", "message", "library"),
    [
        ("r.xlsx", {}, "python_calamine"),
        ("r.csv", {"sql": "SELECT 1"}, "duckdb"),
        ("", {"database": "service=omop", "sql": "SELECT 1"}, "adbc_driver_manager"),
    ],
)
def test_a_driver_that_is_not_installed_is_named_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: dict[str, str], library: str
) -> None:
    write(tmp_path)
    config = RecordsConfig(source=tmp_path / name if name else None, **message)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(RequestError, match=rf"this needs {library}.*eigenveil\[sources\]") as caught:
        open_source(config).schema()
    assert caught.value.code is Code.BAD_CONFIG
    assert len(read(RecordsConfig(source=tmp_path / "r.parquet"), a_study()).rows) == len(ROWS) - 1


def test_a_file_of_no_known_kind_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(BadRecords, match=r"\.csv.*\.parquet.*\.xlsx.*not '\.sav'"):
        open_table(tmp_path / "r.sav")
