"""Which lines of a text are records, for the reader that reads them, however it is written."""

from __future__ import annotations

import codecs
import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil_client.records.sources import delimited
from eigenveil_client.records.sources.delimited import ByteStream, CsvTable, csv_headers, opened
from eigenveil_client.records.tables.source import COMMAS, BadRecords, Dialect


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
        remaining = [fits for _, _, fits in table(path, Dialect(separator=separator))._lines()]
        assert remaining == [True, one_row, True], line
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
    assert (result, found.location(0), found.location(0, whole=False)) == ([1], "line 2", "line 4")


def test_bytes_that_are_none_in_the_encoding_cost_their_own_cell(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_bytes(b"a,b\n1,\x81\n2,\xe4\n")
    assert rows(table(path, Dialect(encoding="cp1252"))) == [{"a": "1", "b": "\ufffd"}, {"a": "2", "b": "ä"}]


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: data[:60] + b"\0" + data[61:]])
def test_a_packed_file_that_is_cut_off_or_damaged_is_refused_as_a_whole(
    tmp_path: Path, damage: object
) -> None:
    path = tmp_path / "r.csv.gz"
    whole = gzip.compress(b"a,b\n" + b"".join(b"%d,%d\n" % (n, n * n) for n in range(5000)))
    path.write_bytes(damage(whole))  # type: ignore[operator]
    with pytest.raises(BadRecords, match="cannot be read"):
        rows(table(path))


@given(st.text(max_size=60), st.integers(1, 9), st.integers(1, 9))
def test_recoded_bytes_are_the_same_whatever_pieces_they_are_read_in(
    text: str, chunk: int, size: int
) -> None:
    data = text.encode("utf-16")
    decoder = codecs.getincrementaldecoder("utf-16")()
    pieces = [
        decoder.decode(data[at : at + chunk]).encode(errors="replace") for at in range(0, len(data), chunk)
    ]
    stream, found = ByteStream(iter(pieces)), b""
    while piece := stream.read(size):
        found += piece
    assert found == text.encode(errors="replace")


def test_a_long_text_is_recoded_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "CHUNK", 7)
    (tmp_path / "r.txt").write_text("äöü,1\r\n" * 50, encoding="utf-16", newline="")
    with opened(tmp_path / "r.txt", "utf-16") as file:
        assert file.read().decode() == "äöü,1\r\n" * 50
    with (tmp_path / "r.txt").open("ab") as more:
        more.write(b"\0")
    with opened(tmp_path / "r.txt", "utf-16") as file:
        assert file.read().decode().endswith("\n\ufffd")
