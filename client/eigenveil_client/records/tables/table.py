"""What records come from, to the rest: batches of named columns that can be read again and again; a study's
columns are found by name, and by the unit in brackets.

Text is not checked to be UTF-8 here: one record's bytes must not decide about a file.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from eigenveil.errors import Code, RequestError
from eigenveil_client.records.tables.dialect import Dialect

# Arrow's MemoryError is one of these as well: it passes, and the process of the reader says so.
UNREADABLE = (pa.ArrowException, OSError, UnicodeError, LookupError, EOFError, zlib.error)

LeaveOut = Callable[[int], None]  # told how many lines of a file are left out


class BadRecords(RequestError):
    """Records that do not do, code `bad-data`.

    `about` is a column or one fixed word: the message may name lines, a daemon's log may not. `kind` is the
    class of an error that nobody foresaw, else empty.
    """

    def __init__(self, message: str, *, about: str = "file", kind: str = "") -> None:
        super().__init__(Code.BAD_DATA, message)
        self.about = about
        self.kind = kind


class Source(Protocol):
    """Records that can be read again and again, as batches of named columns."""

    @property
    def headers(self) -> tuple[str, ...]:
        """The names of its columns, as the file writes them."""

    @property
    def dialect(self) -> Dialect:
        """How numbers are written where its cells are text."""

    def schema(self) -> pa.Schema:
        """Its columns and their types; nothing is computed from a record.

        Raises:
            BadRecords: as `batches`.
        """

    def digest(self) -> bytes:
        """Of all of it, whatever a study looks at: it changes when the records do.

        Raises:
            BadRecords: as `batches`.
        """

    def batches(self, headers: list[str], leave_out: LeaveOut | None) -> Iterator[pa.RecordBatch]:
        """These columns, in this order, in pieces that keep the order of its rows.

        A line with another number of cells than the header is refused; or left out, if `leave_out` is given.

        Raises:
            BadRecords: it cannot be read.
        """

    def place(self, row: int, *, whole: bool = True) -> str:
        """Where a person finds row `row` (from 0): "line 7"; not `whole`: of the lines that are left out."""


def unreadable(path: Path) -> BadRecords:
    """The error of a file of which nothing can be read."""
    return BadRecords(f"{path} cannot be read; check that it exists, is whole and readable")


def name_and_unit(header: str) -> tuple[str, str | None]:
    """`glucose [mmol/L]` is the column glucose in mmol/L; without brackets there is no unit."""
    name, bracket, unit = header.strip().rpartition("[")
    if not bracket or not unit.endswith("]") or not name.strip():
        return header.strip(), None
    return name.strip(), unit[:-1].strip()


class Headers:
    """The headers of a file, by what they name: with and without the unit in brackets."""

    def __init__(self, headers: tuple[str, ...]) -> None:
        self._number = len(headers)
        self._named: dict[str, list[str]] = {}
        for header in headers:
            for name in {header.strip(), name_and_unit(header)[0]}:
                self._named.setdefault(name, []).append(header)

    def find(self, name: str, unit: str | None = None) -> str:
        """The header for the column `name`, in `unit` if that is given.

        Raises:
            BadRecords: it is missing or there twice, or its unit in brackets is another one.
        """
        return _only(self._named.get(name, []), self._number, name, unit)


def find_column(headers: tuple[str, ...], name: str, unit: str | None = None) -> str:
    """The header of a file for one column. Raises as `Headers.find`."""
    return Headers(headers).find(name, unit)


def _only(fits: list[str], headers: int, name: str, unit: str | None) -> str:
    if not fits:
        hint = " (is the file separated by commas?)" if headers == 1 else ""
        raise BadRecords(f"the records have no column {name!r}{hint}; add it", about=name)
    if len(fits) > 1:
        raise BadRecords(f"the records have {len(fits)} columns {name!r}; keep one", about=name)
    stated = None if fits[0].strip() == name else name_and_unit(fits[0])[1]
    if unit is not None and stated is not None and stated != unit:
        raise BadRecords(
            f"column {name!r} is in {stated!r} in the records and in {unit!r} in the study; convert it",
            about=name,
        )
    return fits[0]
