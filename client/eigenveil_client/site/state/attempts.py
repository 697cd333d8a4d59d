"""The attempts at masked rounds that this site answered, and what it sent for the latest of them [R29].

For each number of a round there is one set of sites, ever, and one answer: the bytes that were charged for
are kept, and are what is sent again. With bytes made anew, or for two sets, the same numbers would leave
twice under different noise. When a later attempt is answered, or the study is over, the bytes go; what was
signed stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import numpy as np

from eigenveil.aggregation import Contribution
from eigenveil.errors import Code, InternalError, spoken
from eigenveil.numerics.encoding import octets
from eigenveil.secure_aggregation.attempt import Attempt, SignedAttempt
from eigenveil_common.storage.database import Connection, Database

SCHEMA = """
CREATE TABLE attempts (
  plan TEXT NOT NULL,
  round INTEGER NOT NULL,
  number INTEGER NOT NULL,
  digest TEXT NOT NULL,
  said BLOB NOT NULL,
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
  said BLOB NOT NULL,
  signature BLOB NOT NULL,
  PRIMARY KEY (plan, round, digest)
) STRICT;
CREATE TRIGGER an_answered_attempt_never_changes BEFORE UPDATE ON attempts
  BEGIN SELECT RAISE(ABORT, 'an answered attempt never changes'); END;
CREATE TRIGGER an_answered_attempt_is_never_deleted BEFORE DELETE ON attempts
  BEGIN SELECT RAISE(ABORT, 'an answered attempt is never deleted'); END;
"""
PIECE_BYTES = 2**20  # in a row: what a database is handed at once is copied under the interpreter's lock
MOST_REFUSED = 4  # of one round: a coordinator may sign others without end, and any few of them are proof


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """An attempt, and the coordinator's signature that it is."""

    attempt: Attempt
    signed: SignedAttempt


class Attempts:
    """The rows in `database` (whose schema includes `SCHEMA`)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def answered(self, plan: str, round: int) -> dict[int, str]:
        """The digest of each attempt at a round that was answered, by its number."""
        statement = "SELECT number, digest FROM attempts WHERE (plan, round) = (?, ?)"
        return {row["number"]: row["digest"] for row in self._database.rows(statement, (plan, round))}

    def keep(self, proved: Proved, sent: Contribution, change: Connection) -> None:
        """Keep what is sent for an attempt that was not answered before, in place of what the study sent
        before it, within the transaction `change`."""
        attempt, data = proved.attempt, octets(sent.values)
        where = {"plan": attempt.plan, "round": attempt.round, "number": attempt.number}
        said = {"digest": attempt.digest, "said": attempt.said, "signature": proved.signed.signature}
        change.insert("attempts", {**where, **said, "contribution": sent.digest, "bytes": len(data)})
        self.forget(attempt.plan, change)
        for piece, start in enumerate(range(0, len(data), PIECE_BYTES)):
            row = {"piece": piece, "values": data[start : start + PIECE_BYTES]}
            change.insert("masked_answers", {**where, **row})

    @staticmethod
    def forget(plan: str, change: Connection) -> None:
        """Let the bytes go that a study has sent, within the transaction `change`."""
        change.execute("DELETE FROM masked_answers WHERE plan = ?", (plan,))

    def sent(self, attempt: Attempt, site: str) -> Contribution | None:
        """What `site` has sent for an attempt that was answered; None if a later one was answered since.

        Raises:
            InternalError: code `storage`, it is not what was stored.
        """
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
            part = np.frombuffer(found[0][0], dtype=np.uint8)[: data.size - at]
            data[at : at + part.size] = part
            at += part.size
        if not at:
            return None
        data.setflags(write=False)
        sent = Contribution(
            plan_digest=attempt.plan, round=attempt.round, query=attempt.query, site=site,
            values=data.view("<i8"), attempt=attempt.digest,
        )  # fmt: skip
        if sent.digest != row["contribution"]:
            what = f"what was sent in {spoken(attempt.round)} of study {attempt.plan[:12]}"
            raise InternalError(Code.STORAGE, f"{what} was changed here; restore the state")
        return sent

    def refuse(self, proved: Proved) -> None:
        """Keep an attempt that was refused, durably on return, as evidence; at most `MOST_REFUSED` of a
        round."""
        attempt = proved.attempt
        with self._database.transaction() as change:
            statement = "SELECT COUNT(*) FROM refused_attempts WHERE (plan, round) = (?, ?)"
            if int(change.execute(statement, (attempt.plan, attempt.round))[0][0]) < MOST_REFUSED:
                change.execute(
                    "INSERT INTO refused_attempts VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    (attempt.plan, attempt.round, attempt.digest, attempt.said, proved.signed.signature),
                )

    def signed(self, plan: str, *, refused: bool = False) -> list[SignedAttempt]:
        """What the coordinator signed about the sets of a study that was answered here, or was `refused`."""
        table = "refused_attempts" if refused else "attempts"
        statement = f"SELECT said, signature FROM {table} WHERE plan = ? ORDER BY round, rowid"
        return [
            SignedAttempt(said=row["said"], signature=row["signature"])
            for row in self._database.rows(statement, (plan,))
        ]

    def check_whole(self) -> None:
        """Insist that each attempt is what its digest names. Raises InternalError, code `storage`."""
        for row in self._database.rows("SELECT plan, digest, said FROM attempts"):
            if Attempt.read(row["said"]).digest != row["digest"]:
                where = f"study {row['plan'][:12]}"
                raise InternalError(
                    Code.STORAGE, f"an attempt at a round of {where} was changed here; restore the state"
                )
