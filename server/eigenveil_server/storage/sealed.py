"""Sealed releases as stored, and checks of stored records against their own digest or signature. A disk may
change bits silently. A long release continues in rows of its own: a database copies each value under the
interpreter's lock, while no call is served (100 MB in 70 ms)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import numpy as np
from cryptography.exceptions import InvalidSignature
from google.protobuf.message import DecodeError

from eigenveil.errors import Code, InternalError, PeerError, RequestError, round_label
from eigenveil.numerics.encoding import IntArray, digest_of, from_bytes, to_memoryview
from eigenveil.protocol.rounds import Release, SignedRound
from eigenveil.protocol.wire import ALL, query_from_proto, round_to_proto
from eigenveil.reporting.release_file import Data
from eigenveil.reporting.verify import load_release
from eigenveil.secure_aggregation.masking import Attempt
from eigenveil_common.storage.database import Connection, Database, Row
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.storage.release_pieces import PIECE_BYTES

UNREADABLE = (ValueError, KeyError, TypeError, InvalidSignature, DecodeError, PeerError, RequestError)


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

    def message(self, part: slice = ALL) -> pb.SealedRound:
        """Return both as sites and analysts receive them, with the bytes of the values in `part`."""
        return round_to_proto(self.release, self.signed_round, part)


def add_release(change: Connection, study: str, release: Release, stated: SignedRound) -> None:
    """Store a release and its statement; they are never changed."""
    data, where = to_memoryview(release.values), {"study": study, "round": release.round}
    row = {
        **where,
        "query": release.query,
        "values": data[:PIECE_BYTES],
        "sigma": release.sigma,
        "micro_rho": release.micro_rho,
        "atto_delta": str(release.atto_delta),  # may exceed 63 bits
        "present": json.dumps(release.present),
        "digest": release.digest,
        "signed_json": stated.signed_json,
        "signature": stated.signature,
    }
    change.insert("releases", row)
    for piece, start in enumerate(range(PIECE_BYTES, len(data), PIECE_BYTES)):
        rest = {"piece": piece, "values": data[start : start + PIECE_BYTES]}
        change.insert("releases_continued", {**where, **rest})


def sealed_of(reader: Database, row: Row) -> SealedRelease:
    """Return the release of a row of `releases` and its continuation rows. Raises InternalError: code
    `storage`: it is not what was sealed."""
    with _unchanged(f"release of {round_label(row['round'])}", row["study"]):
        release = Release(
            round=row["round"],
            query=row["query"],
            values=_values(reader, row),
            sigma=row["sigma"],
            micro_rho=row["micro_rho"],
            atto_delta=int(row["atto_delta"]),
            present=tuple(json.loads(row["present"])),
        )
        _check_equal(release.digest, row["digest"])
    return SealedRelease(
        release=release, signed_round=SignedRound(signed_json=row["signed_json"], signature=row["signature"])
    )


def _values(reader: Database, row: Row) -> IntArray:
    """Return all values of a release, in memory once. The digest detects any change."""
    first: bytes = row["values"]
    if len(first) < PIECE_BYTES:
        return from_bytes(first, (len(first) // 8,))
    where, table = (row["study"], row["round"]), "FROM releases_continued WHERE (study, round"
    ((rest,),) = reader.rows(f'SELECT SUM(LENGTH("values")) {table}) = (?, ?)', where)
    data = np.zeros(-(-(len(first) + int(rest or 0)) // 8) * 8, dtype=np.uint8)
    part, at = first, 0
    for piece in count():
        data[at : at + len(part)] = np.frombuffer(part, dtype=np.uint8)
        at += len(part)
        found = reader.rows(f'SELECT "values" {table}, piece) = (?, ?, ?)', (*where, piece))
        if not found:
            break
        part = found[0][0]
    data.setflags(write=False)
    return data.view("<i8")
