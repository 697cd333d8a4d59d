"""Delimited texts in their encodings, and folders of Parquet files."""

from __future__ import annotations

import codecs
import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil_client.records.sources import columnar
from eigenveil_client.records.sources.delimited import CsvTable, csv_headers
from eigenveil_client.records.sources.text_bytes import ByteStream
from eigenveil_client.records.tables.lost import LostReason
from eigenveil_client.records.tables.source import COMMAS, BadRecords, Dialect
from tests.client.records.support import open_table
from tests.support import Patch


def table(path: Path, dialect: Dialect = COMMAS) -> CsvTable:
    return CsvTable(path=path, dialect=dialect, headers=csv_headers(path, dialect))


def rows(found: CsvTable) -> list[dict[str, str]]:
    return [row for batch in found.batches(list(found.headers), None) for row in batch.to_pylist()]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", "^", "\\", "]", "-", " "])
def test_a_line_is_left_out_exactly_if_it_is_no_record_for_the_reader(tmp_path: Path, separator: str) -> None:
    """The reader is Arrow's: where the two differed, one line could have a whole file refused."""
    rng, outcomes, mark = np.random.default_rng(1), set[bool](), separator.encode()
    path, letters = tmp_path / "r.csv", [*mark, *mark, *b'""a,; \xff\t\0']
    for _ in range(200):
        line = bytes(rng.choice(letters, size=rng.integers(1, 12)))
        path.write_bytes(mark.join([b"a", b"b", b"c"]) + b"\n" + line + b"\n" + mark.join([b"Z"] * 3) + b"\n")
        parse = arrow_csv.ParseOptions(delimiter=separator)
        try:
            convert = arrow_csv.ConvertOptions(check_utf8=False)
            read = arrow_csv.read_csv(path, parse_options=parse, convert_options=convert)
            one_row = read.num_rows == 2
        except pa.ArrowInvalid:
            one_row = False
        reasons = [lost for *_, lost in table(path, Dialect(separator=separator))._lines()]
        assert [one in (None, LostReason.BYTES) for one in reasons] == [True, one_row, True], line
        outcomes.add(one_row)
    assert outcomes == {True, False}


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-8-sig", "shift_jis", "mac_roman"])
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_a_text_is_read_in_its_encoding_packed_or_not(tmp_path: Path, encoding: str, ending: str) -> None:
    word = "表示" if encoding == "shift_jis" else "Größe"
    path, data = tmp_path / f"r{ending}", f"{word};b\n1,5;{word}\n\n2;x;y\n".encode(encoding)
    path.write_bytes(gzip.compress(data) if ending.endswith(".gz") else data)
    found = table(path, Dialect(separator=";", encoding=encoding))
    assert found.headers == (word, "b")
    result: list[int] = []
    assert [b.to_pylist() for b in found.batches(["b", word], result.append)] == [[{"b": word, word: "1,5"}]]
    (lost,) = found.lost_lines()
    assert (result, found.locations([0]), lost.first) == ([1], ["line 2"], ("line 4",))


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: data[:60] + b"\0" + data[61:]])
def test_a_damaged_packed_file_is_refused_as_a_whole(tmp_path: Path, damage: object) -> None:
    path = tmp_path / "r.csv.gz"
    whole = gzip.compress(b"a,b\n" + b"".join(b"%d,%d\n" % (n, n * n) for n in range(5000)))
    path.write_bytes(damage(whole))  # type: ignore[operator]
    with pytest.raises(BadRecords, match="cannot be read"):
        rows(table(path))


@given(st.text(max_size=60), st.integers(1, 9), st.integers(1, 9))
def test_recoded_bytes_do_not_depend_on_their_pieces(text: str, chunk: int, size: int) -> None:
    data = text.encode("utf-16")
    decoder = codecs.getincrementaldecoder("utf-16")()
    pieces = [
        decoder.decode(data[at : at + chunk]).encode(errors="replace") for at in range(0, len(data), chunk)
    ]
    stream, found = ByteStream(iter(pieces)), b""
    while piece := stream.read(size):
        found += piece
    assert found == text.encode(errors="replace")


def write(path: Path, **columns: list[object]) -> None:
    parquet.write_table(pa.table(columns), path)


def test_the_files_of_a_folder_follow_each_other_by_name(tmp_path: Path) -> None:
    for name, start in (("b.parquet", 3), ("a.parquet", 0), ("c.PQ", 6)):
        write(tmp_path / name, x=list(range(start, start + 3)), y=["t"] * 3)
    for about in ("_SUCCESS", "_metadata.parquet", ".a.parquet.crc", "notes.txt"):
        (tmp_path / about).write_text("no records")
    table = open_table(tmp_path)
    assert pa.Table.from_batches(table.batches(["x"], None))["x"].to_pylist() == list(range(9))
    before = table.digest()
    write(tmp_path / "c.PQ", x=[6, 7, 9], y=["t"] * 3)
    assert open_table(tmp_path).digest() != before


@pytest.mark.parametrize("other", [{"x": ["1"]}, {"z": [1]}, {"x": [1], "y": [1]}])
def test_a_file_with_other_columns_is_refused_by_name(tmp_path: Path, other: dict[str, list[object]]) -> None:
    write(tmp_path / "a.parquet", x=[1])
    write(tmp_path / "b.parquet", **other)
    with pytest.raises(BadRecords, match=r"b\.parquet and .* have different columns"):
        open_table(tmp_path)


def test_a_folder_without_records_and_a_file_that_is_cut_off_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRecords, match=r"holds no \.parquet file"):
        open_table(tmp_path)
    for name in ("a.parquet", "a.arrow"):
        (tmp_path / name).write_bytes(b"PAR1 and no more")
        with pytest.raises(BadRecords, match=f"{name} cannot be read"):
            open_table(tmp_path / name)


@pytest.mark.parametrize("rows", [2, 4])
def test_a_misstated_row_count_is_refused(tmp_path: Path, monkeypatch: Patch, rows: int) -> None:
    write(tmp_path / "a.parquet", x=[1, 2, 3])
    table = open_table(tmp_path)
    given = pa.table({"x": list(range(rows))}).to_batches()
    monkeypatch.setattr(columnar, "_batches", lambda *_: iter(given))
    with pytest.raises(BadRecords, match=r"a\.parquet"):
        list(table.batches(["x"], None))
