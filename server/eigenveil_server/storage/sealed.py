"""Sealed releases as stored, and checks of stored records against their own digest or signature. A disk may
change bits silently."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from cryptography.exceptions import InvalidSignature
from google.protobuf.message import DecodeError

from eigenveil.errors import Code, InternalError, PeerError, RequestError, round_label
from eigenveil.numerics.encoding import IntArray, digest_of, to_memoryview
from eigenveil.protocol.rounds import Release, SignedRound
from eigenveil.protocol.wire import query_from_proto, round_to_proto
from eigenveil.reporting.release_file import Data
from eigenveil.reporting.verify import load_release
from eigenveil.secure_aggregation.masking import Attempt
from eigenveil_common.storage.database import Connection, Database, Row
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.storage.pieces import Decode, PiecedColumn, as_stored, split
from eigenveil_server.storage.sealed_pieces import crypt

UNREADABLE = (
    ValueError, KeyError, TypeError, OverflowError, InvalidSignature, DecodeError, PeerError, RequestError,
)  # fmt: skip


@contextmanager
def _unchanged(what: str, study: str) -> Iterator[None]:
    """Raise InternalError, code `storage`, if the body cannot read a stored record or finds that it was
    changed."""
    try:
        yield
    except UNREADABLE as problem:
        raise InternalError(
            Code.STORAGE, f"a stored {what} of study {study[:12]} was changed; restore the database"
        ) from problem


def _check_equal(found: object, expected: object) -> None:
    if found != expected:
        raise ValueError(expected)


def check_plan(study: str, plan: bytes) -> None:
    """Raise InternalError, code `storage`, unless this plan has the study's digest."""
    with _unchanged("plan", study):
        _check_equal(digest_of("plan", plan), study)


def check_release(study: str, release: Data) -> None:
    """Raise unless this release of a study is intact, signed by any key. Raises as `check_plan`."""
    with _unchanged("release", study):
        load_release(release)


def check_query(study: str, query_bytes: bytes, expected: str) -> None:
    """Raise unless this query of a round has the digest `expected`. Raises as `check_plan`."""
    with _unchanged("query", study):
        _check_equal(query_from_proto(pb.Query.FromString(query_bytes)).digest, expected)


def parse_attempt(study: str, signed_bytes: bytes, expected: str) -> Attempt:
    """Return the attempt with the digest `expected`. Raises as `check_plan`."""
    with _unchanged("set of sites", study):
        attempt = Attempt.read(signed_bytes)
        _check_equal(attempt.digest, expected)
    return attempt


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SealedRelease:
    """A sealed release and its round statement."""

    release: Release
    signed_round: SignedRound

    def message(self) -> pb.SealedRound:
        """Return both as sites and analysts receive them."""
        return round_to_proto(self.release, self.signed_round)


VALUES = PiecedColumn(
    column='"values"', table="releases", where="(study, round) = (?, ?)",
    more_column="data", more_table="sealed_pieces", more_where="(study, round) = (?, ?)",
)  # fmt: skip
# Without a key: before schema 16, values of more than one piece were stored with the release.
VALUES_OF_OLD = replace(VALUES, more_column='"values"', more_table="releases_continued")


def add_release(
    change: Connection, study: str, release: Release, stated: SignedRound, piece_key: bytes | None
) -> None:
    """Store a release and its statement; they are never changed. `piece_key` is that of its pieces after the
    first, which are stored already."""
    row = {
        "study": study,
        "round": release.round,
        "query": release.query,
        "values": next(split([to_memoryview(release.values)]), b""),
        "piece_key": piece_key,
        "sigma": release.sigma,
        "micro_rho": release.micro_rho,
        "atto_delta": str(release.atto_delta),  # may exceed 63 bits
        "present": json.dumps(release.present),
        "digest": release.digest,
        "signed_json": stated.signed_json,
        "signature": stated.signature,
    }
    change.insert("releases", row)


OUTLINE = (
    "study, round, query, sigma, micro_rho, atto_delta, present, digest, signed_json, signature, piece_key"
)


def sealed_of(reader: Database, row: Row) -> SealedRelease:
    """Return the release of a row of `releases`, of its OUTLINE. Raises InternalError: code `storage`: it is
    not what was sealed."""
    with _unchanged(f"release of {round_label(row['round'])}", row["study"]):
        column, decode = _column(row)
        data = column.read(reader, (row["study"], row["round"]), decode)
        sealed = _sealed(row, np.frombuffer(data or b"", dtype="<i8"))
        _check_equal(sealed.release.digest, row["digest"])
    return sealed


def part_of(reader: Database, row: Row, start: int, most: int) -> tuple[pb.SealedRound, int]:
    """Return the message of the release with up to `most` bytes of its values, from byte `start` on, and the
    bytes of all values, of which no others are read. The release is not checked."""
    message = _sealed(row, np.empty(0, dtype=np.int64)).message()
    column, decode = _column(row)
    read = column.read_part(reader, (row["study"], row["round"]), start, most, decode)
    message.values, size = read or (b"", 0)
    return message, size


def _column(row: Row) -> tuple[PiecedColumn, Decode]:
    """Return where the values of a release are, and what decodes its pieces after the first."""
    key = row["piece_key"]
    return (VALUES_OF_OLD, as_stored) if key is None else (VALUES, partial(crypt, bytes(key)))


def _sealed(row: Row, values: IntArray) -> SealedRelease:
    release = Release(
        round=row["round"],
        query=row["query"],
        values=values,
        sigma=row["sigma"],
        micro_rho=row["micro_rho"],
        atto_delta=int(row["atto_delta"]),
        present=tuple(json.loads(row["present"])),
    )
    signed = SignedRound(signed_json=row["signed_json"], signature=row["signature"])
    return SealedRelease(release=release, signed_round=signed)
