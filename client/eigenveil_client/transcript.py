"""What the coordinator stated of each round, with its signature, as this site got it [R21].

The releases are all that the site needs to compute the next question itself. Questions and releases are
evidence: the release key signed them, so a document that states others contradicts its own signature.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eigenveil.round_log import RoundLog
from eigenveil.signed_round import RoundStatement
from eigenveil_common.database import Connection, Database
from eigenveil_proto.v1 import eigenveil_pb2 as pb

SCHEMA = """
CREATE TABLE rounds (
  plan TEXT NOT NULL,
  round INTEGER NOT NULL,
  query TEXT NOT NULL,
  release TEXT NOT NULL,
  message BLOB NOT NULL,
  PRIMARY KEY (plan, round, query, release)
) STRICT;
CREATE TRIGGER a_stated_round_never_changes BEFORE UPDATE ON rounds
  BEGIN SELECT RAISE(ABORT, 'a stated round never changes'); END;
CREATE TRIGGER a_stated_round_is_never_deleted BEFORE DELETE ON rounds
  BEGIN SELECT RAISE(ABORT, 'a stated round is never deleted'); END;
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stated:
    """A statement whose signature was checked, in its message; that of a question has no values."""

    statement: RoundStatement
    message: pb.SealedRound


class Transcript:
    """The rows in `database` (whose schema includes `SCHEMA`)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def keep(self, stated: Iterable[Stated], change: Connection) -> None:
        """Keep statements, each once, within the transaction `change`. Two that contradict are both kept."""
        for one in stated:
            said = one.statement
            change.execute(
                "INSERT INTO rounds VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (said.plan, said.round, said.query, said.release, one.message.SerializeToString()),
            )

    def releases(self, plan: str) -> list[pb.SealedRound]:
        """The release of each round from the first on, as it was stated first."""
        rows = self._database.rows(
            "SELECT round, message FROM rounds WHERE plan = ? AND release != '' ORDER BY round, rowid",
            (plan,),
        )
        first = {row["round"]: row["message"] for row in reversed(rows)}
        return [pb.SealedRound.FromString(first[round]) for round in range(len(first)) if round in first]

    def held(self, plan: str) -> int:
        """How many releases are here."""
        statement = "SELECT COUNT(DISTINCT round) FROM rounds WHERE plan = ? AND release != ''"
        held: int = self._database.rows(statement, (plan,))[0][0]
        return held

    def log(self, plan: str) -> RoundLog:
        """Every statement about a study, questions too, in order."""
        rows = self._database.rows("SELECT message FROM rounds WHERE plan = ? ORDER BY round, rowid", (plan,))
        return RoundLog(plan=plan, messages=tuple(pb.SealedRound.FromString(row["message"]) for row in rows))
