"""A chunk of text read as numbers gives each cell the value that it has by itself, whatever is beside it."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil_client.records.recoding.parsing import numbers
from eigenveil_client.records.recoding.rule import ColumnRule
from eigenveil_client.records.sources.delimited_chunks import ChunkParser, OpenQuote, without_top
from eigenveil_client.records.sources.delimited_lines import LineRule, line_chunks
from eigenveil_client.records.tables.source import Dialect

HEADERS = ("a", "b", "c")
CELLS = st.one_of(
    st.floats().map(repr),
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from([
        "", "NA", "nA", " NA", "n/a", "null", "nan", "-nan", "inf", "-Infinity", "1e400", "-1e-400", "1.",
        ".5", "+7", "1_000", "1,5", " 1", "2 ", "\t3", "\xa04", "0x1p3", "1e", "yes", "ä", "1\x00", "9" * 400,
    ]),
    st.text("0123456789.eE+- NaA", max_size=6),
)  # fmt: skip
RULE = ColumnRule(name="a")


def written(rows: list[list[str]], *, quoted: bool) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL)
    writer.writerows(rows)
    return text.getvalue().encode()


def values(batch: pa.RecordBatch, header: str) -> tuple[bytes, bytes]:
    """The bits of a column as a study takes them, and which cells are bad."""
    found = numbers(header, batch.column(HEADERS.index(header)), RULE, Dialect())
    return np.nan_to_num(found.values, nan=-1.0).tobytes(), found.unreadable.tobytes()


@given(
    rows=st.lists(st.lists(CELLS, min_size=3, max_size=3), max_size=8),
    quoted=st.booleans(),
)
def test_cells_read_as_numbers_equal_cells_read_as_text(rows: list[list[str]], quoted: bool) -> None:
    text = written(rows, quoted=quoted)
    typed = ChunkParser(HEADERS, HEADERS, ("a", "c"), ",").parse(text)
    plain = ChunkParser(HEADERS, HEADERS, (), ",").parse(text)
    assert (typed.lost, typed.batch.num_rows) == (plain.lost, plain.batch.num_rows)
    for header in HEADERS:
        assert values(typed.batch, header) == values(plain.batch, header)


@given(cell=CELLS, beside=st.lists(CELLS, max_size=4))
def test_the_value_of_a_cell_depends_on_no_other_cell(cell: str, beside: list[str]) -> None:
    def value(cells: list[str]) -> tuple[float, bool]:
        text = written([[one, "1", "2"] for one in cells], quoted=True)
        batch = ChunkParser(HEADERS, HEADERS, ("a",), ",").parse(text).batch
        found = numbers("a", batch.column(0), RULE, Dialect())
        return float(np.nan_to_num(found.values[0], nan=-1.0)), bool(found.unreadable[0])

    assert value([cell]) == value([cell, *beside])


def test_a_chunk_of_other_text_is_read_once_more_and_the_next_ones_are_not() -> None:
    parser = ChunkParser(HEADERS, HEADERS, HEADERS, ",")
    types = [parser.parse(text).batch.schema.types for text in (b"1,2,3\n", b"1,x,3\n", b"1,2,3\n")]
    number, text = pa.float64(), pa.string()
    assert types == [[number] * 3, [text] * 3, [number, text, number]]


@pytest.mark.parametrize(
    ("chunk", "rows", "lost"),
    [
        (b"1,2,3\n4,5\n6,7,8,9\n\n1,1,1\n", 2, 2),
        (b'"1",2,3\n"4,5\n', None, 0),
        (b'"1",2,"3\n4",5,6\n', None, 0),
        (b"1,2,\xff\n1,2,3\n", 1, 1),
        (b'"1",2,3\r\n4,5\r\n', 1, 1),
        (b"\n\n", 0, 0),
        (b"", 0, 0),
    ],
)
def test_lost_lines_are_counted_and_open_quotes_refused(chunk: bytes, rows: int | None, lost: int) -> None:
    parser = ChunkParser(HEADERS, HEADERS, HEADERS, ",")
    if rows is None:
        with pytest.raises(OpenQuote):
            parser.parse(chunk)
    else:
        found = parser.parse(chunk)
        assert (found.batch.num_rows, found.lost) == (rows, lost)
        assert found.batch.schema.names == list(HEADERS)


@given(text=st.binary(max_size=60), size=st.integers(1, 20))
def test_chunks_are_whole_lines_and_join_to_the_file(text: bytes, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eigenveil_client.records.sources.delimited_lines.CHUNK_BYTES", size)
        found = list(line_chunks(io.BytesIO(text)))
    assert b"".join(found) == text
    assert all(one.endswith(b"\n") for one in found[:-1])


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_top_of_a_file_is_cut_off_in_any_chunks(size: int, tmp_path: Path) -> None:
    text = b"title\n\n\na,b,c\n\nmg,kg,l\n1,2,3\n4,5,6\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eigenveil_client.records.sources.delimited_lines.CHUNK_BYTES", size)
        chunks = line_chunks(io.BytesIO(text))
        found = without_top(chunks, LineRule(",", 3), header_line=2, units=True)
        assert b"".join(found) == b"1,2,3\n4,5,6\n"


@pytest.mark.parametrize("top", ["", "1,2,3\n", '"1",2\n'])
def test_a_byte_order_mark_in_a_line_stays_wherever_its_chunk_begins(top: str) -> None:
    text = f"{top}\ufeffP1,7,8\nP1,9,8\n".encode()
    parsed = ChunkParser(HEADERS, HEADERS, (), ",").parse(text)
    assert parsed.batch.column(0).to_pylist()[-2:] == ["\ufeffP1", "P1"]
