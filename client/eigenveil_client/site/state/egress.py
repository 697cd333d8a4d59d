"""The egress ledger: one hash-chained row for every answer and every refusal that leaves a site, and for each
time that it says an answer is ready.

The row is written before the message is sent, so it may name a message that a crash then held
back, and never misses one. `contribution` is a keyed digest (HMAC-SHA-256 with a key of this site) of the
question and the numbers: a count has so few likely values that a plain hash would let any reader of the
ledger find it by trying, and one of the numbers alone would be the same in every study that counts the
same. The ledger is meant to be shown.

The question that a row answers is kept beside it, under its digest, so that what left can be explained and,
while the records are the same, computed again. Greetings and questions for work are counted in `traffic`.
"""

from __future__ import annotations

import hmac
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from pathlib import Path

from google.protobuf.message import DecodeError

from eigenveil.accounting.ledger import GENESIS, Ledger
from eigenveil.errors import Code, EigenveilError, InternalError, RequestError, spoken
from eigenveil.numerics.encoding import digest
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.wire import query_from_proto, query_to_proto
from eigenveil_common.files import read_secret, write_secret
from eigenveil_common.storage.database import Connection, Database
from eigenveil_proto.v1 import eigenveil_pb2 as pb

SCHEMA = """
CREATE TABLE egress (
  "index" INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  study TEXT NOT NULL,
  round INTEGER NOT NULL,
  kind TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  contribution TEXT NOT NULL,
  query TEXT NOT NULL,
  attempt TEXT NOT NULL,
  meaning TEXT NOT NULL,
  previous TEXT NOT NULL UNIQUE,
  digest TEXT NOT NULL UNIQUE
) STRICT;
CREATE TABLE questions (
  digest TEXT PRIMARY KEY,
  message BLOB NOT NULL
) STRICT;
CREATE TRIGGER egress_is_append_only_update BEFORE UPDATE ON egress
  BEGIN SELECT RAISE(ABORT, 'the egress ledger is append-only'); END;
CREATE TRIGGER egress_is_append_only_delete BEFORE DELETE ON egress
  BEGIN SELECT RAISE(ABORT, 'the egress ledger is append-only'); END;
"""


