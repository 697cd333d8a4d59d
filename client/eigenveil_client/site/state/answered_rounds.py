"""Which rounds this site has answered, and what the next answer costs: one answer for each, paid once; in a
masked study one for each attempt, and each is paid."""

from __future__ import annotations

from eigenveil.accounting.zcdp import NOTHING, Cost
from eigenveil.errors import Code, PeerError, spoken
from eigenveil.protocol.budget import attempt_cost, check_batch, check_composition
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import batch_of
from eigenveil_client.site.state.attempts import Attempts
from eigenveil_common.storage.database import Connection, Database
from eigenveil_common.storage.ledger_store import LedgerStore

SCHEMA = """
CREATE TABLE passes (
  plan TEXT NOT NULL,
  first INTEGER NOT NULL,
  time INTEGER NOT NULL,
  round INTEGER NOT NULL,
  PRIMARY KEY (plan, first, time)
) STRICT;
"""


class AnsweredRounds:
    """What `store` has charged, and the rows in `database` (whose schema includes `SCHEMA`): for each pass
    over disjoint batches, each time that it was paid (from 1), and the round with which it was."""

    def __init__(self, database: Database, store: LedgerStore, attempts: Attempts) -> None:
        self._database = database
        self._store = store
        self._attempts = attempts
        self._due: dict[str, int] = {}  # the round after the last answered one, by study
        for study, round in store.ledger.charged:
            self.passed(study, round)

    def check_order(self, asked: RoundQuery, may_miss: bool) -> None:
        """Insist that a query is the last answered one again, or a later one.

        Only the last: a coordinator put back to an earlier round would draw new noise for each round
        that it asks again, and publish several noisy answers to one query for one charge.

        `may_miss`: the study can go on without this site, so rounds it missed may be passed over.

        Raises:
            PeerError: another query for an answered round, a step back, or a skipped round.
        """
        due = self._due.get(asked.plan_digest, 0)
        known = self._store.ledger.charged.get((asked.plan_digest, asked.round))
        if known == asked.digest and asked.round == due - 1:
            return
        if known not in (None, asked.digest):
            raise PeerError(
                Code.PROTOCOL, f"{spoken(asked.round)} was answered for another query; this one is refused"
            )
        if asked.round < due or (asked.round > due and not may_miss):
            raise PeerError(
                Code.PROTOCOL,
                f"{spoken(asked.round)} was asked when {spoken(due)} was due; "
                "was the coordinator restored from an old copy?",
            )

    def cost(self, plan: Plan, asked: RoundQuery) -> Cost:
        """What the next answer to a query costs here: a pass is paid with the first of its batches that this
        site answers, and once more with the first of which it answers another attempt [P33].

        A record is in one batch, so only attempts at that batch are about it, and any batch has had at most
        as many as the pass was paid times, each at what the first one paid: no batch costs more. Any other
        question of that round has paid for itself alone, and for no batch.
        """
        batch = batch_of(asked.query)
        if batch is None:
            return asked.price
        began = self._database.rows(
            "SELECT round FROM passes WHERE (plan, first) = (?, ?) ORDER BY time", (plan.digest, batch.first)
        )
        first = self._store.ledger.paid[plan.digest, began[0]["round"]] if began else None
        check_batch(plan, asked.price, batch, first or asked.price)
        return attempt_cost(asked.price, self._time(asked), len(began), first)

    def _time(self, asked: RoundQuery) -> int:
        """The how-manieth answer to a query the next one is, from 1; one that is not masked is always the
        first."""
        return 1 + len(self._attempts.answered(asked.plan_digest, asked.round))

    def pay(self, plan: Plan, asked: RoundQuery, cost: Cost, change: Connection) -> None:
        """Insist, within the transaction `change` that charges `cost`, that the study's guarantee covers this
        query's answer, unless it is charged already; and note the pass that is paid with it, if any is. To be
        called before the answer counts as one.

        Raises:
            RequestError: as `budget.check_composition`.
        """
        ledger = self._store.ledger
        if plan.masked or (asked.plan_digest, asked.round) not in ledger.charged:
            check_composition(plan, asked, cost, ledger.pico_by_study[asked.plan_digest])
        batch = batch_of(asked.query)
        if batch is not None and cost != NOTHING:
            row = (asked.plan_digest, batch.first, self._time(asked), asked.round)
            change.execute("INSERT INTO passes VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", row)

    def passed(self, study: str, round: int) -> None:
        """A round was answered, and that is durable."""
        self._due[study] = max(self._due.get(study, 0), round + 1)
