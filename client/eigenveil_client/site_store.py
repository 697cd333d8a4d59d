"""A site's memory: its budget, the plans it has seen, and one row for every message that left.

What a round costs, which query was answered and what left are written in one transaction, before
the answer leaves: after a crash at any moment the same query gets the same answer at no further
charge, and no other query is answered for that round.
"""

from __future__ import annotations

import hmac
import os
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from hashlib import sha256
from pathlib import Path

from eigenveil.accounting import NOTHING, Cost
from eigenveil.asks import NAMES, part_of
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.plan import Plan
from eigenveil.pricing import check_epsilon, check_part
from eigenveil.query import Query
from eigenveil.site import Site
from eigenveil_client import egress
from eigenveil_client.egress import Sent
from eigenveil_client.tables import BadRecords
from eigenveil_common import ledger_store
from eigenveil_common.files import read_secret, write_secret
from eigenveil_common.ledger_store import LedgerStore
from eigenveil_common.sqlite import Database

VERSION = 2
SCHEMA = (
    ledger_store.SCHEMA
    + egress.SCHEMA
    + """
CREATE TABLE studies (
  plan TEXT PRIMARY KEY,
  plan_json BLOB NOT NULL,
  signature BLOB NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  records TEXT NOT NULL,
  at INTEGER NOT NULL
) STRICT;
CREATE TABLE passes (
  plan TEXT NOT NULL,
  first INTEGER NOT NULL,
  round INTEGER NOT NULL,
  PRIMARY KEY (plan, first)
) STRICT;
"""
)


class StudyStanding(Enum):
    """What a site decided about a plan; `ended` is for ever."""

    ACCEPTED = "accepted"
    DECLINED = "declined"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPlan:
    """A plan whose signature was verified. `reason` is the error code of a refusal, else empty.

    `records` is a keyed digest of the rows the study began with (empty before the first answer).
    """

    plan: str
    plan_json: bytes
    signature: bytes
    standing: StudyStanding
    reason: str
    records: str
    at: int


