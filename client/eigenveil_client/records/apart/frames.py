"""What a reader says through its socket: frames of a fixed form, whose sizes are judged before anything is
allocated for them. Nothing of a reader's is ever unpickled.

A frame is 16 bytes of head (its kind, a number of rows, and the bytes that follow) and these bytes: JSON, or
the stored integers of rows one after the other.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from eigenveil.study.grid import GridRows

HEAD = struct.Struct("<B3xIQ")
MOST_SAID = 2**20  # bytes of JSON in a frame
MOST_ROWS = 2**24  # bytes of rows in a frame, or one row
WISH = struct.Struct("<Q")


class Kind(IntEnum):
    """Of a frame: rows, an item of several, the end, or an error instead."""

    ROWS = 1
    ITEM = 2
    DONE = 3
    ERROR = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsForm:
    """How a reader's rows must look: integers of this type from -largest to largest, so many columns."""

    columns: int
    dtype: DTypeLike
    largest: int

    @property
    def row_bytes(self) -> int:
        return self.columns * np.dtype(self.dtype).itemsize

    @property
    def rows_at_once(self) -> int:
        """How many rows are in one frame."""
        return max(1, MOST_ROWS // max(1, self.row_bytes))


class Broken(Exception):
    """What comes from a reader is no frame; or nothing comes, as it has `ended` or is `late`."""

    def __init__(self, *, late: bool = False, ended: bool = False) -> None:
        super().__init__()
        self.late, self.ended = late, ended


def send(there: socket.socket, kind: Kind, said: Any) -> None:
    """One frame of JSON. Raises ValueError: it is too large."""
    data = json.dumps(said).encode()
    if len(data) > MOST_SAID:
        raise ValueError("what a reader says at once is too long")
    there.sendall(HEAD.pack(kind, 0, len(data)) + data)


def send_rows(there: socket.socket, rows: GridRows, form: RowsForm) -> None:
    """Rows as frames, in their order."""
    size = form.rows_at_once
    for start in range(0, len(rows), size):
        part = np.ascontiguousarray(rows[start : start + size])
        there.sendall(HEAD.pack(Kind.ROWS, len(part), part.nbytes))
        there.sendall(part.data.cast("B"))


def receive(there: socket.socket, until: float, form: RowsForm | None) -> tuple[Kind, Any, int]:
    """The next frame, before the monotonic time `until`, and its size; its rows are of `form`.

    Raises:
        Broken: it is none.
    """
    kind, rows, size = HEAD.unpack(_received(there, HEAD.size, until))
    if kind == Kind.ROWS:
        return Kind.ROWS, _rows(there, rows, size, until, form), size
    if kind not in (Kind.ITEM, Kind.DONE, Kind.ERROR) or rows or size > MOST_SAID:
        raise Broken
    try:
        return Kind(kind), json.loads(_received(there, size, until)), size
    except (ValueError, RecursionError):
        raise Broken from None


def _rows(there: socket.socket, rows: int, size: int, until: float, form: RowsForm | None) -> GridRows:
    if form is None or not 1 <= rows <= form.rows_at_once or size != rows * form.row_bytes:
        raise Broken
    block: GridRows = np.empty((rows, form.columns), dtype=form.dtype)
    _fill(there, block.data.cast("B"), until)
    if block.size and not -form.largest <= int(block.min()) <= int(block.max()) <= form.largest:
        raise Broken
    block.setflags(write=False)
    return block


def _received(there: socket.socket, size: int, until: float) -> bytes:
    data = bytearray(size)
    _fill(there, memoryview(data), until)
    return bytes(data)


def _fill(there: socket.socket, into: memoryview, until: float) -> None:
    while into:
        left = until - time.monotonic()
        if left <= 0:
            raise Broken(late=True)
        there.settimeout(left)
        try:
            count = there.recv_into(into)
        except TimeoutError:
            raise Broken(late=True) from None
        except OSError:
            raise Broken(ended=True) from None
        if not count:
            raise Broken(ended=True)
        into = into[count:]
