"""PostgreSQL and SQLite: read rights only, passwords elsewhere, damage found, and timeouts."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from eigenveil_client.records.sources.view import open_source
from eigenveil_client.records.tables.source import BadRecords, RecordsConfig, digest
from tests.client.records.support import rows_of
from tests.common.storage.cluster import Cluster
from tests.support import Patch

SECRET = "8.7654321"
MAKE = f"""
CREATE TABLE m (id int, x numeric, t text, j json, "od""d" text);
INSERT INTO m SELECT g % 10, g / 8.0, '{SECRET}', '{{}}', 'b' FROM generate_series(1, 20) g;
INSERT INTO m VALUES (0, NULL, 'Z', NULL, 'a'), (0, NULL, 'a', NULL, 'B');
CREATE SEQUENCE s;
CREATE FUNCTION raised() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE '%', '{SECRET}'; END $$;
"""


@pytest.fixture(scope="module")
def url(server: Cluster) -> str:
    made = server.database()
    with psycopg.connect(made) as connection:
        connection.execute(MAKE)
        connection.execute("DROP ROLE IF EXISTS stranger")
        connection.execute("CREATE ROLE stranger LOGIN")
    return made


def rows(database: str, sql: str, timeout_seconds: float = 60.0) -> list[tuple[object, ...]]:
    return rows_of(RecordsConfig(database=database, sql=sql, timeout_seconds=timeout_seconds))


def test_rows_come_in_the_order_of_what_they_hold_numbers_as_numbers_and_text_by_its_bytes(url: str) -> None:
    assert [row[0] for row in rows(url, "SELECT x FROM m WHERE id = 2 -- of one")] == [
        "0.25000000000000000000",
        "1.5000000000000000",
    ]
    assert rows(url, 'SELECT t, "od""d", j FROM m WHERE x IS NULL;') == [("Z", "a", None), ("a", "B", None)]
    assert [row[0] for row in rows(url, "SELECT DISTINCT id FROM m")] == list(range(10))


@pytest.mark.parametrize(("sql", "message", "about"), [
    ("SELECT nope FROM m", 'refuses the SELECT: column "nope" does not exist', "sql"),
    ("SELECT * FROM nope", 'refuses the SELECT: relation "nope" does not exist', "sql"),
    ("SELEC 1", "refuses the SELECT: syntax error", "sql"),
    ("SELECT 1; SELECT 2", "refuses the SELECT: syntax error", "sql"),
    ("DELETE FROM m", "refuses the SELECT: syntax error", "sql"),
    ("WITH d AS (DELETE FROM m RETURNING 1) SELECT * FROM d", "must be one SELECT", "database"),
    ("SELECT 1 AS a) AS r; DELETE FROM m; SELECT * FROM (SELECT 1 AS a", "refuses the SELECT", "sql"),
    ("SELECT id / 0 AS y FROM m", "cannot be converted or computed", "database"),
    ("SELECT t::int AS y FROM m", "cannot be converted or computed", "database"),
    ("SELECT raised()", "the query failed", "database"),
    ("SELECT nextval('s')", "the query failed", "database"),
    ("SELECT pg_sleep(5)", "took longer than timeout_seconds", "database"),
    ("SELECT id, id FROM m", "two columns 'id'", "sql"),
])  # fmt: skip
def test_a_failing_statement_quotes_no_cell(url: str, sql: str, message: str, about: str) -> None:
    with pytest.raises(BadRecords) as caught:
        rows(url, sql, timeout_seconds=0.5)
    assert message in str(caught.value)
    assert caught.value.about == about
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    assert len(rows(url, "SELECT * FROM m")) == 22


@pytest.mark.parametrize(("address", "message"), [
    ("host=/nowhere dbname=x", "cannot be reached: connection to server on socket"),
    ("service=nope", 'cannot be reached: definition of service "nope" not found'),
    (f"host=/nowhere dbname=x {SECRET}", "cannot be reached. Check"),
])  # fmt: skip
def test_an_unreachable_database_is_reported_without_its_address(address: str, message: str) -> None:
    with pytest.raises(BadRecords) as caught:
        rows(address, "SELECT 1 AS a")
    assert message in str(caught.value)
    assert (caught.value.about, SECRET in str(caught.value)) == ("database", False)


def test_a_server_that_never_answers_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unanswering:
        port = unanswering.getsockname()[1]
        with pytest.raises(BadRecords, match="cannot be reached: connection to server"):
            rows(f"host=127.0.0.1 port={port} dbname=x sslmode=disable connect_timeout=2", "SELECT 1 AS a")


@pytest.fixture
def locked(server: Cluster, url: str) -> Iterator[str]:
    rules = Path(server.url("x").partition("host=")[2].partition("&")[0]) / "data" / "pg_hba.conf"
    before = rules.read_text()

    def set_rules(text: str) -> None:
        rules.write_text(text)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SELECT pg_reload_conf()")

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE reader LOGIN PASSWORD '{SECRET}'")
        connection.execute("GRANT SELECT ON m TO reader")
    set_rules(f"local all reader scram-sha-256\n{before}")
    try:
        yield url.replace("tester", "reader")
    finally:
        set_rules(before)


def test_the_password_comes_from_pgpass_or_service(locked: str, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    with pytest.raises(BadRecords, match="cannot be reached") as caught:
        rows(locked, "SELECT id FROM m")
    assert SECRET not in str(caught.value)
    own = tmp_path / "pgpass"
    own.write_text(f"*:*:*:reader:{SECRET}\n")
    own.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(own))
    assert len(rows(locked, "SELECT id FROM m")) == 22
    monkeypatch.delenv("PGPASSFILE")
    name, _, host = locked.partition("///")[2].partition("?host=")
    service = tmp_path / "services"
    service.write_text(
        f"[omop]\nhost={host.partition('&')[0]}\ndbname={name}\nuser=reader\npassword={SECRET}\n"
    )
    monkeypatch.setenv("PGSERVICEFILE", str(service))
    assert len(rows("service=omop", "SELECT id FROM m")) == 22


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
