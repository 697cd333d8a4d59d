"""Frames that a reader sends through its socket, and checks of their content.

A frame is a head of 16 bytes (kind, number of rows, number of bytes that follow) and a body: JSON, or the
stored integers of consecutive rows. Sizes are checked before memory is allocated. A reader's data is never
unpickled: plain values become typed ones, or `ReaderFailure` is raised."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from eigenveil.study.grid import GridRows, stored_dtype
from eigenveil.study.study import Study
from eigenveil_client.records.column_quality import COUNTS, ColumnProfile, ColumnQuality
from eigenveil_client.records.line_counts import LONGEST_CELL, CellExample, LineCounts, UnreadableCells
from eigenveil_client.records.tables.lost import EXAMPLES, LostLines, LostReason

HEAD = struct.Struct("<B3xIQ")
MAX_JSON_BYTES = 2**20  # bytes of JSON in a frame
MOST_ROWS = 2**24  # bytes of rows in a frame, or one row
REQUEST_SIZE = struct.Struct("<Q")


class FrameKind(IntEnum):
    """Kind of a frame: rows, one of several items, the end, or an error instead."""

    ROWS = 1
    ITEM = 2
    DONE = 3
    ERROR = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLayout:
    """Layout of a reader's rows: the number of columns, and integers of a type from -largest to largest."""

    columns: int
    dtype: DTypeLike
    largest: int

    @property
    def row_bytes(self) -> int:
        return self.columns * np.dtype(self.dtype).itemsize