DECLINE, READY = "decline", "ready"  # kinds of rows of which no number leaves


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A message about to leave. `bytes` counts the numbers sent (8 each); `query` is the digest of the
    question, empty in a refusal; `attempt` that of the set which an answer is masked for, else empty."""

    study: str
    round: int
    kind: str
    bytes: int
    contribution: str
    query: str
    attempt: str
    meaning: str

    @property
    def answers(self) -> bool:
        """Whether numbers leave with it."""
        return self.kind not in (DECLINE, READY)

    @property
    def masked(self) -> bool:
        """Whether they are an answer with masks and a share of the noise."""
        return bool(self.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Sent):
    """A message in its place in the chain. `at` is Unix time in seconds."""

    index: int
    at: int
    previous: str
    digest: str


NAMES = tuple(f.name for f in fields(Row))


class EgressLedger:
    """The rows in `database` (whose schema includes `SCHEMA`)."""

    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock

    def append(self, sent: Sent, change: Connection) -> None:
        """Add a row within the transaction `change`."""
        rows = change.execute('SELECT "index", digest FROM egress ORDER BY "index" DESC LIMIT 1')
        body = {
            **asdict(sent),
            "index": rows[0]["index"] + 1 if rows else 0,
            "at": self._clock(),
            "previous": rows[0]["digest"] if rows else GENESIS,
        }
        body["digest"] = digest("egress", body)
        names = ", ".join(f'"{name}"' for name in NAMES)
        marks = ", ".join("?" * len(NAMES))
        change.execute(f"INSERT INTO egress ({names}) VALUES ({marks})", tuple(body[name] for name in NAMES))

    def any_of(self, study: str, change: Connection) -> bool:
        """Whether anything left this site for a study, as of the transaction `change`."""
        return bool(change.execute("SELECT 1 FROM egress WHERE study = ? LIMIT 1", (study,)))

    def keep_question(self, asked: RoundQuery, change: Connection) -> None:
        """Keep what was asked, once, within the transaction `change`."""
        message = query_to_proto(asked).SerializeToString(deterministic=True)
        change.execute("INSERT INTO questions VALUES (?, ?) ON CONFLICT DO NOTHING", (asked.digest, message))

    def question(self, row: Row) -> RoundQuery:
        """The question that `row` answered.

        Raises:
            InternalError: it was changed or removed.
        """
        found = self._database.rows("SELECT message FROM questions WHERE digest = ?", (row.query,))
        if found:
            try:
                query = query_from_proto(pb.Query.FromString(found[0]["message"]))
            except (EigenveilError, DecodeError) as problem:
                raise _unlike(row) from problem
            if query.digest == row.query:
                return query
        raise _unlike(row)

    def check_questions(self, rows: list[Row]) -> None:
        """Insist that the question beside each answer is there. Raises as `question`."""
        for row in rows:
            if row.query:
                self.question(row)

    def head(self) -> str:
        """The digest of the last row."""
        rows = self._database.rows('SELECT digest FROM egress ORDER BY "index" DESC LIMIT 1')
        return str(rows[0]["digest"]) if rows else GENESIS

    def verify(self, ledger: Ledger) -> list[Row]:
        """Every row, after checking the chain, and that every round, and every attempt at a masked one, that
        the budget was charged for has a row, as both are written together. What an accepted loss was charged
        for (`rollback_guard`) has none here. Each question was checked when the state was opened.

        Raises:
            InternalError: something was changed, removed or put in.
        """
        rows = self.rows()
        answers = {(row.study, row.round, row.attempt) for row in rows if row.answers}
        left = Counter((study, round) for study, round, _ in answers)
        missing = sorted(
            (study, round)
            for (study, round), times in ledger.times.items()
            if left[study, round] < times and ledger.charged[study, round] != study
        )
        if missing:
            study, round = missing[0]
            raise InternalError(
                Code.STORAGE,
                f"{len(missing)} rounds were charged for answers that have no row in the egress ledger, such "
                f"as {spoken(round)} of study {study[:12]}: rows are missing at its end",
            )
        return rows

    def rows(self) -> list[Row]:
        """Every row, oldest first, after checking the chain.

        Raises:
            InternalError: a row was changed, removed or put in.
        """
        rows = [Row(**dict(row)) for row in self._database.rows('SELECT * FROM egress ORDER BY "index"')]
        previous = GENESIS
        for index, row in enumerate(rows):
            body = {name: value for name, value in asdict(row).items() if name != "digest"}
            if (row.index, row.previous, row.digest) != (index, previous, digest("egress", body)):
                raise InternalError(
                    Code.STORAGE, f"row {index} of the egress ledger does not continue the chain"
                )
            previous = row.digest
        return rows


class Fingerprints:
    """Keyed digests of what a site holds and sends, which nobody without its key finds by trying:
    HMAC-SHA-256 (hex) with the key at `path`, which is made with the database that it belongs to.

    Raises:
        RequestError: code `bad-config`, the key is gone or can be read by others.
    """

    def __init__(self, path: Path, database: Path) -> None:
        if not path.exists():
            if database.exists():
                raise RequestError(
                    Code.BAD_CONFIG,
                    f"{path} is gone and {database} is there: put both back from one copy. If there is none, "
                    "move the database away, too, and run: eigenveil-site accept-loss",
                )
            write_secret(path, os.urandom(32))
        self._key = read_secret(path)

    def of_answer(self, asked: RoundQuery, values: bytes | memoryview) -> str:
        """Of the question, which names its plan and round, and of the numbers. Of the numbers alone it would
        tell that two studies counted the same."""
        return self._keyed("answer", asked.digest, values)

    def of_records(self, plan: str, file: bytes) -> str:
        """Of the digest of the whole file and of the rows that the study of this plan sees."""
        return self._keyed("records", plan, file)

    def _keyed(self, what: str, about: str, data: bytes | memoryview) -> str:
        state = hmac.new(self._key, f"{what}\n{about}\n".encode(), sha256)
        state.update(data)
        return state.hexdigest()


def _unlike(row: Row) -> InternalError:
    return InternalError(
        Code.STORAGE, f"the question beside row {row.index} of the egress ledger was changed or removed"
    )
