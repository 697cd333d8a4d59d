"""Signed release of a study, in pieces. A database copies each value under the interpreter's lock and for all
of a statement under its own, while no call is served: 32 MB in 30 ms, a piece in less than one. The first
piece stands in the row of the study, from the transaction that ends it; the others are stored before, one by
one, so that other studies' rounds are stored in between. Nothing reads them before the first is there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from eigenveil.reporting.release_file import Data
from eigenveil_common.storage.database import Connection, Database

PIECE_BYTES, FIRST = 2**20, 0  # bytes of a piece, and the number of that which stands in the row of the study


def pieces(parts: Iterable[Data]) -> Iterator[Data]:
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


def store_piece(change: Connection, study: str, number: int, data: Data) -> None:
    """Store a further piece, from number 1, of a study that has not ended; an earlier process may have stored
    another one."""
    change.execute(
        "INSERT INTO release_pieces (study, piece, data) VALUES (?, ?, ?) "
        "ON CONFLICT (study, piece) DO UPDATE SET data = excluded.data",
        (study, number, data),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPieces:
    """Release of `count` pieces, which are stored but for the `first`; none where a study has no release."""

    first: Data | None
    count: int


NO_PIECES = StoredPieces(first=None, count=0)


def publish(change: Connection, study: str, release: StoredPieces) -> None:
    """Publish a release, in the transaction that ends its study; what an earlier process has stored beyond it
    is deleted."""
    change.execute("DELETE FROM release_pieces WHERE study = ? AND piece >= ?", (study, release.count))
    change.execute("UPDATE studies SET release = ? WHERE digest = ?", (release.first, study))


def read_release(reader: Database, study: str) -> memoryview | None:
    """Return the whole release; None before it is published."""
    lengths = _lengths(reader, study)
    if not lengths:
        return None
    data = np.empty(sum(lengths.values()), dtype=np.uint8)
    at = 0
    for number, length in lengths.items():
        data[at : at + length] = np.frombuffer(_piece(reader, study, number), dtype=np.uint8)
        at += length
    data.setflags(write=False)
    return data.data


def read_part(reader: Database, study: str, start: int, most: int) -> tuple[bytes, int] | None:
    """Return up to `most` bytes from byte `start` on, and the size of the release; None before it is
    published."""
    lengths = _lengths(reader, study)
    if not lengths:
        return None
    found: list[bytes] = []
    at = 0
    for number, length in lengths.items():
        if at < start + most and at + length > start:
            found.append(_piece(reader, study, number)[max(0, start - at) : start + most - at])
        at += length
    return b"".join(found), at


def _lengths(reader: Database, study: str) -> dict[int, int]:
    """Return the bytes of each piece, by its number; none before the release is published."""
    ((first,),) = reader.rows("SELECT LENGTH(release) FROM studies WHERE digest = ?", (study,))
    if first is None:
        return {}
    more = "SELECT piece, LENGTH(data) FROM release_pieces WHERE study = ? ORDER BY piece"
    return {FIRST: first, **{row[0]: row[1] for row in reader.rows(more, (study,))}}


def _piece(reader: Database, study: str, number: int) -> bytes:
    if number == FIRST:
        ((data,),) = reader.rows("SELECT release FROM studies WHERE digest = ?", (study,))
    else:
        where = "SELECT data FROM release_pieces WHERE (study, piece) = (?, ?)"
        ((data,),) = reader.rows(where, (study, number))
    return bytes(data)
