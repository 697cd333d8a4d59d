"""SQLite files: read, never written, and a cell is a cell whatever its column says."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from eigenveil_client.records.sources.view import open_source
from eigenveil_client.records.tables.source import BadRecords, RecordsConfig, digest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "odd ?#%.db"
    with closing(sqlite3.connect(place)) as database, database:
        database.execute('CREATE TABLE "the ""records" (id INTEGER, x REAL, n TEXT COLLATE NOCASE)')
        rows = [(10, 2.5, "b"), (9, "text", "B"), (9, None, b"\xff"), (9, 0.1, "a")]
        database.executemany('INSERT INTO "the ""records" VALUES (?, ?, ?)', rows)
    return place


def cells(path: Path, header: str, **text: str) -> list[bytes | None]:
    view = open_source(RecordsConfig(source=path, **text))  # type: ignore[arg-type]
    found = [batch.column(0).view("binary").to_pylist() for batch in view.batches([header], None)]
    return [cell for batch in found for cell in batch]


def test_a_table_comes_in_the_order_of_its_cells_and_holds_what_they_hold(path: Path) -> None:
    assert cells(path, "id", table='the "records') == [b"9", b"9", b"9", b"10"]
    assert cells(path, "x", table='the "records') == [None, b"0.1", b"text", b"2.5"]
    assert cells(path, "n", table='the "records') == [b"\xff", b"a", b"B", b"b"]
    assert cells(path, "n", sql='SELECT n FROM "the ""records"') == [b"B", b"a", b"b", b"\xff"]


@pytest.mark.parametrize(("sql", "message"), [
    ("SELECT * FROM nope", "no such table: nope"),
    ("SELECT nope FROM sqlite_master", "no such column: nope"),
    ("DELETE FROM sqlite_master", "syntax error"),
    ("SELECT 1; SELECT 2", "syntax error"),
    ("SELECT 1); DELETE FROM sqlite_master; SELECT * FROM (SELECT 1", "one statement at a time"),
    ("SELECT * FROM pragma_database_list", "not authorized"),
    ("SELECT load_extension('x')", "SQLite refuses"),
])  # fmt: skip
def test_what_is_no_select_of_its_tables_is_refused(path: Path, sql: str, message: str) -> None:
    before = digest(path)
    with pytest.raises(BadRecords, match=message):
        cells(path, "x", sql=sql)
    assert digest(path) == before


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(BadRecords, match="unable to open"):
        cells(tmp_path / "new.db", "x", table="t")
    assert not list(tmp_path.iterdir())
    (tmp_path / "text.db").write_text("id,x\n" * 100)
    with pytest.raises(BadRecords, match="not a database"):
        cells(tmp_path / "text.db", "x", table="t")


@pytest.fixture
def unusual(tmp_path: Path) -> Path:
    """Whole, but made by a program with functions of its own, and by hand."""
    place = tmp_path / "unusual.db"
    with closing(sqlite3.connect(place)) as database, database:
        database.create_collation("german", lambda one, other: (one > other) - (one < other))
        database.create_function("own", 1, lambda value: 1, deterministic=True)
        database.execute("CREATE TABLE records (a REAL, b TEXT CHECK (own(b)))")
        database.executemany("INSERT INTO records VALUES (?, ?)", [(n, f"x{n}") for n in range(300)])
        database.execute("CREATE INDEX sorted ON records (b COLLATE german)")
        database.execute("CREATE INDEX computed ON records (own(a))")
        database.execute("CREATE TABLE others (b TEXT COLLATE german PRIMARY KEY)")
        database.execute("INSERT INTO others VALUES ('x')")
        database.execute("CREATE VIRTUAL TABLE notes USING fts5 (words)")
        database.execute("PRAGMA writable_schema = ON")
        database.execute(
            "INSERT INTO sqlite_master VALUES ('table', 'maps', 'maps', 0, "
            "'CREATE VIRTUAL TABLE maps USING unheard_of (a)')"
        )
    return place


def test_what_only_another_program_can_sort_or_compute_is_no_damage(unusual: Path) -> None:
    assert len(cells(unusual, "a", table="records")) == 300
    with pytest.raises(BadRecords, match="no such collation sequence: german"):
        cells(unusual, "b", table="others")


def test_damage_is_found_and_refused(unusual: Path) -> None:
    data = bytearray(unusual.read_bytes())
    page = data.index(b"x200") // 4096 * 4096
    data[page : page + 8] = b"\xff" * 8
    unusual.write_bytes(data)
    with pytest.raises(BadRecords, match=r"damaged \(PRAGMA quick_check: .+\). Restore"):
        cells(unusual, "a", table="records")