class SiteStore:
    """Everything a site must not forget, in one SQLite file; its key for digests lies beside it.

    Raises:
        InternalError: code `storage`; the process must end.
    """

    def __init__(self, path: Path, budget: Cost, clock: Callable[[], int] = lambda: int(time.time())) -> None:
        self._clock = clock
        self._key = _key(path.with_name("egress.key"))
        self.database = Database(path, SCHEMA, VERSION)
        self.ledger = LedgerStore(self.database, budget, clock)
        self.egress = egress.EgressLedger(self.database, clock)
        self._due: dict[str, int] = {}  # the round after the last answered one, by study
        for study, round in self.ledger.ledger.charged:
            self._passed(study, round)

    def plans(self) -> list[SeenPlan]:
        """Every plan seen, oldest first."""
        return [_seen(row) for row in self.database.rows("SELECT * FROM studies ORDER BY at, plan")]

    def plan(self, digest: str) -> SeenPlan | None:
        """One plan, if it was seen."""
        rows = self.database.rows("SELECT * FROM studies WHERE plan = ?", (digest,))
        return _seen(rows[0]) if rows else None

    def find(self, prefix: str) -> SeenPlan:
        """The one plan whose digest begins with `prefix` (at least 6 characters).

        Raises:
            RequestError: code `not-found`, none or several.
        """
        found = [seen for seen in self.plans() if seen.plan.startswith(prefix.lower())]
        if len(prefix) < 6 or len(found) != 1:
            raise RequestError(
                Code.NOT_FOUND,
                f"{len(found)} plans of this site begin with {prefix!r}; "
                "give at least 6 characters of one digest",
            )
        return found[0]

    def accept(self, plan: Plan, plan_json: bytes, signature: bytes) -> None:
        """Reserve the study's whole price and remember the plan, in one transaction.

        Raises:
            RequestError: code `budget-exhausted`; nothing was changed.
        """
        row = self._row(plan.digest, plan_json, signature, StudyStanding.ACCEPTED, "")
        self.ledger.reserve(plan.digest, plan.cost, also=partial(_insert, row))

    def decline(self, digest: str, plan_json: bytes, signature: bytes, reason: Code) -> None:
        """Remember a plan that was refused."""
        row = self._row(digest, plan_json, signature, StudyStanding.DECLINED, reason.value)
        with self.database.transaction() as change:
            _insert(row, change)

    def end(self, digest: str) -> Cost:
        """Settle a study; what was set aside for it and not charged is free again, and returned."""

        def also(change: sqlite3.Connection) -> None:
            change.execute("UPDATE studies SET state = ? WHERE plan = ?", (StudyStanding.ENDED.value, digest))

        freed = self.ledger.ledger.reserved.get(digest, NOTHING)
        self.ledger.settle(digest, also=also)
        return freed

    def keep_records(self, plan: Plan, site: Site) -> None:
        """Hold a study to the records it began with.

        Raises:
            BadRecords: the records have changed since.
        """
        digest = self._keyed(site.rows.tobytes())
        seen = self.plan(plan.digest)
        if seen is None or seen.records == digest:
            return
        if seen.records:
            raise BadRecords(
                "the records have changed since this study began; a study runs over one set of records",
                about="changed",
            )
        with self.database.transaction() as change:
            change.execute("UPDATE studies SET records = ? WHERE plan = ?", (digest, plan.digest))

    def check_order(self, query: Query, may_miss: bool) -> None:
        """Insist that a query is the last answered one again, or a later one.

        Only the last: a coordinator put back to an earlier round would draw new noise for each round
        that it asks again, and publish several noisy answers to one query for one charge.

        `may_miss`: the study can go on without this site, so rounds it missed may be passed over.

        Raises:
            PeerError: another query for an answered round, a step back, or a skipped round.
        """
        due = self._due.get(query.plan_digest, 0)
        known = self.ledger.ledger.charged.get((query.plan_digest, query.round))
        if known == query.digest and query.round == due - 1:
            return
        if known not in (None, query.digest):
            raise PeerError(
                Code.PROTOCOL, f"round {query.round} was answered for another query; this one is refused"
            )
        if query.round < due or (query.round > due and not may_miss):
            raise PeerError(
                Code.PROTOCOL,
                f"round {query.round} was asked when round {due} was due; "
                "was the coordinator restored from an old copy?",
            )

    def _cost(self, plan: Plan, query: Query) -> Cost:
        """What a query costs here: a pass is paid with the first of its parts that this site answers.

        Any other question of that round has paid for itself alone, and for no part.
        """
        part = part_of(query.ask)
        if part is None:
            return query.price
        began = self.database.rows(
            "SELECT round FROM passes WHERE (plan, first) = (?, ?)", (plan.digest, part.first)
        )
        paid = self.ledger.ledger.paid[plan.digest, began[0]["round"]] if began else query.price
        check_part(plan, query.price, part, paid)
        return NOTHING if began and began[0]["round"] != query.round else query.price

    def check_price(self, plan: Plan, query: Query) -> None:
        """Insist that the study's reservation and guarantee cover a query, unless it is charged already.

        Raises:
            EigenveilError: as `Ledger.charge` and `pricing.check_epsilon`; nothing was changed.
        """
        ledger, cost = self.ledger.ledger, self._cost(plan, query)
        if ledger.charge(query.plan_digest, query.round, query.digest, cost, at=0) is not None:
            check_epsilon(plan, query, cost, ledger.pico_by_study[query.plan_digest])

    def answer(self, plan: Plan, query: Query, values: bytes, meaning: str) -> None:
        """Charge a round and write down what is about to leave: one transaction, durable on return.

        Raises:
            EigenveilError: as `Ledger.charge`; then nothing may be sent.
        """
        sent = Sent(
            study=query.plan_digest,
            round=query.round,
            kind=NAMES[type(query.ask)],
            bytes=len(values),
            contribution=self._keyed(values),
            meaning=meaning,
        )
        self.ledger.charge(
            query.plan_digest,
            query.round,
            query.digest,
            self._cost(plan, query),
            also=partial(self._write, query, sent),
        )
        self._passed(query.plan_digest, query.round)

    def _write(self, query: Query, sent: Sent, change: sqlite3.Connection) -> None:
        self.egress.append(sent, change)
        part = part_of(query.ask)
        if part is not None:
            row = (query.plan_digest, part.first, query.round)
            change.execute("INSERT OR IGNORE INTO passes VALUES (?, ?, ?)", row)

    def _passed(self, study: str, round: int) -> None:
        self._due[study] = max(self._due.get(study, 0), round + 1)

    def refuse(self, plan_digest: str, round: int, reason: str) -> None:
        """Write down that a refusal is about to leave."""
        sent = Sent(
            study=plan_digest, round=round, kind="decline", bytes=0, contribution="",
            meaning=f"this site declines: {reason}",
        )  # fmt: skip
        with self.database.transaction() as change:
            self.egress.append(sent, change)

    def _keyed(self, data: bytes) -> str:
        return hmac.new(self._key, data, sha256).hexdigest()

    def _row(
        self, digest: str, plan_json: bytes, signature: bytes, standing: StudyStanding, reason: str
    ) -> tuple[object, ...]:
        return (digest, plan_json, signature, standing.value, reason, "", self._clock())

    def close(self) -> None:
        """Close the database."""
        self.database.close()


def _insert(row: tuple[object, ...], change: sqlite3.Connection) -> None:
    change.execute("INSERT INTO studies VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def _seen(row: sqlite3.Row) -> SeenPlan:
    return SeenPlan(
        plan=row["plan"],
        plan_json=row["plan_json"],
        signature=row["signature"],
        standing=StudyStanding(row["state"]),
        reason=row["reason"],
        records=row["records"],
        at=row["at"],
    )


def _key(path: Path) -> bytes:
    if not path.exists():
        write_secret(path, os.urandom(32))
    return read_secret(path)
