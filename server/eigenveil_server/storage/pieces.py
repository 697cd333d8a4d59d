"""Long values in pieces. A database copies each value under the interpreter's lock, and for all of a
statement under its own, while no call is served: 32 MB in 30 ms, a piece in less than one. The first piece
stands in the row that the value belongs to, the others in numbered rows of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from eigenveil.reporting.release_file import Data
from eigenveil_common.storage.database import Database

PIECE_BYTES = 2**20  # of one piece; the last may be shorter
FIRST = None  # in the place of a number: the piece that stands in the row
Key = tuple[str | int, ...]


def split(parts: Iterable[Data]) -> Iterator[Data]:
    """Yield the bytes of `parts` in pieces of PIECE_BYTES, and a shorter last one. A piece within one part
    is not copied."""
    pending: list[Data] = []
    size = 0
    for data in parts:
        part, at = memoryview(data), 0
        while at < len(part):
            pending.append(part[at : at + PIECE_BYTES - size])
            at, size = at + len(pending[-1]), size + len(pending[-1])
            if size == PIECE_BYTES:
                yield _joined(pending)
                pending, size = [], 0
    if pending:
        yield _joined(pending)


def _joined(pending: list[Data]) -> Data:
    return pending[0] if len(pending) == 1 else b"".join(pending)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Storage of long values by key: column and table of the first piece and its condition, and those of the
    others, which are numbered."""

    column: str
    table: str
    where: str
    more_column: str
    more_table: str
    more_where: str

    def read(self, reader: Database, key: Key) -> memoryview | None:
        """Return the whole value, read-only and in memory once; None where there is no first piece."""
        rows = reader.rows(f"SELECT {self.column} FROM {self.table} WHERE {self.where}", key)
        if not rows or rows[0][0] is None:
            return None
        first = bytes(rows[0][0])
        if len(first) < PIECE_BYTES:  # no other follows
            return memoryview(first)
        lengths = self._lengths(reader, key)
        data = np.empty(sum(length for _, length in lengths), dtype=np.uint8)
        at = 0
        for number, length in lengths:
            piece = first if number is FIRST else self._piece(reader, key, number)
            data[at : at + length] = np.frombuffer(piece, dtype=np.uint8)
            at += length
        data.setflags(write=False)
        return data.data

    def read_part(self, reader: Database, key: Key, start: int, most: int) -> tuple[bytes, int] | None:
        """Return up to `most` bytes from byte `start` on, and the size of the whole; None as `read`. No other
        pieces are read."""
        lengths = self._lengths(reader, key)
        if not lengths:
            return None
        found: list[bytes] = []
        at = 0
        for number, length in lengths:
            if at < start + most and at + length > start:
                found.append(self._piece(reader, key, number)[max(0, start - at) : start + most - at])
            at += length
        return b"".join(found), at

    def _lengths(self, reader: Database, key: Key) -> list[tuple[int | None, int]]:
        """Return number and bytes of each piece, in order; none where there is no first piece."""
        begun = f"SELECT LENGTH({self.column}) FROM {self.table} WHERE {self.where}"
        rows = reader.rows(begun, key)
        if not rows or rows[0][0] is None:
            return []
        more = f"SELECT piece, LENGTH({self.more_column}) FROM {self.more_table} WHERE {self.more_where}"
        others = [(row[0], row[1]) for row in reader.rows(f"{more} ORDER BY piece", key)]
        return [(FIRST, rows[0][0]), *others]

    def _piece(self, reader: Database, key: Key, number: int | None) -> bytes:
        if number is FIRST:
            rows = reader.rows(f"SELECT {self.column} FROM {self.table} WHERE {self.where}", key)
        else:
            found = f"SELECT {self.more_column} FROM {self.more_table} WHERE {self.more_where} AND piece = ?"
            rows = reader.rows(found, (*key, number))
        return bytes(rows[0][0])
