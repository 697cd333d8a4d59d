"""Rows in a file are the rows that were put there, however they are sliced, by however many threads, sealed
or not; and nothing of them outlives the file."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.study.grid import GridRows
from eigenveil_client.records import scratch_files
from eigenveil_client.records.scratch_files import GridFile, GridSink, Scratch
from eigenveil_client.records.tables.source import BadRecords
from tests.client.site.support import a_study

SEALED = pytest.mark.parametrize("encrypt", [False, True])


def some(rows: int, seed: int = 0) -> GridRows:
    return np.random.default_rng(seed).integers(-4096, 4097, size=(rows, 3), dtype=np.int16)


def kept(rows: GridRows, scratch: Scratch, pieces: int = 3, limit: float = 0) -> GridFile:
    sink = GridSink(a_study(), scratch, limit)
    for part in [rows[:0], *np.array_split(rows, pieces)]:
        sink(part)
    found = sink.rows()
    assert isinstance(found, GridFile)
    return found


@SEALED
def test_slices_from_the_front_to_the_back_are_the_rows_and_stay_so(
    tmp_path: Path, encrypt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch_files, "WINDOW", 12_000)  # of which a later one may be read into the memory
    rows = some(50_000)
    stored = kept(rows, Scratch(folder=tmp_path, encrypt=encrypt))
    slices = [stored[start : start + 777] for start in range(0, len(stored), 777)]
    assert np.array_equal(np.concatenate(slices), rows), "none was overwritten by the reading of a later one"
    assert (stored.shape, stored.dtype) == (rows.shape, rows.dtype)
    with pytest.raises(ValueError, match="read-only"):
        slices[0][0] = 1


@given(st.lists(st.tuples(st.integers(0, 2200), st.integers(0, 2200)), min_size=1), st.booleans())
def test_any_slice_in_any_order_is_that_of_the_array(cuts: list[tuple[int, int]], encrypt: bool) -> None:
    rows = some(2000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scratch_files, "WINDOW", 1000)
        stored = kept(rows, Scratch(encrypt=encrypt))
        for start, stop in cuts:
            assert np.array_equal(stored[start:stop], rows[start:stop])


@SEALED
def test_threads_read_side_by_side(encrypt: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch_files, "WINDOW", 6000)
    rows, stored = some(40_000), kept(some(40_000), Scratch(encrypt=encrypt))

    def total(piece: int) -> int:
        starts = range(10_000 * piece, 10_000 * (piece + 1), 500)
        return sum(int(stored[start : start + 500].sum(dtype=np.int64)) for start in starts)

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(total, range(4))) == rows.sum(dtype=np.int64)


def test_memory_is_used_again_once_nobody_looks_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch_files, "WINDOW", 600)
    stored = kept(some(1000), Scratch())
    slots = {stored[start : start + 100].ctypes.data for start in range(0, 1000, 100)}
    assert len(slots) == 1


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
    stored = kept(some(1000), Scratch(folder=folder))
    descriptor = stored._file._file.fileno()
    status = os.fstat(descriptor)
    assert (status.st_nlink, status.st_mode & 0o777) == (0, 0o600)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert list(folder.iterdir()) == []
    stored.close()
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(descriptor)


def test_what_lies_on_the_disk_tells_nothing_where_it_is_encrypted() -> None:
    rows = np.zeros((5000, 3), dtype=np.int16)
    plain, sealed, other = (kept(rows, Scratch(encrypt=encrypt)) for encrypt in (False, True, True))
    seen = [os.pread(stored._file._file.fileno(), rows.nbytes, 0) for stored in (plain, sealed, other)]
    assert seen[0] == rows.tobytes()
    blocks = {one[at : at + 16] for one in seen[1:] for at in range(0, rows.nbytes - 15, 16)}
    assert len(blocks) == 2 * (rows.nbytes // 16), "no block of either is like any other"


def test_a_full_disk_and_a_file_that_lost_its_end_are_records_that_do_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = kept(some(1000), Scratch(folder=tmp_path))
    os.ftruncate(stored._file._file.fileno(), 100)
    with pytest.raises(BadRecords) as cut:
        stored[0:1000]
    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: os.fdopen(full, "wb", buffering=0))
    with pytest.raises(BadRecords) as no_room:
        kept(some(1000), Scratch(folder=tmp_path))
    for problem in (cut, no_room):
        assert problem.value.about == "disk"
        assert "1000" not in str(problem.value)