def rows_at_once(row_bytes: int) -> int:
    """Return the number of rows in one frame."""
    return max(1, MOST_ROWS // max(1, row_bytes))


class ReaderFailure(Exception):
    """A reader sent an invalid frame, has `ended`, or is `late`."""

    def __init__(self, *, late: bool = False, ended: bool = False) -> None:
        super().__init__()
        self.late, self.ended = late, ended


def send(connection: socket.socket, kind: FrameKind, value: Any) -> None:
    """Send one frame of JSON. Raises ValueError: it is too large."""
    data = json.dumps(value).encode()
    if len(data) > MAX_JSON_BYTES:
        raise ValueError("a frame of JSON is too large")
    connection.sendall(HEAD.pack(kind, 0, len(data)) + data)


def send_rows(connection: socket.socket, rows: GridRows) -> None:
    """Send rows as frames, in their order."""
    size = rows_at_once(rows.shape[1] * rows.itemsize)
    for start in range(0, len(rows), size):
        part = np.ascontiguousarray(rows[start : start + size])
        connection.sendall(HEAD.pack(FrameKind.ROWS, len(part), part.nbytes))
        connection.sendall(part.data.cast("B"))


def receive(
    connection: socket.socket, deadline: float, layout: RowLayout | None
) -> tuple[FrameKind, Any, int]:
    """Return the next frame, before the monotonic time `deadline`, and its size. Its rows have `layout`.
    Raises ReaderFailure: the frame is invalid, or did not arrive."""
    kind, rows, size = HEAD.unpack(_received(connection, HEAD.size, deadline))
    if kind == FrameKind.ROWS:
        return FrameKind.ROWS, _rows(connection, rows, size, deadline, layout), size
    if kind not in (FrameKind.ITEM, FrameKind.DONE, FrameKind.ERROR) or rows or size > MAX_JSON_BYTES:
        raise ReaderFailure
    try:
        return FrameKind(kind), json.loads(_received(connection, size, deadline)), size
    except (ValueError, RecursionError):
        raise ReaderFailure from None


def _rows(ours: socket.socket, rows: int, size: int, deadline: float, layout: RowLayout | None) -> GridRows:
    if layout is None or not 1 <= rows <= rows_at_once(layout.row_bytes) or size != rows * layout.row_bytes:
        raise ReaderFailure
    block: GridRows = np.empty((rows, layout.columns), dtype=layout.dtype)
    _fill(ours, block.data.cast("B"), deadline)
    if block.size and not -layout.largest <= int(block.min()) <= int(block.max()) <= layout.largest:
        raise ReaderFailure
    block.setflags(write=False)
    return block


def _received(connection: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray(size)
    _fill(connection, memoryview(data), deadline)
    return bytes(data)


def _fill(connection: socket.socket, into: memoryview, deadline: float) -> None:
    while into:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise ReaderFailure(late=True)
        connection.settimeout(remaining)
        try:
            count = connection.recv_into(into)
        except TimeoutError:
            raise ReaderFailure(late=True) from None
        except OSError:
            raise ReaderFailure(ended=True) from None
        if not count:
            raise ReaderFailure(ended=True)
        into = into[count:]


def row_layout(study: Study) -> RowLayout:
    """Return the layout of stored integers of the study's grid, from -grid_steps to grid_steps."""
    return RowLayout(columns=study.dimension, dtype=stored_dtype(study), largest=study.grid_steps)


MOST_TEXT = 2**16  # characters of a name
MOST = 2**62
MOST_NAMES = 2**20

Given = ParamSpec("Given")
Made = TypeVar("Made")


def strict(make: Callable[Given, Made]) -> Callable[Given, Made]:
    """Decorate `make` so that every error of a value is raised as ReaderFailure."""

    @wraps(make)
    def made(*given: Given.args, **named: Given.kwargs) -> Made:
        try:
            return make(*given, **named)
        except (TypeError, ValueError, KeyError, IndexError, OverflowError):
            raise ReaderFailure from None

    return made


def count(value: Any, most: int = MOST) -> int:
    """Return a count. Raises ReaderFailure: it is not one, or above `most`."""
    if type(value) is not int or not 0 <= value <= most:
        raise ReaderFailure
    return value


def text(value: Any) -> str:
    """Return a text. Raises ReaderFailure: it is not one, or too long."""
    if type(value) is not str or len(value) > MOST_TEXT:
        raise ReaderFailure
    return value


def number(value: Any) -> float:
    """Return a float. Raises ReaderFailure: it is not a number."""
    if type(value) not in (int, float):
        raise ReaderFailure
    return float(value)


@strict
def digest_of(value: Any) -> bytes:
    """Return 32 bytes from hexadecimal digits."""
    found = bytes.fromhex(text(value))
    if len(found) != 32:
        raise ReaderFailure
    return found


def add(found: list[Made], more: Sequence[Made], most: int | None = None) -> None:
    """Append `more` to `found`. Raises ReaderFailure: there would be more than `most` (default:
    MOST_NAMES)."""
    if len(found) + len(more) > (MOST_NAMES if most is None else most):
        raise ReaderFailure
    found.extend(more)


@strict
def texts(value: Any) -> list[str]:
    """Return a list of names."""
    return [text(one) for one in list(value)]


@strict
def quality(name: str, counts: Any, persons: int = MOST) -> ColumnQuality:
    """Return the counts of one column, stated in their order, none above the persons."""
    every, *some = (count(one, persons) for one in counts)
    checked = (every, *(count(one, every) for one in some))
    return ColumnQuality(name=name, **dict(zip(COUNTS, checked, strict=True)))


@strict
def column_profile(value: Any) -> ColumnProfile:
    """Return a profile from what `asdict` made of it."""
    name, good, problem, span = (value[key] for key in ("name", "quality", "problem", "span"))
    return ColumnProfile(
        name=text(name),
        quality=None if good is None else quality(text(good["name"]), [good[one] for one in COUNTS]),
        frequent=tuple((number(one), count(times)) for one, times in value["frequent"]),
        quantiles=tuple(number(one) for one in value["quantiles"]),
        span=None if span is None else (number(span[0]), number(span[1])),
        histogram=tuple(count(one) for one in value["histogram"]),
        problem=None if problem is None else text(problem),
    )


@strict
def lost_lines(value: Any) -> LostLines:
    """Return the lost lines of one reason."""
    reason, lines, first = value
    places = tuple(texts(first))
    if len(places) > EXAMPLES or not places:
        raise ReaderFailure
    return LostLines(reason=LostReason(reason), lines=count(lines), first=places)


@strict
def unreadable_cells(value: Any) -> UnreadableCells:
    """Return the unreadable cells of a column from what `asdict` made of them."""
    examples = tuple(
        CellExample(place=text(one["place"]), text=text(one["text"])) for one in value["examples"]
    )
    if len(examples) > EXAMPLES or any(len(one.text) > LONGEST_CELL for one in examples):
        raise ReaderFailure
    about = {"column": text(value["column"]), "what": text(value["what"])}
    return UnreadableCells(cells=count(value["cells"]), examples=examples, **about)


@strict
def counts_of(
    done: Any, lost: Sequence[LostLines], cells: Sequence[UnreadableCells], names: Sequence[str]
) -> LineCounts:
    """Return the counts of all lines, which must be the used and the lost ones."""
    lines, used = count(done["lines"]), count(done["used"])
    if lines != used + sum(one.lines for one in lost):
        raise ReaderFailure
    return LineCounts(
        version=digest_of(done["version"]),
        lines=lines,
        used=used,
        lost=tuple(lost),
        skipped=count(done["skipped"]),
        repeated=None if done["repeated"] is None else count(done["repeated"], lines),
        cells=tuple(cells),
        not_numbers=tuple(names),
    )
