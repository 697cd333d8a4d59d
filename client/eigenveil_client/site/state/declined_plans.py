"""Digests and counts of plans that the site's rules declined. Only `declined_proofs` stores whole plans.

Otherwise an analyst whom no rule allows could fill the disk with plans. The latest `MOST_DIGESTS` digests are
stored, so that a decline is the same after a restart. The latest `MOST_COUNTS` counts are stored, one for
each day (UTC), analyst and rule. The coordinator may invent names: at most `MOST_OF_A_DAY` rows of a day have
a name, and the rest is counted by rule as `OTHERS`, so that few counts of other days are dropped. A study
that ended before a decision and without a message from this site is stored likewise."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from eigenveil.errors import Code
from eigenveil_common.storage.database import Connection, Database, Row

SCHEMA = """
CREATE TABLE declined (
  number INTEGER PRIMARY KEY,
  plan TEXT NOT NULL UNIQUE,
  reason TEXT NOT NULL,
  at INTEGER NOT NULL,
  ended INTEGER NOT NULL
) STRICT;
CREATE TABLE decline_counts (
  day TEXT NOT NULL,
  analyst TEXT NOT NULL,
  rule TEXT NOT NULL,
  plans INTEGER NOT NULL,
  PRIMARY KEY (day, analyst, rule)
) STRICT;
"""
MOST_DIGESTS = 4096
MOST_COUNTS = 1000
MOST_OF_A_DAY = 32  # rows with a name, besides a row for each rule
OTHERS = ""  # in place of an analyst; also of plans that name none, all of which are declined
MOST_OPEN = 1024  # in one request for work; poll.py accepts 4,096 plans in all
UNANSWERED = "ended-unanswered"  # in place of a rule: the study ended before this site answered anything


class DeclinedPlan(NamedTuple):
    """Code of the refusal of a plan, and if the coordinator stated that its study is over."""

    reason: Code
    ended: bool


class DeclinedPlans:
    """Declined plans in `database` (whose schema includes `SCHEMA`). `clock` returns Unix seconds."""

    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock

    def get(self, digest: str) -> DeclinedPlan | None:
        """Return a declined plan if it is among the latest `MOST_DIGESTS`."""
        rows = self._database.rows("SELECT reason, ended FROM declined WHERE plan = ?", (digest,))
        return DeclinedPlan(Code(rows[0]["reason"]), bool(rows[0]["ended"])) if rows else None

    def with_prefix(self, prefix: str) -> list[str]:
        """Return the digests that begin with `prefix`, in hexadecimal digits."""
        found = "SELECT plan FROM declined WHERE substr(plan, 1, ?) = ?"
        return [row["plan"] for row in self._database.rows(found, (len(prefix), prefix))]

    def not_ended(self) -> list[str]:
        """Return the latest `MOST_OPEN` plans whose studies have not ended, oldest first."""
        latest = "SELECT plan FROM declined WHERE ended = 0 ORDER BY number DESC LIMIT ?"
        return [row["plan"] for row in self._database.rows(latest, (MOST_OPEN,))][::-1]

    def add(
        self, plan: str, reason: Code, change: Connection, *, analyst: str, rule: str, ended: bool = False
    ) -> None:
        """Store a digest and count its plan within the transaction `change`; drop rows over the limits."""
        at = self._clock()
        change.insert("declined", {"plan": plan, "reason": reason.value, "at": at, "ended": int(ended)})
        change.execute(
            "DELETE FROM declined WHERE number <= (SELECT MAX(number) FROM declined) - ?", (MOST_DIGESTS,)
        )
        self._count(analyst, rule, change)

    def _count(self, analyst: str, rule: str, change: Connection) -> None:
        day = f"{datetime.fromtimestamp(self._clock(), UTC):%Y-%m-%d}"
        of_day = "SELECT analyst, rule FROM decline_counts WHERE day = ? AND analyst <> ?"
        named = {(row["analyst"], row["rule"]) for row in change.execute(of_day, (day, OTHERS))}
        full = len(named) >= MOST_OF_A_DAY and (analyst, rule) not in named
        change.execute(
            "INSERT INTO decline_counts VALUES (?, ?, ?, 1) ON CONFLICT (day, analyst, rule) "
            "DO UPDATE SET plans = decline_counts.plans + 1",
            (day, OTHERS if full else analyst, rule),
        )
        change.execute(
            "DELETE FROM decline_counts WHERE rowid IN "
            "(SELECT rowid FROM decline_counts ORDER BY day DESC, rowid DESC LIMIT -1 OFFSET ?)",
            (MOST_COUNTS,),
        )

    def end(self, digest: str, change: Connection) -> None:
        """Record that the study of a declined plan is over."""
        change.execute("UPDATE declined SET ended = 1 WHERE plan = ?", (digest,))

    def counts(self) -> list[Row]:
        """Return the number of plans by day, analyst (or `OTHERS`) and rule (a key of site.toml, or an error
        code), the oldest day first."""
        return self._database.rows("SELECT * FROM decline_counts ORDER BY day, analyst, rule")
