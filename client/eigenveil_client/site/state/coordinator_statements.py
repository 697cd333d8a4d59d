"""Coordinator's signed statements about each round, and the attempts that this site answered or refused:
evidence [R21] [R29]. The bytes sent are stored for the latest attempt."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from eigenveil.aggregation import Contribution
from eigenveil.errors import round_label
from eigenveil.numerics.encoding import digest_of, to_memoryview
from eigenveil.protocol.rounds import RoundStatement
from eigenveil.reporting.verify import RoundLog
from eigenveil.secure_aggregation.masking import Attempt, SignedAttempt
from eigenveil_client.site.state.received_plans import changed_error
from eigenveil_common.storage.database import Connection, Database
from eigenveil_proto.v1 import eigenveil_pb2 as pb

SCHEMA = """
CREATE TABLE rounds (
  plan TEXT NOT NULL,
  round INTEGER NOT NULL,
  query TEXT NOT NULL,
  release TEXT NOT NULL,
  followed INTEGER NOT NULL,
  message BLOB NOT NULL,
  digest TEXT NOT NULL,
  PRIMARY KEY (plan, round, query, release, followed)
) STRICT;
CREATE TRIGGER a_stated_round_never_changes BEFORE UPDATE ON rounds
  BEGIN SELECT RAISE(ABORT, 'a stated round never changes'); END;
CREATE TRIGGER a_stated_round_is_never_deleted BEFORE DELETE ON rounds
  BEGIN SELECT RAISE(ABORT, 'a stated round is never deleted'); END;
CREATE TABLE attempts (
  plan TEXT NOT NULL,
  round INTEGER NOT NULL,
  number INTEGER NOT NULL,
  digest TEXT NOT NULL,
  signed_json BLOB NOT NULL,
  signature BLOB NOT NULL,
  contribution TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  PRIMARY KEY (plan, round, number)
) STRICT;
CREATE TABLE masked_answers (
  plan TEXT NOT NULL,
  round INTEGER NOT NULL,
  number INTEGER NOT NULL,
  piece INTEGER NOT NULL,
  "values" BLOB NOT NULL,
  PRIMARY KEY (plan, round, number, piece)
) STRICT;
CREATE TABLE refused_attempts (
  plan TEXT NOT NULL,
  round INTEGER NOT NULL,
  digest TEXT NOT NULL,
  signed_json BLOB NOT NULL,
  signature BLOB NOT NULL,
  PRIMARY KEY (plan, round, digest)
) STRICT;
CREATE TRIGGER an_answered_attempt_never_changes BEFORE UPDATE ON attempts
  BEGIN SELECT RAISE(ABORT, 'an answered attempt never changes'); END;
CREATE TRIGGER an_answered_attempt_is_never_deleted BEFORE DELETE ON attempts
  BEGIN SELECT RAISE(ABORT, 'an answered attempt is never deleted'); END;
"""
PIECE_BYTES = 2**20  # in a row: SQLite copies a value under the interpreter's lock
MOST_REFUSED_ATTEMPTS = 4  # of one round: a coordinator may sign any number, and a few are proof enough


class VerifiedAttempt(NamedTuple):
    """Attempt with the coordinator's verified signature."""

    attempt: Attempt
    signed: SignedAttempt


@dataclass(eq=False)
class Attempts:
    """Answered and refused attempts in `database` (whose schema includes `SCHEMA`).

    Each attempt of a masked round has one set of sites and one answer, for ever [R29]. The charged bytes are
    stored and sent again unchanged: new bytes, or a second set, would reveal the same numbers twice under
    different noise. They are deleted when a later attempt is answered or the study ends."""

    _database: Database

    def answered(self, plan: str, round: int) -> dict[int, str]:
        """Return the digest of each answered attempt at a round, by its number."""
        statement = "SELECT number, digest FROM attempts WHERE (plan, round) = (?, ?)"
        return {row["number"]: row["digest"] for row in self._database.rows(statement, (plan, round))}

    def save(self, proved: VerifiedAttempt, sent: Contribution, change: Connection) -> None:
        """Store the answer to a new attempt in place of the study's previous answer, within the transaction
        `change`."""
        attempt, data = proved.attempt, to_memoryview(sent.values)
        where = {"plan": attempt.plan, "round": attempt.round, "number": attempt.number}
        signed_fields = {
            "digest": attempt.digest,
            "signed_json": attempt.signed_json,
            "signature": proved.signed.signature,
        }
        change.insert("attempts", {**where, **signed_fields, "contribution": sent.digest, "bytes": len(data)})
        self.forget(attempt.plan, change)
        for piece, start in enumerate(range(0, len(data), PIECE_BYTES)):
            row = {"piece": piece, "values": data[start : start + PIECE_BYTES]}
            change.insert("masked_answers", {**where, **row})

    @staticmethod
    def forget(plan: str, change: Connection) -> None:
        change.execute("DELETE FROM masked_answers WHERE plan = ?", (plan,))

    def sent(self, attempt: Attempt, site: str) -> Contribution | None:
        """Return the answer of `site` to an attempt; None if a later attempt was answered since. Raises
        InternalError, code `storage`, if the stored bytes were changed."""
        where = (attempt.plan, attempt.round, attempt.number)
        (row,) = self._database.rows("SELECT * FROM attempts WHERE (plan, round, number) = (?, ?, ?)", where)
        data, at = np.empty(row["bytes"], dtype=np.uint8), 0
        for piece in count():
            found = self._database.rows(
                'SELECT "values" FROM masked_answers WHERE (plan, round, number, piece) = (?, ?, ?, ?)',
                (*where, piece),
            )
            if not found:
                break
            chunk = np.frombuffer(found[0][0], dtype=np.uint8)[: data.size - at]
            data[at : at + chunk.size] = chunk
            at += chunk.size
        if not at:
            return None
        data.setflags(write=False)
        sent = Contribution(
            plan_digest=attempt.plan, round=attempt.round, query=attempt.query, site=site,
            values=data.view("<i8"), attempt=attempt.digest,
        )  # fmt: skip
        if sent.digest != row["contribution"]:
            raise changed_error(f"the answer in {round_label(attempt.round)} of study {attempt.plan[:12]}")
        return sent

    def refuse(self, proved: VerifiedAttempt) -> None:
        """Store a refused attempt as evidence, durable on return; at most `MOST_REFUSED_ATTEMPTS` of a
        round."""
        attempt = proved.attempt
        with self._database.transaction() as change:
            statement = "SELECT COUNT(*) FROM refused_attempts WHERE (plan, round) = (?, ?)"
            if int(change.execute(statement, (attempt.plan, attempt.round))[0][0]) < MOST_REFUSED_ATTEMPTS:
                change.execute(
                    "INSERT INTO refused_attempts VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    (
                        attempt.plan,
                        attempt.round,
                        attempt.digest,
                        attempt.signed_json,
                        proved.signed.signature,
                    ),
                )

    def signed(self, plan: str, *, refused: bool = False) -> list[SignedAttempt]:
        """Return the signed attempts of a study that were answered here, or those that were `refused`."""
        table = "refused_attempts" if refused else "attempts"
        statement = f"SELECT signed_json, signature FROM {table} WHERE plan = ? ORDER BY round, rowid"
        return [SignedAttempt(**dict(row)) for row in self._database.rows(statement, (plan,))]

    def check_whole(self) -> None:
        """Check each attempt against its digest. Raises InternalError, code `storage`."""
        for row in self._database.rows("SELECT plan, digest, signed_json FROM attempts"):
            if Attempt.read(row["signed_json"]).digest != row["digest"]:
                raise changed_error(f"an attempt at a round of study {row['plan'][:12]}")


