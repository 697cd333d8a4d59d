"""Frames that a reader sends through its socket.

A frame is a head of 16 bytes (kind, number of rows, number of bytes that follow) and a body: JSON, or the
stored integers of consecutive rows. Sizes are checked before memory is allocated. A reader's data is never
unpickled, and `checked` makes typed values of it."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from eigenveil.study.grid import GridRows, stored_dtype
from eigenveil.study.study import Study

HEAD = struct.Struct("<B3xIQ")
MAX_JSON_BYTES = 2**20  # bytes of JSON in a frame
MOST_ROWS = 2**24  # bytes of rows in a frame, or one row
REQUEST_SIZE = struct.Struct("<Q")

Item = Callable[[Any], None]  # sends or takes one plain value, as JSON has them


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
