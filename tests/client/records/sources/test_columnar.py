"""Folders of Parquet files: one after the other, and all alike."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from eigenveil_client.records.sources import columnar
from eigenveil_client.records.tables.source import BadRecords
from tests.client.records.recoding.support import open_table


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
def test_a_file_that_gives_other_rows_than_it_states_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """A damaged page can hold fewer values than its row group counts."""
    write(tmp_path / "a.parquet", x=[1, 2, 3])
    table = open_table(tmp_path)
    given = pa.table({"x": list(range(rows))}).to_batches()
    monkeypatch.setattr(columnar, "_batches", lambda *_: iter(given))
    with pytest.raises(BadRecords, match=r"a\.parquet"):
        list(table.batches(["x"], None))
