"""What a site stores of plans that its rules declined: a digest of each, and counts.

No plan is stored but those of `declined_proofs`.

An analyst whom no rule allows could otherwise fill this disk with plans. The latest `MOST_DIGESTS` digests
are stored, so that a decline is repeated alike after a restart, and the latest `MOST_COUNTS` counts, one for
each day (UTC), analyst and rule. The coordinator may invent names: of a day `MOST_OF_A_DAY` rows have one,
and the rest is counted together, by rule, as `OTHERS`, so that few counts of other days give way. A study
that ended before a person decided about it, and of which nothing left this site, leaves the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from eigenveil.errors import Code
from eigenveil_common.storage.database import Connection, Database

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
MOST_OF_A_DAY = 32  # rows with a name; a row for each rule comes to these
OTHERS = ""  # in place of an analyst; also of plans that name none, all of which are declined
MOST_OPEN = 1024  # that one question for work names; poll.py takes 4,096 plans in all
UNANSWERED = "ended-unanswered"  # in place of a rule: the study ended before this site answered anything


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclinedPlan:
    """A plan that the rules declined, or that ended before it was decided about. `reason` is the error code
    of the refusal; `ended`: the coordinator said that its study is over."""

    plan: str
    reason: Code
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclineCount:
    """Plans of one analyst (or `OTHERS`) that one rule declined on one day; a rule is a key of site.toml or a
    code."""

    day: str
    analyst: str
    rule: str
    plans: int


class DeclinedPlans:
    """The rows in `database` (whose schema includes `SCHEMA`). `clock` gives Unix seconds."""

    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock

    def get(self, digest: str) -> DeclinedPlan | None:
        """One of the latest `MOST_DIGESTS`."""
        rows = self._database.rows("SELECT plan, reason, ended FROM declined WHERE plan = ?", (digest,))
        if not rows:
            return None
        row = rows[0]
        return DeclinedPlan(plan=row["plan"], reason=Code(row["reason"]), ended=bool(row["ended"]))

    def starting(self, prefix: str) -> list[str]:
        """The digests that begin with `prefix`, which is of hexadecimal digits."""
        rows = self._database.rows(
            "SELECT plan FROM declined WHERE substr(plan, 1, ?) = ?", (len(prefix), prefix)
        )
        return [row["plan"] for row in rows]

    def open(self) -> list[str]:
        """The latest `MOST_OPEN` whose studies have not ended, oldest first."""
        latest = "SELECT plan FROM declined WHERE ended = 0 ORDER BY number DESC LIMIT ?"
        return [row["plan"] for row in self._database.rows(latest, (MOST_OPEN,))][::-1]

    def add(
        self, plan: str, reason: Code, change: Connection, *, analyst: str, rule: str, ended: bool = False
    ) -> None:
        """Store a digest and count its plan, within the transaction `change`, and drop what is too many."""
        row = {"plan": plan, "reason": reason.value, "at": self._clock(), "ended": int(ended)}
        change.insert("declined", row)
        change.execute(
            "DELETE FROM declined WHERE number <= (SELECT MAX(number) FROM declined) - ?", (MOST_DIGESTS,)
        )
        self._count(analyst, rule, change)

    def _count(self, analyst: str, rule: str, change: Connection) -> None:
        day = f"{datetime.fromtimestamp(self._clock(), UTC):%Y-%m-%d}"
        named = {
            (row["analyst"], row["rule"])
            for row in change.execute(
                "SELECT analyst, rule FROM decline_counts WHERE day = ? AND analyst <> ?", (day, OTHERS)
            )
        }
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
        """The study of a declined plan is over."""
        change.execute("UPDATE declined SET ended = 1 WHERE plan = ?", (digest,))

    def counts(self) -> list[DeclineCount]:
        """Every count that is stored, the oldest day first."""
        rows = self._database.rows("SELECT * FROM decline_counts ORDER BY day, analyst, rule")
        return [DeclineCount(**dict(row)) for row in rows]
