"""Rows in a file, and persons for whom memory has no room, are those that memory would have; no file outlives
its use."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.study.grid import GridRows
from eigenveil_client.records import scratch_files
from eigenveil_client.records.recoding import gather, persons
from eigenveil_client.records.recoding.persons import PARTITIONS, partition_of
from eigenveil_client.records.recoding.rule import ColumnRule, Rows
from eigenveil_client.records.scratch_files import GridFile, GridSink, Scratch
from eigenveil_client.records.tables.source import BadRecords
from tests.client.records.support import made
from tests.client.site.support import a_study
from tests.support import Patch

SEALED = pytest.mark.parametrize("encrypt", [False, True])


def some(rows: int, seed: int = 0) -> GridRows:
    return np.random.default_rng(seed).integers(-4096, 4097, size=(rows, 3), dtype=np.int16)


def grid_file(rows: GridRows, scratch: Scratch, pieces: int = 3, limit: float = 0) -> GridFile:
    sink = GridSink(a_study(), scratch, limit)
    for part in [rows[:0], *np.array_split(rows, pieces)]:
        sink(part)
    found = sink.rows()
    assert isinstance(found, GridFile)
    return found


@SEALED
def test_slices_in_order_are_the_rows(tmp_path: Path, encrypt: bool, monkeypatch: Patch) -> None:
    monkeypatch.setattr(scratch_files, "WINDOW", 12_000)  # of which a later one may be read into the memory
    rows = some(50_000)
    stored = grid_file(rows, Scratch(folder=tmp_path, encrypt=encrypt))
    slices = [stored[start : start + 777] for start in range(0, len(stored), 777)]
    assert np.array_equal(np.concatenate(slices), rows), "none was overwritten by the reading of a later one"
    assert (stored.shape, stored.dtype) == (rows.shape, rows.dtype)
    with pytest.raises(ValueError, match="read-only"):
        slices[0][0] = 1


def test_rows_stay_in_memory_up_to_the_limit_and_all_lie_in_the_file_beyond(tmp_path: Path) -> None:
    rows = some(100)
    for limit, filed in [(rows.nbytes, False), (rows.nbytes - 1, True)]:
        sink = GridSink(a_study(), Scratch(folder=tmp_path), limit)
        for part in [*np.array_split(rows, 7), rows[:0]]:
            sink(part)
        found = sink.rows()
        assert isinstance(found, GridFile) is filed
        assert np.array_equal(found[0:100], rows)
        assert sink.digest() == hashlib.sha256(rows.tobytes()).digest()


def test_a_file_has_no_name_is_its_owners_alone_and_is_gone_when_it_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "grids"
    stored = grid_file(some(1000), Scratch(folder=folder))
    descriptor = stored.file._file.fileno()
    status = os.fstat(descriptor)
    assert (status.st_nlink, status.st_mode & 0o777, folder.stat().st_mode & 0o777) == (0, 0o600, 0o700)
    assert list(folder.iterdir()) == []
    stored.close()
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(descriptor)


def test_an_encrypted_file_repeats_no_block() -> None:
    rows = np.zeros((5000, 3), dtype=np.int16)
    plain, sealed, other = (grid_file(rows, Scratch(encrypt=encrypt)) for encrypt in (False, True, True))
    seen = [os.pread(stored.file._file.fileno(), rows.nbytes, 0) for stored in (plain, sealed, other)]
    assert seen[0] == rows.tobytes()
    blocks = {one[at : at + 16] for one in seen[1:] for at in range(0, rows.nbytes - 15, 16)}
    assert len(blocks) == 2 * (rows.nbytes // 16), "no block of either is like any other"


def test_a_full_disk_or_truncated_file_is_bad_records(tmp_path: Path, monkeypatch: Patch) -> None:
    stored = grid_file(some(1000), Scratch(folder=tmp_path))
    os.ftruncate(stored.file._file.fileno(), 100)
    with pytest.raises(BadRecords) as cut:
        stored[0:1000]
    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: os.fdopen(full, "wb", buffering=0))
    with pytest.raises(BadRecords) as no_room:
        grid_file(some(1000), Scratch(folder=tmp_path))
    for problem in (cut, no_room):
        assert problem.value.about == "disk"
        assert "1000" not in str(problem.value)


RULES = (
    [ColumnRule(name="a"), ColumnRule(name="b")],
    [
        ColumnRule(name="a", rows=Rows.MEAN),
        ColumnRule(name="b", rows=Rows.LAST, by="day", dates="%d"),
        ColumnRule(name="n", source="a", rows=Rows.COUNT),
        ColumnRule(name="least", source="b", rows=Rows.MINIMUM),
    ],
)
ROW = st.tuples(
    st.sampled_from(["p", "q", "anna", "bert", "ä", "", "NA", *map(str, range(30))]),
    st.sampled_from(["1", "2.5", "-3", "", "x", "1e9"]),
    st.sampled_from(["4", "0.1", "", "y"]),
    st.sampled_from(["01", "02", "09", "", "z"]),
)


def spilled(folder: Path, rules: list[ColumnRule], room: int, batch: int) -> list[tuple[object, ...]]:
    """Persons, order ignored, with memory for `room` of them at each level."""
    width = len(rules) + sum(rule.by is not None for rule in rules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "GATHERED", room * (gather.A_PERSON + gather.A_NUMBER * width))
        patch.setattr(persons, "BUFFERED", batch)
        values, unreadable = made(folder / "spilled.csv", rules, "who")
    return sorted(zip(map(repr, values.tolist()), map(repr, unreadable.tolist()), strict=True))


@pytest.mark.parametrize("rules", RULES, ids=["first-in-file", "gathered"])
@given(
    rows=st.lists(ROW, min_size=1, max_size=120),
    room=st.integers(1, 12),
    batch=st.sampled_from([1, 500, 10**6]),
)
def test_spilled_persons_equal_those_in_memory(
    tmp_path_factory: pytest.TempPathFactory,
    rules: list[ColumnRule],
    rows: list[tuple[str, ...]],
    room: int,
    batch: int,
) -> None:
    folder = tmp_path_factory.mktemp("aside")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eigenveil_client.records.sources.delimited_lines.CHUNK_BYTES", 64)
        text = "\n".join(["who,a,b,day", "p,1,4,01", *(",".join(row) for row in rows)]) + "\n"
        (folder / "spilled.csv").write_text(text)
        assert spilled(folder, rules, room, batch) == spilled(folder, rules, 10**6, batch)


def test_parts_come_out_even_and_those_of_one_part_are_spread_over_the_next_level() -> None:
    names = pa.array([f"patient-{number:08}" for number in range(100_000)], pa.string())
    first = partition_of(names, 0)
    counts = np.bincount(first, minlength=PARTITIONS)
    mean = len(names) / PARTITIONS  # a Poisson's 10 standard deviations: false alarm below 1e-15
    assert abs(counts - mean).max() < 10 * np.sqrt(mean)
    inside = names.take(pa.array(np.flatnonzero(first == first[0])))
    assert len(set(partition_of(inside, 1).tolist())) > len(inside) / 2
