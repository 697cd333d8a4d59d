"""Sealed releases as they are stored: a long one goes on in rows of its own.

Whatever is handed to a database at once is copied under the interpreter's lock, while nobody is served: 100
MB in 70 ms.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import count

import numpy as np

from eigenveil.errors import Code, InternalError, spoken
from eigenveil.numerics.encoding import IntArray, from_bytes, octets
from eigenveil.protocol.release import Release
from eigenveil.protocol.statements import SignedRound
from eigenveil.protocol.wire import ALL, round_to_proto
from eigenveil_common.storage.database import Connection, Database, Row
from eigenveil_proto.v1 import eigenveil_pb2 as pb

PIECE_BYTES = 2**20  # of a release's values in a row


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sealed:
    """A sealed release and what was stated of it."""

    release: Release
    stated: SignedRound

    def message(self, part: slice = ALL) -> pb.SealedRound:
        """Both as sites and analysts get them; of the values the bytes in `part`."""
        return round_to_proto(self.release, self.stated, part)


def add_release(change: Connection, study: str, release: Release, stated: SignedRound) -> None:
    """Store a release, and what is stated of it, for ever."""
    data, where = octets(release.values), {"study": study, "round": release.round}
    row = {
        **where,
        "query": release.query,
        "values": data[:PIECE_BYTES],
        "sigma": release.sigma,
        "micro_rho": release.micro_rho,
        "atto_delta": str(release.atto_delta),  # may exceed 63 bits
        "present": json.dumps(release.present),
        "digest": release.digest,
        "said": stated.said,
        "signature": stated.signature,
    }
    change.insert("releases", row)
    for piece, start in enumerate(range(PIECE_BYTES, len(data), PIECE_BYTES)):
        rest = {"piece": piece, "values": data[start : start + PIECE_BYTES]}
        change.insert("releases_continued", {**where, **rest})


def sealed_of(reader: Database, row: Row) -> Sealed:
    """A row of `releases`, read with what goes on elsewhere.

    Raises:
        InternalError: code `storage`: it is not what was sealed.
    """
    changed = InternalError(
        Code.STORAGE,
        f"the stored release of {spoken(row['round'])} of study {row['study'][:12]} was changed; "
        "restore the database",
    )
    try:
        release = Release(
            round=row["round"],
            query=row["query"],
            values=_values(reader, row),
            sigma=row["sigma"],
            micro_rho=row["micro_rho"],
            atto_delta=int(row["atto_delta"]),
            present=tuple(json.loads(row["present"])),
        )
    except (ValueError, TypeError) as problem:
        raise changed from problem
    if release.digest != row["digest"]:
        raise changed
    return Sealed(release=release, stated=SignedRound(said=row["said"], signature=row["signature"]))


def _values(reader: Database, row: Row) -> IntArray:
    """All that was released in a round, held once. Of any change the digest tells."""
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
