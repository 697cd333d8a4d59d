"""A reader's messages are held to form and size; none leaves, or ends a daemon."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from eigenveil.errors import Code
from eigenveil_client.records.isolated import checked, fork_server, process, reader
from eigenveil_client.records.isolated.fork_server import ENDING_SECONDS, RUNNING, SERVER, ForkServer
from eigenveil_client.records.isolated.frames import (
    HEAD,
    MAX_JSON_BYTES,
    FrameKind,
    ReaderFailure,
    receive,
    row_layout,
    send,
    send_rows,
)
from eigenveil_client.records.isolated.tasks import list_columns
from eigenveil_client.records.recoding.offered import OfferedColumns
from eigenveil_client.records.tables.source import BadRecords
from eigenveil_client.site.daemon.decisions import log_fields
from tests.client.records.isolated import hostile
from tests.client.records.isolated.hostile import ABSENT, STUDY, refusal
from tests.support import Patch

FORM = row_layout(STUDY)
ROW = FORM.row_bytes


def received(data: bytes, limit: float = 5.0) -> tuple[FrameKind, Any, int]:
    ours, theirs = socket.socketpair()
    with ours:
        threading.Thread(target=_send, args=(theirs, data)).start()
        return receive(ours, time.monotonic() + limit, FORM)


def _send(there: socket.socket, data: bytes) -> None:
    with there:
        there.sendall(data)


@pytest.mark.parametrize("frame", [
    b"",
    HEAD.pack(9, 0, 0),
    HEAD.pack(FrameKind.ITEM, 0, MAX_JSON_BYTES + 1),
    HEAD.pack(FrameKind.ITEM, 1, 2) + b"{}",
    HEAD.pack(FrameKind.DONE, 0, 2**63),
    HEAD.pack(FrameKind.DONE, 0, 4) + b"{}",
    HEAD.pack(FrameKind.DONE, 0, 2) + b"{{",
    HEAD.pack(FrameKind.DONE, 0, 200_000) + b"[" * 200_000,
    HEAD.pack(FrameKind.ROWS, 0, 0),
    HEAD.pack(FrameKind.ROWS, 2**32 - 1, (2**32 - 1) * ROW),
    HEAD.pack(FrameKind.ROWS, 1, ROW + 1) + bytes(ROW + 1),
    HEAD.pack(FrameKind.ROWS, 1, ROW) + b"\xff\x7f" * 3,  # beyond the grid
    HEAD.pack(FrameKind.ROWS, 1, ROW) + b"\x00\x80" * 3,
    HEAD.pack(FrameKind.ROWS, 2, 2 * ROW) + bytes(ROW),
])  # fmt: skip
def test_what_is_no_frame_is_refused_before_anything_is_allocated(frame: bytes) -> None:
    with pytest.raises(ReaderFailure):
        received(frame)


def test_rows_arrive_as_they_were_sent_and_on_the_edges_of_the_grid(monkeypatch: Patch) -> None:
    monkeypatch.setattr("eigenveil_client.records.isolated.frames.MOST_ROWS", 4 * ROW)
    edge = STUDY.grid_steps
    rows = np.array([[-edge, edge, number] for number in range(10)], dtype=FORM.dtype)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send_rows(theirs, rows)
        found = [receive(ours, time.monotonic() + 5, FORM)[1] for _ in range(3)]
    assert [len(one) for one in found] == [4, 4, 2]
    assert np.array_equal(np.concatenate(found), rows)


def saying(
    *frames: tuple[FrameKind, Any], call: Callable[[], Any] = lambda: reader.Reader(ABSENT).read(STUDY)
) -> BadRecords:
    """Refusal of a reader of records that sends these frames, and no more."""

    def lying() -> tuple[int, socket.socket]:
        pid, there = original()
        there.close()
        ours, theirs = socket.socketpair()
        for kind, what in frames:
            if kind is FrameKind.ROWS:
                send_rows(theirs, what)
            else:
                send(theirs, kind, what)
        theirs.shutdown(socket.SHUT_WR)
        remaining.append(theirs)
        return pid, ours

    remaining: list[socket.socket] = []
    original = SERVER.reader
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SERVER, "reader", lying)
        try:
            return refusal(call)
        finally:
            remaining.pop().close()


GOOD_COUNTS = [2, 0, 0, 0, 0, 0, 0]
TOTALS: dict[str, Any] = {"persons": 2, "lines": 3, "lost": 1, "file": "00" * 32, "version": "00" * 32}
DONE = (FrameKind.DONE, TOTALS)


def done(**changes: Any) -> tuple[FrameKind, Any]:
    return FrameKind.DONE, TOTALS | changes


@pytest.mark.parametrize("frames", [
    [DONE],
    [(FrameKind.ITEM, GOOD_COUNTS)] * 2 + [DONE],
    [(FrameKind.ITEM, GOOD_COUNTS)] * 4 + [DONE],
    [(FrameKind.ITEM, [3, 0, 0, 0, 0, 0, 0])] * 3 + [DONE],
    [(FrameKind.ITEM, [2, 3, 0, 0, 0, 0, 0])] * 3 + [DONE],
    [(FrameKind.ITEM, [2, -1, 0, 0, 0, 0, 0])] * 3 + [DONE],
    [(FrameKind.ITEM, [1, 2, 0, 0, 0, 0, 0])] * 3 + [DONE],
    [(FrameKind.ITEM, [2, 0.5, 0, 0, 0, 0, 0])] * 3 + [DONE],
    [(FrameKind.ITEM, GOOD_COUNTS)] * 3 + [done(file="00")],
    [(FrameKind.ITEM, GOOD_COUNTS)] * 3 + [done(version=None)],
    [(FrameKind.ITEM, GOOD_COUNTS)] * 3 + [done(persons=True)],
    [(FrameKind.ITEM, GOOD_COUNTS)] * 3 + [done(lost=4)],
    [(FrameKind.ITEM, GOOD_COUNTS)] * 3 + [done(lines=-1, lost=-1)],
    [(FrameKind.ITEM, GOOD_COUNTS)] * 3 + [(FrameKind.DONE, [])],
    [(FrameKind.ROWS, np.zeros((3, 3), dtype=np.int16)), *[(FrameKind.ITEM, GOOD_COUNTS)] * 3, DONE],
    [(FrameKind.ITEM, "a")] * 20 + [(FrameKind.ITEM, GOOD_COUNTS)] * 3 + [DONE],
    [(FrameKind.ITEM, ["a"])],
    [(FrameKind.ERROR, ["bug", 3, ""])],
    [(FrameKind.ERROR, "no")],
    [(FrameKind.ERROR, ["no-code", "text", "file"])],
    [(FrameKind.ERROR, ["bad-data", "x" * 5000, "file"])],
    [(FrameKind.ERROR, ["bad-data", "120/80 at sql.py:3", "reader"])],
    [(FrameKind.ERROR, ["bad-data", f"{'x' * 65} at sql.py:3", "reader"])],
])  # fmt: skip
def test_a_reader_that_lies_is_not_believed(frames: list[tuple[FrameKind, Any]]) -> None:
    problem = saying(*frames)
    assert (problem.about, problem.kind) == ("reader", "")


LOST = ["no-person", 1, ["line 2"]]
CELLS = {"column": "a", "cells": 1, "what": "text", "examples": [], "fillers": []}
COUNTED = {"lines": 3, "used": 2, "skipped": 0, "repeated": 0, "version": "00" * 32}


@pytest.mark.parametrize(("items", "end"), [
    ([LOST], COUNTED | {"used": 3}),
    ([], COUNTED),
    ([LOST], COUNTED | {"repeated": 4}),
    ([LOST], COUNTED | {"version": ""}),
    ([["no-reason", 1, ["line 2"]]], COUNTED),
    ([["no-person", 1, []]], COUNTED),
    ([["no-person", 1, ["line 2"] * 4]], COUNTED),
    ([["no-person", -1, ["line 2"]]], COUNTED | {"used": 4}),
    ([LOST] * 6, COUNTED | {"lines": 8}),
    ([LOST, CELLS | {"cells": 0.5}], COUNTED),
    ([LOST, CELLS | {"examples": [{"place": "line 2", "text": "x" * 41}]}], COUNTED),
    ([LOST, CELLS | {"examples": [{"place": "line 2", "text": "x"}] * 4}], COUNTED),
    ([LOST, CELLS | {"fillers": ["x" * 41]}], COUNTED),
])  # fmt: skip
def test_counts_of_lines_that_contradict_themselves_are_not_believed(items: list[Any], end: Any) -> None:
    call = partial(reader.line_counts, ABSENT, (), OfferedColumns(), None)
    good = [(FrameKind.ITEM, one) for one in (LOST, CELLS)]
    with pytest.raises(pytest.fail.Exception):  # it does not raise
        saying(*good, (FrameKind.DONE, COUNTED), call=call)
    problem = saying(*[(FrameKind.ITEM, one) for one in items], (FrameKind.DONE, end), call=call)
    assert problem.about == "reader"


@pytest.mark.parametrize("code", ["site-policy", "storage", "bug", "protocol", "budget-exhausted"])
def test_no_reader_chooses_the_word_that_leaves_nor_ends_a_daemon(code: str) -> None:
    problem = saying((FrameKind.ERROR, [code, "two\nlines", "file"]))
    assert (problem.code, str(problem)) == (Code.BAD_DATA, "two lines")


def test_an_unexpected_error_is_logged_by_class_alone() -> None:
    problem = saying((FrameKind.ERROR, ["bad-data", "zlib.error at files.py:40", "reader"]))
    assert log_fields(problem) == {"about": "reader", "type": "zlib.error"}
    assert "zlib.error at files.py:40" in str(problem)
    assert log_fields(saying((FrameKind.ERROR, ["bad-data", "text", "c"]))) == {"about": "c"}


def test_records_beyond_the_limit_are_refused() -> None:
    study, remaining = replace(STUDY, max_records=4), list[int]()
    rows = (FrameKind.ROWS, np.zeros((3, 3), dtype=FORM.dtype))
    counts = [(FrameKind.ITEM, [6, 0, 0, 0, 0, 0, 0])] * 3
    frames = [rows, rows, *counts, done(persons=6)]

    def query(most: int | None = None) -> None:
        reader.Reader(ABSENT, most=most).stream(study, lambda some: remaining.append(len(some)))

    problem = saying(*frames, call=query)
    assert (problem.about, "over 4 records" in str(problem), remaining) == ("too-many", True, [3])
    assert saying(*frames, call=partial(query, most=2)).about == "too-many"
    with pytest.raises(pytest.fail.Exception):  # it does not raise
        saying(*frames, call=partial(query, most=6))


@pytest.mark.parametrize(("call", "one", "most"), [
    (partial(reader.columns, ABSENT), ["a", "b"], 8),
    (partial(reader.files, ABSENT), "a.parquet", 8),
    (partial(reader.variants, Path("nowhere.bim")), ["a", "b"], 8),
    (partial(reader.Reader(ABSENT).read, STUDY), GOOD_COUNTS, 3),
])  # fmt: skip
def test_excess_messages_of_a_reader_are_not_read(
    monkeypatch: Patch, call: Callable[[], Any], one: Any, most: int
) -> None:
    monkeypatch.setattr(checked, "MOST_NAMES", 8)
    received = list[Any]()

    def listening(*given: Any) -> tuple[FrameKind, Any, int]:
        received.append(given)
        return receive(*given)

    monkeypatch.setattr(process, "receive", listening)
    saying(*[(FrameKind.ITEM, one)] * (most + 3), call=call)
    assert len(received) <= most + 1


def test_a_file_of_too_many_columns_is_only_opened(tmp_path: Path, monkeypatch: Patch) -> None:
    message = hostile.csv(tmp_path / "records.csv")
    monkeypatch.setattr("eigenveil_client.records.isolated.tasks.MOST_NAMES", 2)
    with pytest.raises(BadRecords, match="too many to list"):
        list_columns(message, lambda one: None, lambda rows: None)
    reader.check_opens(message)
    assert "cannot be read" in str(refusal(lambda: reader.check_opens(ABSENT)))


def test_all_messages_of_a_reader_are_bounded_in_sum(monkeypatch: Patch) -> None:
    monkeypatch.setattr(process, "MOST_ITEMS_BYTES", 100)
    names, done = (FrameKind.ITEM, ["a" * 60]), (FrameKind.DONE, None)
    call = partial(reader.columns, ABSENT)
    with pytest.raises(pytest.fail.Exception):  # it does not raise
        saying(names, done, call=call)
    assert saying(names, names, done, call=call).about == "reader"


def test_waiting_for_a_reader_ends_at_its_limit(monkeypatch: Patch) -> None:
    slept: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append)
    monkeypatch.setattr(fork_server, "time", clock)
    server = ForkServer()
    monkeypatch.setattr(server, "_send", lambda message, descriptors: RUNNING)
    assert server.exit_status(17) == RUNNING
    assert sum(slept) == pytest.approx(ENDING_SECONDS)
