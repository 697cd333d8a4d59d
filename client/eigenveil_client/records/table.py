"""What a file of records is to the rest: batches of named columns that can be read again and again.

Text is not checked to be UTF-8 here: one record's bytes must not decide about a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from eigenveil.errors import Code, RequestError

UNREADABLE = (pa.ArrowException, OSError, UnicodeError, LookupError)

LeaveOut = Callable[[int], None]  # told how many lines of a file are left out


class BadRecords(RequestError):
    """Records that do not do, code `bad-data`.

    `about` is a column or one fixed word: the message may name lines, a daemon's log may not.
    """

    def __init__(self, message: str, *, about: str = "file") -> None:
        super().__init__(Code.BAD_DATA, message)
        self.about = about


class Table(Protocol):
    """A file of records that can be read again and again."""

    @property
    def headers(self) -> tuple[str, ...]:
        """The names of its columns, as the file writes them."""

    def batches(self, headers: list[str], leave_out: LeaveOut | None) -> Iterator[pa.RecordBatch]:
        """These columns, in this order, in pieces that keep the file's order of rows.

        A line with another number of cells than the header is refused; or left out, if `leave_out` is given.

        Raises:
            BadRecords: the file cannot be read.
        """

    def place(self, row: int, *, whole: bool = True) -> str:
        """Where a person finds row `row` (from 0): "line 7"; not `whole`: of the lines that are left out."""


def unreadable(path: Path) -> BadRecords:
    """The error of a file of which nothing can be read."""
    return BadRecords(f"{path} cannot be read; check that it exists, is whole and readable")
