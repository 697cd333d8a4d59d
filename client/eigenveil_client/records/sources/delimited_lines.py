"""Lines of delimited text, each judged by itself: a record, or lost for one reason, or open at a quote."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import BinaryIO, NamedTuple

from eigenveil_client.records.tables.lost import LostReason

CHUNK_BYTES = 4 * 2**20


class Line(NamedTuple):
    """A nonempty line of a file: its number (from 1), its bytes, and why it is lost, if so."""

    number: int
    text: bytes
    lost: LostReason | None


def line_chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of a file in pieces of whole lines."""
    rest = b""
    while data := file.read(CHUNK_BYTES):
        end = data.rfind(b"\n") + 1
        if end:
            yield rest + data[:end]
            rest = b""
        rest += data[end:]
    if rest:
        yield rest


class LineRule:
    """Rule for lines of `columns` cells between marks `separator`, as Arrow reads them. A quote opens a cell
    only at its beginning, two quotes within are one, and text after the closing quote belongs to the cell."""

    def __init__(self, separator: str, columns: int) -> None:
        self._separator, self._marks = separator.encode(), columns - 1

    @cached_property
    def _cell(self) -> bytes:
        mark = re.escape(self._separator)
        return rb'(?:"(?:[^"]++|"")*+"[^%b]*+|[^"%b][^%b]*+|)' % (mark, mark, mark)

    @cached_property
    def _whole(self) -> re.Pattern[bytes]:
        more = b"(?:%b%b){%d}" % (re.escape(self._separator), self._cell, self._marks)
        return re.compile(self._cell + more)

    @cached_property
    def _closed(self) -> re.Pattern[bytes]:
        return re.compile(b"%b(?:%b%b)*+" % (self._cell, re.escape(self._separator), self._cell))

    def reason(self, line: bytes) -> LostReason | None:
        """Return why a line is lost; None if it is a record."""
        plain = b'"' not in line
        fits = (
            line.count(self._separator) == self._marks if plain else self._whole.fullmatch(line) is not None
        )
        if not fits:
            return LostReason.MANY_CELLS if self._whole.match(line) else LostReason.FEW_CELLS
        return None if is_utf8(line) else LostReason.BYTES

    def is_open(self, line: bytes) -> bool:
        """Return True if a quoted cell does not end in this line."""
        return self._closed.fullmatch(line) is None


def is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
