"""Long values, stored in pieces. While a database copies a value, no call is served: 30 ms for 32 MB, and for
a piece less than one. The first piece is in the row that the value belongs to. The others have numbered rows
in a second table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from eigenveil.reporting.release_file import Data
from eigenveil_common.storage.database import Database

# Of each piece but the last. Frozen in stored data: after a shorter first piece, no other is read. Before
# schema 16 a release was one piece of any length.
PIECE_BYTES = 2**20
FIRST = None  # instead of a number: the piece in the row that the value belongs to
Key = tuple[str | int, ...]
Decode = Callable[[int, int, bytes], bytes]  # of bytes of a numbered piece from a position on


def split(parts: Iterable[Data]) -> Iterator[Data]:
    """Yield the bytes of `parts` in pieces of PIECE_BYTES, of which the last may be shorter. A piece within
    one part is not copied."""
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


def as_stored(_number: int, _start: int, data: bytes) -> bytes:
    """Decode a piece that is stored as it is."""
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class PiecedColumn:
    """Column of long values in pieces. `column`, `table` and `where` select the first piece of a value by its
    key; `more_column`, `more_table` and `more_where` select the others, which are numbered; they are decoded
    by `decode`."""

    column: str
    table: str
    where: str
    more_column: str
    more_table: str
    more_where: str

    def read(self, reader: Database, key: Key, decode: Decode = as_stored) -> memoryview | None:
        """Return a whole value, read-only and in memory once; None if it has no first piece."""
        rows = reader.rows(f"SELECT {self.column} FROM {self.table} WHERE {self.where}", key)
        if not rows or rows[0][0] is None:
            return None
        first = bytes(rows[0][0])
        others = self._others(reader, key, len(first))
        if not others:
            return memoryview(first)
        data = np.empty(len(first) + sum(length for _, length in others), dtype=np.uint8)
        data[: len(first)] = np.frombuffer(first, dtype=np.uint8)
        at = len(first)
        for number, length in others:
            piece = decode(number, 0, self._bytes(reader, key, number, 0, length))
            data[at : at + length] = np.frombuffer(piece, dtype=np.uint8)
            at += length
        data.setflags(write=False)
        return data.data

    def read_part(
        self, reader: Database, key: Key, start: int, most: int, decode: Decode = as_stored
    ) -> tuple[bytes, int] | None:
        """Return up to `most` bytes of a value from byte `start` on, and the size of the whole; None if it
        has no first piece. Other bytes do not leave the database."""
        begun = f"SELECT LENGTH({self.column}) FROM {self.table} WHERE {self.where}"
        rows = reader.rows(begun, key)
        if not rows or rows[0][0] is None:
            return None
        found: list[bytes] = []
        at = 0
        for number, length in [(FIRST, rows[0][0]), *self._others(reader, key, rows[0][0])]:
            skipped = max(0, start - at)
            wanted = min(length, start + most - at) - skipped
            if wanted > 0:
                data = self._bytes(reader, key, number, skipped, wanted)
                found.append(data if number is FIRST else decode(number, skipped, data))
            at += length
        return b"".join(found), at

    def _others(self, reader: Database, key: Key, first_bytes: int) -> list[tuple[int, int]]:
        """Return number and length in bytes of each piece after the first, in order; none after a short first
        one."""
        if first_bytes < PIECE_BYTES:
            return []
        more = f"SELECT piece, LENGTH({self.more_column}) FROM {self.more_table} WHERE {self.more_where}"
        return [(row[0], row[1]) for row in reader.rows(f"{more} ORDER BY piece", key)]

    def _bytes(self, reader: Database, key: Key, number: int | None, start: int, wanted: int) -> bytes:
        """Return `wanted` bytes of one piece from byte `start` on."""
        column, table, where = self.column, self.table, self.where
        if number is not FIRST:
            column, table, where = self.more_column, self.more_table, f"{self.more_where} AND piece = ?"
            key = (*key, number)
        found = f"SELECT SUBSTR({column}, ?, ?) FROM {table} WHERE {where}"
        return bytes(reader.rows(found, (start + 1, wanted, *key))[0][0])
