"""What the coordinator stated of each round, with its signature, as this site got it [R21].

The releases that it followed are all that the site needs to compute the next question itself. Questions and
releases are evidence: the release key signed them, so a document that states others contradicts its own
signature. Of what it refused it keeps the statements alone, and of each round only so many: a coordinator may
sign others without end, and any few of them are proof.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from eigenveil.errors import Code, InternalError, spoken
from eigenveil.numerics.encoding import digest_of
from eigenveil.protocol.statements import RoundStatement
from eigenveil.reporting.round_log import RoundLog
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
"""


MOST_REFUSED = 4  # of one round: what it published is at most two of them, a question and its release


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stated:
    """A statement whose signature was checked, in its message. `followed`: it was what this site expects, and
    if it is of a release, the message has its values. Else nothing but the statement is in it."""

    statement: RoundStatement
    message: pb.SealedRound
    followed: bool


class Transcript:
    """The rows in `database` (whose schema includes `SCHEMA`)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def keep(self, stated: Iterable[Stated], change: Connection) -> None:
        """Keep statements, each once, within the transaction `change`. Two that contradict are both kept; of
        those that were refused, at most `MOST_REFUSED` of a round."""
        for one in stated:
            said = one.statement
            if not one.followed and self._refused(said, change) >= MOST_REFUSED:
                continue
            named = (said.plan, said.round, said.query, said.release, int(one.followed))
            message = one.message.SerializeToString()
            change.execute(
                "INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (*named, message, _digest(named, message)),
            )

    @staticmethod
    def _refused(said: RoundStatement, change: Connection) -> int:
        statement = "SELECT COUNT(*) FROM rounds WHERE (plan, round, followed) = (?, ?, 0)"
        return int(change.execute(statement, (said.plan, said.round))[0][0])

    def releases(self, plan: str) -> list[pb.SealedRound]:
        """The release of each round that the site followed, from the first on."""
        rows = self._database.rows(
            "SELECT message FROM rounds WHERE plan = ? AND release != '' AND followed ORDER BY round", (plan,)
        )
        return [pb.SealedRound.FromString(row["message"]) for row in rows]

    def held(self, plan: str) -> int:
        """How many releases are here."""
        statement = "SELECT COUNT(*) FROM rounds WHERE plan = ? AND release != '' AND followed"
        return int(self._database.rows(statement, (plan,))[0][0])

    def held_of(self, plans: Iterable[str]) -> dict[str, int]:
        """The same of each of these plans of which any is here; one query."""
        statement = (
            "SELECT plan, COUNT(*) AS held FROM rounds WHERE plan IN (SELECT value FROM json_each(?)) "
            "AND release != '' AND followed GROUP BY plan"
        )
        rows = self._database.rows(statement, (json.dumps(list(plans)),))
        return {row["plan"]: row["held"] for row in rows}

    def check_whole(self) -> None:
        """Insist that each statement is as it came: a signature covers no values. Raises InternalError, code
        `storage`."""
        for (key,) in self._database.rows("SELECT rowid FROM rounds"):  # one at a time: they may be large
            (row,) = self._database.rows("SELECT * FROM rounds WHERE rowid = ?", (key,))
            *named, message, digest = row
            if _digest(named, message) != digest:
                where = f"{spoken(named[1])} of study {named[0][:12]}"
                raise InternalError(
                    Code.STORAGE, f"what was stated of {where} was changed here; restore the state"
                )

    def log(self, plan: str) -> RoundLog:
        """Every statement about a study, questions too, in order."""
        rows = self._database.rows("SELECT message FROM rounds WHERE plan = ? ORDER BY round, rowid", (plan,))
        return RoundLog(plan=plan, messages=tuple(pb.SealedRound.FromString(row["message"]) for row in rows))


def _digest(named: Sequence[Any], message: bytes) -> str:
    """Of a row: its key, and what came. Damage can make any number of a number: JSON would not hold it."""
    return digest_of("stated-round", *(str(part).encode() for part in named), message)
