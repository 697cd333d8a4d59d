"""Digests and counts of plans that the site's rules declined, or that ended before a decision, and the few
stored whole as proof. All are bounded, or an analyst whom no rule allows could fill the disk; and rows with a
name, which the coordinator may invent, so that few counts of other days are dropped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from eigenveil.errors import Code, RequestError
from eigenveil_client.site.state.received_plans import ConsentStatus, ReceivedPlan, changed_error
from eigenveil_common.storage.database import Connection, Database, Row

SCHEMA = """
CREATE TABLE declined (
  number INTEGER PRIMARY KEY,
  plan TEXT NOT NULL UNIQUE,
  reason TEXT NOT NULL,
  at INTEGER NOT NULL,
  ended INTEGER NOT NULL,
  rule TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE TABLE decline_counts (
  day TEXT NOT NULL,
  analyst TEXT NOT NULL,
  rule TEXT NOT NULL,
  plans INTEGER NOT NULL,
  PRIMARY KEY (day, analyst, rule)
) STRICT;
CREATE TABLE declined_proofs (
  plan TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  analyst TEXT NOT NULL,
  named INTEGER NOT NULL,
  plan_json BLOB NOT NULL,
  signature BLOB NOT NULL,
  authorization BLOB NOT NULL,
  reason TEXT NOT NULL,
  at INTEGER NOT NULL
) STRICT;
"""
MOST_DIGESTS = 4096
MOST_COUNTS = 1000
MOST_OF_A_DAY = 32  # rows with a name, besides a row for each rule
OTHERS = ""  # in place of an analyst; also of plans that name none, all of which are declined
MOST_OPEN = 1024  # in one request for work; poll.py accepts 4,096 plans in all
UNANSWERED = "ended-unanswered"  # in place of a rule: the study ended before this site answered anything
BY_RULES = "this site's rules declined it"
NOT_DECLINED = (
    "it ended before this site answered anything, and nothing here declined it (another site declined it, "
    "its time was over, or its analyst or the operator ended it)"
)
MOST_PROOFS, MOST_OF_NAME = 16, 2
MOST_PROOF_BYTES = 4 * 2**20
RECEIVED = ("plan", "plan_json", "signature", "authorization", "at")
STORED = (
    "SELECT COUNT(*) AS plans, COALESCE(SUM(LENGTH(plan_json) + LENGTH(signature) + LENGTH(authorization)), "
    "0) AS bytes FROM declined_proofs"
)
DISPLACED = (
    "DELETE FROM declined_proofs WHERE plan = "
    "(SELECT plan FROM declined_proofs WHERE named = 0 ORDER BY at DESC, plan LIMIT 1) RETURNING plan"
)


class DeclinedPlan(NamedTuple):
    """Code of the refusal of a plan, whether the coordinator stated that its study is over, and the rule of
    this site that the coordinator is told (empty: none, or the refusal is older than version 1.1). The rule
    is `UNANSWERED` if nothing here refused it."""

    reason: Code
    ended: bool
    rule: str


@dataclass(eq=False)
class DeclinedPlans:
    """Declined plans in `database` (whose schema includes `SCHEMA`). `clock` returns Unix seconds."""

    _database: Database
    _clock: Callable[[], int]

    def get(self, digest: str) -> DeclinedPlan | None:
        """Return a declined plan if it is among the latest `MOST_DIGESTS`."""
        rows = self._database.rows("SELECT reason, ended, rule FROM declined WHERE plan = ?", (digest,))
        if not rows:
            return None
        row = rows[0]
        return DeclinedPlan(Code(row["reason"]), bool(row["ended"]), row["rule"])

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Return the digests that begin with `prefix`, in hexadecimal digits, each with the reason why its
        plan is not stored."""
        found = "SELECT plan, reason, rule FROM declined WHERE substr(plan, 1, ?) = ?"
        rows = self._database.rows(found, (len(prefix), prefix))
        return {row["plan"]: _reason(row["reason"], row["rule"]) for row in rows}

    def not_ended(self) -> list[str]:
        """Return the latest `MOST_OPEN` plans whose studies have not ended, oldest first."""
        latest = "SELECT plan FROM declined WHERE ended = 0 ORDER BY number DESC LIMIT ?"
        return [row["plan"] for row in self._database.rows(latest, (MOST_OPEN,))][::-1]

    def add(
        self,
        plan: str,
        reason: Code,
        change: Connection,
        *,
        analyst: str,
        rule: str,
        sent: str = "",
        ended: bool = False,
    ) -> None:
        """Store a digest and count its plan by `rule` within the transaction `change`; drop rows over the
        limits. `sent`: see `DeclinedPlan.rule`."""
        at = self._clock()
        row = {"plan": plan, "reason": reason.value, "at": at, "ended": int(ended), "rule": sent}
        change.insert("declined", row)
        change.execute(
            "DELETE FROM declined WHERE number <= (SELECT MAX(number) FROM declined) - ?", (MOST_DIGESTS,)
        )
        day = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"
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
        change.execute("UPDATE declined SET ended = 1 WHERE plan = ?", (digest,))

    def counts(self) -> list[Row]:
        """Return the number of plans that the rules declined by day, analyst (or `OTHERS`) and rule (a key of
        site.toml, or an error code), the oldest day first."""
        return self._counts("<>")

    def unanswered_counts(self) -> list[Row]:
        """Return the number of plans that ended before this site answered anything, as `counts`."""
        return self._counts("=")

    def _counts(self, relation: str) -> list[Row]:
        chosen = f"SELECT * FROM decline_counts WHERE rule {relation} ? ORDER BY day, analyst, rule"
        return self._database.rows(chosen, (UNANSWERED,))


def _reason(reason: str, rule: str) -> str:
    """Return why a plan is not stored. Version 1.0 stored one code for a breach and for an end."""
    if rule == UNANSWERED:
        return NOT_DECLINED
    return f"{BY_RULES}, or {NOT_DECLINED}" if reason == Code.PROTOCOL.value else BY_RULES


@dataclass(eq=False)
class DeclinedProofs:
    """Declined plans stored whole as proof, in `database` (whose schema includes `SCHEMA`): the coordinator
    signed them under an analyst's name, and the analyst's key did not.

    The first `MOST_OF_NAME` of each name stay, `MOST_PROOFS` of at most `MOST_PROOF_BYTES` in all, until a
    person deletes them. A plan under a name known here displaces the latest under an unknown name, because
    names are easily invented. The bytes do not prove who made the plan."""

    _database: Database

    def add(self, proof: ReceivedPlan, reason: Code, change: Connection, *, named: bool) -> None:
        """Store a plan within the transaction `change`, unless it is stored already or exceeds the limits.
        `named`: its analyst is known here."""
        same = change.execute("SELECT plan FROM declined_proofs WHERE analyst = ?", (proof.analyst,))
        if len(same) >= MOST_OF_NAME or proof.plan in [row["plan"] for row in same]:
            return
        while not (fits := _fits(proof, change)) and named and change.execute(DISPLACED, ()):
            pass
        if fits:
            stated = {"name": proof.name, "analyst": proof.analyst, "reason": reason.value}
            received = {name: getattr(proof, name) for name in RECEIVED}
            change.insert("declined_proofs", stated | received | {"named": int(named)})

    def all(self) -> list[ReceivedPlan]:
        """Return every proof, with the error code of its decline, the oldest first."""
        columns = ", ".join(RECEIVED)
        return [
            ReceivedPlan(status=ConsentStatus.DECLINED, **dict(row))
            for row in self._database.rows(f"SELECT {columns}, reason FROM declined_proofs ORDER BY at, plan")
        ]

    def check_whole(self) -> None:
        """Check every plan against its digest. Raises InternalError, code `storage`."""
        for one in self.all():
            if not one.is_intact:
                raise changed_error(f"the plan of study {one.plan[:12]}, stored as proof,")

    def forget(self, wanted: str) -> ReceivedPlan:
        """Delete and return the proof whose digest begins with `wanted` (at least 6 characters). Raises
        RequestError: code `not-found`, none or several."""
        found = [one for one in self.all() if len(wanted) >= 6 and one.plan.startswith(wanted.lower())]
        if len(found) != 1:
            raise RequestError(
                Code.NOT_FOUND,
                f"{len(found)} plans that are stored as proof begin with {wanted!r}; give at least 6 "
                "characters of one digest (eigenveil-site studies lists them)",
            )
        with self._database.transaction() as change:
            change.execute("DELETE FROM declined_proofs WHERE plan = ?", (found[0].plan,))
        return found[0]


def _fits(proof: ReceivedPlan, change: Connection) -> bool:
    (stored,) = change.execute(STORED, ())
    size = len(proof.plan_json) + len(proof.signature) + len(proof.authorization)
    return bool(stored["plans"] < MOST_PROOFS and stored["bytes"] + size <= MOST_PROOF_BYTES)
