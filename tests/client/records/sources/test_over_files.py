"""A site's SELECT over files: it reads them and nothing else, once, in the order of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil_client.records.sources.view import RowsDigest, View
from eigenveil_client.records.tables.source import COMMAS, BadRecords, OnLost, RecordsConfig
from tests.client.records.support import rows_of

SECRET = "8.7654321"


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    return rows_of(RecordsConfig(source=path, sql=sql))


@pytest.fixture(params=["csv", "parquet"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    place = tmp_path / f"r.{request.param}"
    if request.param == "csv":
        place.write_text("id,x\n3,1\n1,2\n2,5\n")
    else:
        parquet.write_table(pa.table({"id": ["3", "1", "2"], "x": ["1", "2", "5"]}), place)
    return place


@pytest.mark.parametrize("sql", [
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
])  # fmt: skip
def test_a_select_reads_the_records_only_and_writes_nothing(path: Path, tmp_path: Path, sql: str) -> None:
    other = tmp_path / "other.csv"
    other.write_text(f"x\n{SECRET}\n")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BadRecords) as caught:
        rows(path, sql.format(other=other, folder=tmp_path))
    assert SECRET not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(("sql", "message"), [
    ("SELECT nope FROM records", 'Referenced column "nope" not found'),
    ("SELEC 1", "syntax error"),
    ("COPY records TO 'x'", "must be one SELECT"),
    ("SELECT 1; SELECT 2", "must be one SELECT"),
    ("SELECT x::DATE FROM records", "TRY_CAST to make it a missing value"),
    ("SELECT * FROM read_csv('/etc/hostname')", "may read the table `records` only"),
    ("SELECT error(x) FROM records", "cannot run the SELECT over these records"),
])  # fmt: skip
def test_a_failing_statement_quotes_no_cell(tmp_path: Path, sql: str, message: str) -> None:
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


def test_a_bad_file_beneath_is_refused_in_the_words_of_that_file(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(f'id,x\n1,"2\n3,{SECRET}\n')
    with pytest.raises(BadRecords, match="a quoted cell spans lines") as caught:
        rows(path, "SELECT id FROM records")
    assert caught.value.about == "quotes"
    path.write_text("id,x,x,\n1,2,3,4\n")
    assert rows(path, "SELECT * FROM records") == [("1",)]


SCHEMA = pa.schema([("person", pa.int64()), ("x", pa.string())])
CELLS = st.lists(st.tuples(st.integers(0, 9), st.none() | st.sampled_from(["", "a", "ab", "b"])), max_size=8)


def batch(rows: list[tuple[int, str | None]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"person": p, "x": x} for p, x in rows], SCHEMA)


@dataclass
class ScriptedQuery:
    """A SELECT whose results are these, one after the other, as often as it is run."""

    batches: list[pa.RecordBatch]
    promised: pa.Schema = field(default_factory=lambda: SCHEMA)
    lost: int = 0
    runs: int = 0

    def schema(self) -> pa.Schema:
        return self.promised

    def rows(self, on_lost: OnLost) -> Iterator[pa.RecordBatch]:
        self.runs += 1
        yield from self.batches
        if self.lost:
            on_lost(self.lost)


def test_a_select_runs_once_however_often_it_is_read_and_not_for_its_columns() -> None:
    query = ScriptedQuery([batch([(1, "a"), (2, None)]), batch([(3, "b")])])
    view = View(query, COMMAS)
    assert (view.headers, view.schema(), query.runs) == (("person", "x"), SCHEMA, 0)
    for _ in range(2):
        assert pa.Table.from_batches(view.batches(["x"], None)).to_pydict() == {"x": ["a", None, "b"]}
        assert view.digest() == View(query, COMMAS).digest()
    assert query.runs == 1 + 2


@given(CELLS, CELLS, st.integers(0, 8))
def test_the_digest_ignores_batches(
    rows: list[tuple[int, str | None]], others: list[tuple[int, str | None]], cut: int
) -> None:
    def value(*batches: pa.RecordBatch) -> bytes:
        digest = RowsDigest(SCHEMA)
        for one in batches:
            digest.take(one)
        return digest.value()

    behind = batch(others + rows).slice(len(others))
    assert value(batch(rows)) == value(batch(rows[:cut]), batch(rows[cut:])) == value(behind)
    assert (value(batch(rows)) == value(batch(others))) == (rows == others)


def test_one_row_per_person_is_enforced() -> None:
    rows = [batch([(1, "a"), (2, "a")]), batch([(3, "a"), (1, "b")])]
    assert len(View(ScriptedQuery(rows), COMMAS).digest()) == 32
    with pytest.raises(BadRecords, match="two rows with one 'person'") as caught:
        View(ScriptedQuery(rows), COMMAS, one_row_per="person").digest()
    assert caught.value.about == "person"
    with pytest.raises(BadRecords, match="column 'patient' is not in"):
        View(ScriptedQuery(rows), COMMAS, one_row_per="patient").digest()


def test_lost_lines_are_reported_each_time_or_refused() -> None:
    result: list[int] = []
    view = View(ScriptedQuery([batch([(1, "a")])], lost=3), COMMAS)
    for _ in range(2):
        assert len(list(view.batches(["x"], result.append))) == 1
    assert result == [3, 3]
    with pytest.raises(BadRecords, match="3 lines have not the cells"):
        list(view.batches(["x"], None))


def test_columns_that_change_while_a_select_runs_and_names_that_are_there_twice_are_refused() -> None:
    changed = ScriptedQuery(
        [batch([(1, "a")])], promised=pa.schema([("person", pa.int64()), ("x", pa.int64())])
    )
    with pytest.raises(BadRecords, match="columns of the SELECT changed while it ran") as caught:
        View(changed, COMMAS).digest()
    assert caught.value.about == "schema"
    twice = ScriptedQuery([], promised=pa.schema([("x", pa.int64()), ("x", pa.int64())]))
    with pytest.raises(BadRecords, match="two columns 'x'"):
        View(twice, COMMAS).schema()
