"""Signed release of a study, in pieces. All but the first are stored ahead, each in a transaction of its own,
so that other studies' rounds are stored in between. The transaction that ends the study stores the first in
the study's row. Nothing is read before that."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil.errors import Code, InternalError
from eigenveil.reporting.release_file import Data
from eigenveil_common.storage.database import Connection
from eigenveil_server.storage.pieces import PiecedColumn
from eigenveil_server.storage.states import StudyState

RELEASE = PiecedColumn(
    column="release", table="studies", where="digest = ?",
    more_column="data", more_table="release_pieces", more_where="study = ?",
)  # fmt: skip


def store_piece(change: Connection, study: str, number: int, data: Data) -> None:
    """Store a piece after the first, numbered from 1. An earlier process may have stored another one.

    Raises InternalError: code `bug`, the study is not running or has a release, which never changes."""
    unpublished = "SELECT 1 FROM studies WHERE (digest, state) = (?, ?) AND release IS NULL"
    if not change.execute(unpublished, (study, StudyState.RUNNING.value)):
        raise InternalError(Code.BUG, f"study {study[:12]} has ended and takes no piece of a release")
    change.execute(
        "INSERT INTO release_pieces (study, piece, data) VALUES (?, ?, ?) "
        "ON CONFLICT (study, piece) DO UPDATE SET data = excluded.data",
        (study, number, data),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPieces:
    """Release of `count` pieces, all stored but the `first`; NO_PIECES for a study without a release."""

    first: Data | None
    count: int


NO_PIECES = StoredPieces(first=None, count=0)


def publish(change: Connection, study: str, release: StoredPieces) -> None:
    """Publish a release, in the transaction that ends its study, and delete pieces beyond it, which an
    earlier process has stored."""
    change.execute("DELETE FROM release_pieces WHERE study = ? AND piece >= ?", (study, release.count))
    change.execute("UPDATE studies SET release = ? WHERE digest = ?", (release.first, study))
