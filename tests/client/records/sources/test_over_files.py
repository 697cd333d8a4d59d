"""A site's SELECT over files: it reads them and nothing else, and one bad record costs its own."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from eigenveil_client.records.sources.files_query import FilesQuery
from eigenveil_client.records.sources.view import open_source
from eigenveil_client.records.tables.source import BadRecords, RecordsConfig

SECRET = "8.7654321"


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    view = open_source(RecordsConfig(source=path, sql=sql))
    found = [batch.to_pylist() for batch in view.batches(list(view.headers), lambda _: None)]
    return [tuple(row.values()) for batch in found for row in batch]


@pytest.fixture(params=["csv", "parquet"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    place = tmp_path / f"r.{request.param}"
    if request.param == "csv":
        place.write_text("id,x\n3,1\n1,2\n2,5\n")
    else:
        parquet.write_table(pa.table({"id": ["3", "1", "2"], "x": ["1", "2", "5"]}), place)
    return place


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, x FROM records",
        "SELECT id, x FROM records -- all of them",
        "WITH one AS (FROM records) SELECT * FROM one;",
        "SELECT a.id, b.x FROM records a JOIN records b USING (id) ORDER BY x DESC",
    ],
)
def test_the_rows_come_in_the_order_of_what_they_hold(path: Path, sql: str) -> None:
    assert rows(path, sql) == [("1", "2"), ("2", "5"), ("3", "1")]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM '{other}'",
        "SELECT * FROM read_csv('{other}')",
        "SELECT * FROM read_text('{other}')",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT x FROM records UNION ALL SELECT content FROM read_text('{other}')",
        "COPY records TO '{folder}/out.csv'",
        "ATTACH '{folder}/out.db'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "SELECT 1; SELECT 2",
        "SELECT 1; COPY records TO '{folder}/out.csv'",
        "DELETE FROM records",
        "SELECT * FROM pytest",
        " ",
    ],
)
def test_nothing_but_the_records_can_be_read_and_nothing_written(
    path: Path, tmp_path: Path, sql: str
) -> None:
    other = tmp_path / "other.csv"
    other.write_text(f"x\n{SECRET}\n")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BadRecords) as caught:
        rows(path, sql.format(other=other, folder=tmp_path))
    assert SECRET not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT nope FROM records", 'Referenced column "nope" not found'),
        ("SELEC 1", "syntax error"),
        ("COPY records TO 'x'", "must be one SELECT"),
        ("SELECT 1; SELECT 2", "must be one SELECT"),
        ("SELECT x::DATE FROM records", "TRY_CAST to make it a missing value"),
        ("SELECT * FROM read_csv('/etc/hostname')", "may read the table `records` only"),
        ("SELECT error(x) FROM records", "cannot run the SELECT over these records"),
    ],
)
def test_a_statement_that_fails_says_why_and_never_quotes_a_cell(
    tmp_path: Path, sql: str, message: str
) -> None:
    path = tmp_path / "r.csv"
    path.write_text(f"x\n{SECRET}\n")
    with pytest.raises(BadRecords) as caught:
        rows(path, sql)
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.parametrize("line", [b"9,9,9,9", b"9", b"9,\xff,9", b"9,text,9", b"", b"\xff,\xfe,\xfd"])
def test_one_bad_line_costs_its_own_row_and_no_other(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "r.csv"
    lines = [b"%d,%d,1" % (number, number % 7) for number in range(20)]
    sql = "SELECT TRY_CAST(id AS INT) AS id, TRY_CAST(x AS INT) AS x FROM records"

    def read(lines: list[bytes]) -> list[tuple[object, ...]]:
        path.write_bytes(b"\n".join([b"id,x,note", *lines]) + b"\n")
        return rows(path, sql)

    without = read(lines)
    remaining = read([*lines[:10], line, *lines[10:]])
    assert [row for row in remaining if row in without] == without
    assert len(remaining) - len(without) in (0, 1)


def test_bytes_that_are_no_text_are_told_from_text_before_a_select_sees_them(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_bytes(b"id,x\n1,\xff\n2,\xc3\xa4\n")
    assert rows(tmp_path / "r.csv", "SELECT id, upper(x) FROM records") == [("1", "\ufffd"), ("2", "Ä")]


def test_a_bad_file_beneath_is_refused_in_the_words_of_that_file(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(f'id,x\n1,"2\n3,{SECRET}\n')
    with pytest.raises(BadRecords, match="a quoted cell spans lines") as caught:
        rows(path, "SELECT id FROM records")
    assert caught.value.about == "quotes"
    path.write_text("id,x,x,\n1,2,3,4\n")
    assert rows(path, "SELECT * FROM records") == [("1",)]


def test_columns_are_known_before_a_record_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("id,x\n1,text\n")
    source = open_source(RecordsConfig(source=path))
    schema = FilesQuery(source=source, sql="SELECT id::INT AS id, x::INT + 1.5 AS y FROM records").schema()
    assert schema.names == ["id", "y"]
    assert pa.types.is_integer(schema.field("id").type)
