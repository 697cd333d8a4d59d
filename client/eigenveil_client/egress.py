"""The egress ledger: one hash-chained row for every message about a study that leaves a site.

The row is written before the message is sent, so it may name a message that a crash then held
back, and never misses one. `contribution` is a keyed digest (HMAC-SHA-256 with a key of this site):
a count has so few likely values that a plain hash would let any reader of the ledger find it by
trying, and the ledger is meant to be shown.

Greetings and questions for work are not in it: they carry plan digests and round numbers only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields

from eigenveil.errors import Code, InternalError
from eigenveil.ints import digest
from eigenveil.ledger import GENESIS
from eigenveil_common.sqlite import Database

SCHEMA = """
CREATE TABLE egress (
  "index" INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  study TEXT NOT NULL,
  round INTEGER NOT NULL,
  kind TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  contribution TEXT NOT NULL,
  meaning TEXT NOT NULL,
  previous TEXT NOT NULL UNIQUE,
  digest TEXT NOT NULL UNIQUE
) STRICT;
CREATE TRIGGER egress_is_append_only_update BEFORE UPDATE ON egress
  BEGIN SELECT RAISE(ABORT, 'the egress ledger is append-only'); END;
CREATE TRIGGER egress_is_append_only_delete BEFORE DELETE ON egress
  BEGIN SELECT RAISE(ABORT, 'the egress ledger is append-only'); END;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A message about to leave. `bytes` counts the numbers sent (8 each)."""

    study: str
    round: int
    kind: str
    bytes: int
    contribution: str
    meaning: str


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

    def append(self, sent: Sent, change: sqlite3.Connection) -> None:
        """Add a row within the transaction `change`."""
        last = change.execute('SELECT "index", digest FROM egress ORDER BY "index" DESC LIMIT 1').fetchone()
        body = {
            **asdict(sent),
            "index": 0 if last is None else last["index"] + 1,
            "at": self._clock(),
            "previous": GENESIS if last is None else last["digest"],
        }
        body["digest"] = digest("egress", body)
        names = ", ".join(f'"{name}"' for name in NAMES)
        marks = ", ".join("?" * len(NAMES))
        change.execute(f"INSERT INTO egress ({names}) VALUES ({marks})", tuple(body[name] for name in NAMES))

    def rows(self) -> list[Row]:
        """Every row, oldest first, after checking the chain.

        Raises:
            InternalError: a row was changed, removed or put in.
        """
        rows = [
            Row(**{name: row[name] for name in NAMES})
            for row in self._database.rows('SELECT * FROM egress ORDER BY "index"')
        ]
        previous = GENESIS
        for index, row in enumerate(rows):
            body = {name: value for name, value in asdict(row).items() if name != "digest"}
            if (row.index, row.previous, row.digest) != (index, previous, digest("egress", body)):
                raise InternalError(
                    Code.STORAGE, f"row {index} of the egress ledger does not continue the chain"
                )
            previous = row.digest
        return rows