MOST_REFUSED_STATEMENTS = 4  # of one round; a published document has two at most: a query and its release


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VerifiedStatement:
    """Statement with a verified signature, in its message. `followed`: the site expected it, and the message
    of a release has its values. Otherwise the message has only the statement."""

    statement: RoundStatement
    message: pb.SealedRound
    followed: bool


@dataclass(eq=False)
class Transcript:
    """Statements in `database` (whose schema includes `SCHEMA`).

    From the releases that it followed, a site computes the next query itself. Queries and releases are
    evidence: the release key signed them, so a document with other ones contradicts its own signature. Of
    refused rounds only the statements are stored, and a limited number for each round: a coordinator may sign
    any number of them."""

    _database: Database

    def save(self, stated: Iterable[VerifiedStatement], change: Connection) -> None:
        """Store statements once each, within the transaction `change`. Contradicting statements are both
        stored; of the refused ones at most `MOST_REFUSED_STATEMENTS` of a round."""
        refused = "SELECT COUNT(*) FROM rounds WHERE (plan, round, followed) = (?, ?, 0)"
        for one in stated:
            of = one.statement
            count = 0 if one.followed else change.execute(refused, (of.plan, of.round))[0][0]
            if count < MOST_REFUSED_STATEMENTS:
                named = (of.plan, of.round, of.query, of.release, int(one.followed))
                message = one.message.SerializeToString()
                change.execute(
                    "INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    (*named, message, _digest(named, message)),
                )

    def releases(self, plan: str) -> list[pb.SealedRound]:
        """Return the release of each round that the site followed, the first round first."""
        rows = self._database.rows(
            "SELECT message FROM rounds WHERE plan = ? AND release != '' AND followed ORDER BY round", (plan,)
        )
        return [pb.SealedRound.FromString(row["message"]) for row in rows]

    def last_present(self, plan: str) -> tuple[str, ...]:
        """Return the sites of the last release that the site followed; none before the first."""
        rows = self._database.rows(
            "SELECT message FROM rounds WHERE plan = ? AND release != '' AND followed "
            "ORDER BY round DESC LIMIT 1",
            (plan,),
        )
        return tuple(pb.SealedRound.FromString(rows[0]["message"]).present) if rows else ()

    def count_releases_of(self, plans: Iterable[str]) -> dict[str, int]:
        """Return the number of stored releases by plan, for plans with any; one query."""
        statement = (
            "SELECT plan, COUNT(*) AS held FROM rounds WHERE plan IN (SELECT value FROM json_each(?)) "
            "AND release != '' AND followed GROUP BY plan"
        )
        rows = self._database.rows(statement, (json.dumps(list(plans)),))
        return {row["plan"]: row["held"] for row in rows}

    def check_whole(self) -> None:
        """Check each statement against its digest, since signatures cover no values, as `Attempts`."""
        for (key,) in self._database.rows("SELECT rowid FROM rounds"):  # one at a time: they may be large
            (row,) = self._database.rows("SELECT * FROM rounds WHERE rowid = ?", (key,))
            *named, message, digest = row
            if _digest(named, message) != digest:
                raise changed_error(f"the statement on {round_label(named[1])} of study {named[0][:12]}")

    def log(self, plan: str) -> RoundLog:
        """Return every statement about a study in order, queries included."""
        rows = self._database.rows("SELECT message FROM rounds WHERE plan = ? ORDER BY round, rowid", (plan,))
        return RoundLog(plan=plan, messages=tuple(pb.SealedRound.FromString(row["message"]) for row in rows))


def _digest(named: Sequence[Any], message: bytes) -> str:
    """Return the digest of a row's key and message. Damaged numbers may exceed JSON, so the key is text."""
    return digest_of("stated-round", *(str(part).encode() for part in named), message)
