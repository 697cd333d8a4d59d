"""Whatever a file of records does to its reader is one line, and nothing happens to whoever asked."""

from __future__ import annotations

import gc
import os
import random
import resource
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from eigenveil.study.study import Column, Study
from eigenveil_client.records import genotype_files
from eigenveil_client.records.genotype_files import ZARR
from eigenveil_client.records.isolated import fork_server, process, reader
from eigenveil_client.records.isolated.fork_server import SERVER
from eigenveil_client.records.isolated.process import MIB, ReaderLimits
from eigenveil_client.records.sources.columnar import checked as checked_batch
from eigenveil_client.records.sources.view import ENDINGS, open_source
from eigenveil_client.records.tables.cells import about
from eigenveil_client.records.tables.source import BED, BadRecords, RecordsConfig
from tests.client.records.isolated import hostile
from tests.client.records.isolated.hostile import ABSENT, GOOD, HANGS, SEGFAULT, STUDY, Ends, refusal
from tests.client.records.support import read
from tests.support import Log, Patch

OF_GENOTYPES = replace(
    STUDY, columns=tuple(Column(name=name, unit="", lower=0, upper=2) for name in ("rs0_A", "rs1_A", "rs2_G"))
)


@pytest.mark.parametrize(
    ("where", "name", "why"),
    [(fork_server, "PROGRAM", "its process ended at once"), (sys, "executable", "No such file or directory")],
)
def test_a_reader_that_cannot_be_started_says_why(
    where: Any, name: str, why: str, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(where, name, "/nowhere")
    with pytest.raises(BadRecords, match=f"{why}. Check that this user may run .*, and the free memory"):
        fork_server.ForkServer().reader()


def test_a_file_of_many_columns_is_read_in_little_memory(tmp_path: Path) -> None:
    """Its parser asks for a block as large as the file for each column, most of which stays empty."""
    names, records = [f"x{number}" for number in range(300)], 500
    path, line = tmp_path / "wide.csv", ",".join("1." + "0" * 25 for _ in names)
    path.write_text("\n".join([",".join(names), *[line] * records]))
    columns = tuple(Column(name=name, unit="", lower=0, upper=2) for name in names)
    limits = ReaderLimits(memory_mib=1024)
    assert path.stat().st_size * len(names) > limits.memory_mib * MIB
    text = RecordsConfig(source=path, missing=("-9",))  # a cell may be a word: none is read as a number
    for config in (text, RecordsConfig(source=path)):
        assert len(reader.Reader(config, limits=limits).read(replace(STUDY, columns=columns)).rows) == records


def study_of(name: str) -> Study:
    return OF_GENOTYPES if name.endswith((BED, *ZARR)) else STUDY


@pytest.fixture
def ending(monkeypatch: Patch) -> Callable[..., BadRecords]:
    """Asks a reader that ends in a way of its own, before it reads anything."""

    def query(how: Ends, limits: ReaderLimits = process.DEFAULT_LIMITS) -> BadRecords:
        return refusal(lambda: process.run_task(ABSENT, how, check=lambda one: one, limits=limits))  # type: ignore[arg-type]

    return query


def test_a_good_file_of_every_ending_is_there_to_be_damaged() -> None:
    ended_studies = {"".join(Path(name).suffixes) for name in GOOD if name.startswith("records")}
    assert ended_studies == {*ENDINGS, ""}  # "" is a folder


@pytest.mark.parametrize("name", GOOD)
def test_a_reader_gives_the_records_that_are_read_here(tmp_path: Path, name: str) -> None:
    message, study = GOOD[name](tmp_path / name), study_of(name)
    here = read(message, study)
    distance = reader.Reader(message).read(study)
    assert (distance.persons, distance.file, distance.quality) == (here.persons, here.file, here.quality)
    assert distance.rows.dtype == here.rows.dtype
    assert np.array_equal(distance.rows, here.rows)
    assert reader.columns(message) == tuple(open_source(message).headers)
    assert reader.digest(message) == open_source(message).digest()


def test_a_relative_path_follows_the_working_folder(tmp_path: Path, monkeypatch: Patch) -> None:
    message = RecordsConfig(source=Path("records.csv"))
    for name in ("one", "other"):  # one fork server serves both, and stays where it was started
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        Path("records.csv").write_text(f"{name},b,c\n1,2,3\n")
        assert reader.columns(message) == (name, "b", "c")
    (tmp_path / "other" / "records.csv").unlink()
    (tmp_path / "other").rmdir()
    assert "records.csv cannot be read" in str(refusal(lambda: reader.columns(message)))


# ------------------------------------------------------------------ what was measured


@pytest.mark.parametrize("name", hostile.OPENED_BY_ARROW)
def test_a_damaged_file_is_a_refusal_of_a_line_or_records_whatever_bit_is_wrong(
    tmp_path: Path, name: str
) -> None:
    message, rng, refused = GOOD[name](tmp_path / name), random.Random(1), list[int]()
    good = (tmp_path / name).read_bytes()
    for _ in range(40):
        data = bytearray(good)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        (tmp_path / name).write_bytes(data)
        try:
            reader.Reader(message).read(STUDY)
        except BadRecords as problem:
            refused.append(len(str(problem).splitlines()))
    assert set(refused) == {1}


def test_offsets_beyond_a_columns_bytes_are_refused_and_not_read() -> None:
    offsets = np.arange(11, dtype=np.int32)
    offsets[5] = 2**30
    column = pa.Array.from_buffers(pa.string(), 10, [None, pa.py_buffer(offsets), pa.py_buffer(b"0" * 10)])
    with pytest.raises(pa.ArrowInvalid):
        checked_batch(pa.record_batch([column], names=["b"]))
    no_text = pa.array([b"\xff", b"1"]).view(pa.string())
    assert checked_batch(pa.record_batch([no_text], names=["b"])).num_rows == 2


def test_a_workbook_with_one_far_cell_is_a_refusal_within_the_limit(tmp_path: Path) -> None:
    far = hostile.far_cell(tmp_path / "far.xlsx", dimension=False)
    problem = refusal(lambda: reader.columns(far))
    assert (problem.about, "MiB of memory" in str(problem)) == ("reader-memory", True)
    stated = hostile.far_cell(tmp_path / "stated.xlsx", dimension=True)
    assert "a sheet states 1048576 rows of 16384 columns" in str(refusal(lambda: reader.columns(stated)))


def test_a_small_file_that_unpacks_without_end_is_a_refusal(tmp_path: Path) -> None:
    lines = hostile.packed(tmp_path / "lines.csv.gz", b"0" * 2**19 + b",2,3\n", 20)
    assert "unpacks to over 200 times its size" in str(refusal(lambda: reader.load(lines.source, STUDY)))  # type: ignore[arg-type]
    line = hostile.packed(tmp_path / "line.csv.gz", b"1", 6)
    assert "a line has over 64 MiB" in str(refusal(lambda: reader.load(line.source, STUDY)))  # type: ignore[arg-type]
    book = hostile.bombed_workbook(tmp_path / "bomb.xlsx")
    assert "unpacks to over 2048 MiB" in str(refusal(lambda: reader.columns(book)))


def test_a_group_of_genotypes_that_states_any_size_is_refused_before_it_is_allocated(tmp_path: Path) -> None:
    wide = hostile.wide_zarr(tmp_path / "wide.zarr")
    assert "states chunks" in str(refusal(lambda: reader.columns(wide)))
    assert wide.source is not None
    assert "states chunks" in str(refusal(lambda: genotype_files.zarr_matrix(wide.source)))  # type: ignore[arg-type]


def test_a_hostile_schema_of_sqlite_makes_no_large_cell_and_damage_is_seen(tmp_path: Path) -> None:
    view = hostile.endless_view(tmp_path / "view.db")
    assert "SQLite refuses" in str(refusal(lambda: reader.Reader(view).read(STUDY)))
    message = hostile.sqlite(tmp_path / "records.db")
    assert message.source is not None
    data = bytearray(message.source.read_bytes())
    data[4096 + 3 : 4096 + 5] = (9).to_bytes(2, "big")  # fewer cells on the table's first page than there are
    message.source.write_bytes(data)
    refusal(lambda: reader.Reader(message).read(STUDY))


def test_sqlite_sorts_more_rows_than_its_memory_holds(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "CREATE TABLE records AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
            "WHERE i < 600000) SELECT (i * 7919) % 600011 AS a, 1 AS b, 2 AS c FROM n"
        )
    message = RecordsConfig(
        source=path, sql="SELECT min(a) AS a, b, c FROM records GROUP BY a % 600000, b, c LIMIT 5"
    )
    assert len(reader.Reader(message).read(STUDY).rows) == 5


def test_a_linked_database_in_wal_mode_is_read_where_it_is(tmp_path: Path) -> None:
    for name in ("there", "here"):
        (tmp_path / name).mkdir()
    message = hostile.sqlite(tmp_path / "there" / "records.db")
    link = tmp_path / "here" / "link.db"
    link.symlink_to(tmp_path / "there" / "records.db")
    with closing(sqlite3.connect(link)) as database:
        database.execute("PRAGMA journal_mode = WAL")
    assert len(reader.Reader(replace(message, source=link)).read(STUDY).rows) == 300


# ------------------------------------------------------------------ how a reader ends


def test_a_dying_reader_is_one_line(tmp_path: Path, ending: Callable[..., BadRecords]) -> None:
    problem = ending(SEGFAULT)
    assert (problem.about, "SIGSEGV" in str(problem)) == ("reader", True)
    assert "SIGABRT" in str(ending(Ends(os.abort)))
    assert "was ended early" in str(ending(Ends(os._exit, 0)))
    assert "SIGBUS" in str(ending(Ends(signal.raise_signal, signal.SIGBUS)))
    message = hostile.csv(tmp_path / "records.csv")
    assert reader.columns(message) == ("a", "b", "c")


def test_a_reader_that_takes_too_long_is_ended(ending: Callable[..., BadRecords]) -> None:
    problem = ending(HANGS, ReaderLimits(seconds=0.5))
    assert (problem.about, "took more than the 0 s" in str(problem)) == ("reader-time", True)


def test_a_stuck_reader_delays_no_other(
    tmp_path: Path, ending: Callable[..., BadRecords], monkeypatch: Patch, caplog: Log
) -> None:
    message, pids = hostile.csv(tmp_path / "records.csv"), list[int]()
    reader.columns(message)
    with monkeypatch.context() as patch:
        patch.setattr(fork_server, "ENDING_SECONDS", 0.2)
        patch.setattr(os, "kill", lambda pid, number: pids.append(pid))
        problem = ending(HANGS, ReaderLimits(seconds=0.2))
    assert (problem.about, "does not end" in str(problem)) == ("reader-stuck", True)
    (pid,) = pids
    assert f"reader-stuck about='process {pid}'" in caplog.text
    assert SERVER._process is not None
    server = SERVER._process.pid
    assert reader.columns(message) == ("a", "b", "c")
    os.kill(pid, signal.SIGKILL)
    while "Z" not in (state := _state(pid)) and state:
        time.sleep(0.01)
    assert (reader.columns(message), _state(pid), SERVER._process.pid) == (("a", "b", "c"), "", server)


def _state(pid: int) -> str:
    """State of a process by the kernel; empty once it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def test_a_reader_over_its_memory_limit_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    path.write_bytes(b"a,b,c\n" + b"1" * (60 * MIB) + b",2,3\n")
    problem = refusal(
        lambda: reader.Reader(RecordsConfig(source=path), limits=ReaderLimits(memory_mib=160)).read(STUDY)
    )
    assert (problem.about, "over 160 MiB of memory" in str(problem)) == ("reader-memory", True)


@pytest.mark.parametrize(("name", "opens"), hostile.OPENED_BY_ARROW.items())
def test_a_lack_of_memory_is_no_unreadable_file(
    tmp_path: Path, name: str, opens: str, monkeypatch: Patch
) -> None:

    def short(*args: object, **settings: object) -> None:
        raise pa.ArrowMemoryError("malloc failed")

    message = GOOD[name](tmp_path / name)
    source = open_source(message)
    monkeypatch.setattr(f"eigenveil_client.records.sources.{opens}", short)
    with pytest.raises(MemoryError):
        list(source.batches(["a"], None))
    with pytest.raises(MemoryError), about("a"):
        short()
    if name != "records.csv":
        with pytest.raises(MemoryError):
            open_source(message)


def test_a_fork_server_that_is_gone_is_started_again(tmp_path: Path) -> None:
    message = hostile.csv(tmp_path / "records.csv")
    reader.columns(message)
    assert SERVER._process is not None
    SERVER._process.kill()
    SERVER._process.wait()
    assert reader.columns(message) == ("a", "b", "c")


def test_readers_leave_no_descriptor_or_folder(
    tmp_path: Path, ending: Callable[..., BadRecords], monkeypatch: Patch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ending(SEGFAULT)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        ending(SEGFAULT)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------ what a reader may do


def test_a_reader_may_not_reach_out(tmp_path: Path, ending: Callable[..., BadRecords]) -> None:
    from eigenveil_common.process_limits import limit_resources, restrict_process

    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.write_text("kept")
    tries: dict[str, Callable[[], Any]] = {
        "network": socket.socket, "program": lambda: os.execv("/bin/true", ["true"]),
        "signal": lambda: os.kill(os.getppid(), 0), "write": lambda: outside.write_text("changed"),
        "make": lambda: (tmp_path / "more").write_text("x"), "remove": outside.unlink,
    }  # fmt: skip
    pid = os.fork()
    if not pid:
        limit_resources(memory=2**40, seconds=60)
        restrict_process(network=False, folders=[inside])
        (inside / "scratch").write_text("fine")
        allowed = []
        for name, one in tries.items():
            try:
                one()
            except PermissionError:
                continue
            allowed.append(name)
        if resource.getrlimit(resource.RLIMIT_CORE) != (0, 0):
            allowed.append("core")
        (inside / "scratch").write_text(" ".join(allowed))
        os._exit(0)
    os.waitpid(pid, 0)
    assert ((inside / "scratch").read_text(), outside.read_text()) == ("", "kept")


def test_an_unconfined_reader_reads_nothing(tmp_path: Path, monkeypatch: Patch) -> None:
    message = hostile.csv(tmp_path / "records.csv")
    monkeypatch.setattr(process, "_wal_folder", lambda message: (tmp_path / "gone",))
    problem = refusal(lambda: reader.columns(message))
    assert (problem.about, "cannot be restricted" in str(problem)) == ("reader-limits", True)


def test_a_stop_signal_leaves_the_fork_server_running(tmp_path: Path) -> None:
    message = hostile.csv(tmp_path / "records.csv")
    reader.columns(message)
    assert SERVER._process is not None
    server = SERVER._process.pid
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(server, number)
    assert (reader.columns(message), SERVER._process.pid) == (("a", "b", "c"), server)
