"""Signed release of a study, in pieces. The first stands in the row of the study, from the transaction that
ends it; the others are stored before, one by one, so that other studies' rounds are stored in between.
Nothing reads them before the first is there."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil.reporting.release_file import Data
from eigenveil_common.storage.database import Connection
from eigenveil_server.storage.pieces import Place

RELEASE = Place(
    column="release", table="studies", where="digest = ?",
    more_column="data", more_table="release_pieces", more_where="study = ?",
)  # fmt: skip


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
