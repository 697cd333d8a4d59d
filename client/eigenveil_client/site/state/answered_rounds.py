"""Which rounds this site has answered, and what the next answer costs: one answer for each, paid once."""

from __future__ import annotations

from eigenveil.accounting.zcdp import NOTHING, Cost
from eigenveil.errors import Code, PeerError, spoken
from eigenveil.protocol.budget import check_batch, check_composition
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import batch_of
from eigenveil_common.storage.database import Connection, Database
from eigenveil_common.storage.ledger_store import LedgerStore

SCHEMA = """
CREATE TABLE passes (
  plan TEXT NOT NULL,
  first INTEGER NOT NULL,
  round INTEGER NOT NULL,
  PRIMARY KEY (plan, first)
) STRICT;
"""


class AnsweredRounds:
    """What `store` has charged, and the rows in `database` (whose schema includes `SCHEMA`): for each pass
    over disjoint batches, the round of the first one that this site answered."""

    def __init__(self, database: Database, store: LedgerStore) -> None:
        self._database = database
        self._store = store
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
        """What a query costs here: a pass is paid with the first of its batches that this site answers.

        Any other question of that round has paid for itself alone, and for no batch.
        """
        batch = batch_of(asked.query)
        if batch is None:
            return asked.price
        began = self._database.rows(
            "SELECT round FROM passes WHERE (plan, first) = (?, ?)", (plan.digest, batch.first)
        )
        paid = self._store.ledger.paid[plan.digest, began[0]["round"]] if began else asked.price
        check_batch(plan, asked.price, batch, paid)
        return NOTHING if began and began[0]["round"] != asked.round else asked.price

    def check_price(self, plan: Plan, asked: RoundQuery) -> None:
        """Insist that the study's reservation and guarantee cover a query, unless it is charged already.

        Raises:
            EigenveilError: as `Ledger.charge` and `budget.check_composition`; nothing was changed.
        """
        ledger, cost = self._store.ledger, self.cost(plan, asked)
        if ledger.charge(asked.plan_digest, asked.round, asked.digest, cost, at=0) is not None:
            check_composition(plan, asked, cost, ledger.pico_by_study[asked.plan_digest])

    def begin_pass(self, asked: RoundQuery, change: Connection) -> None:
        """Note, within the transaction `change`, with which round a pass is paid."""
        batch = batch_of(asked.query)
        if batch is not None:
            row = (asked.plan_digest, batch.first, asked.round)
            change.execute("INSERT INTO passes VALUES (?, ?, ?) ON CONFLICT DO NOTHING", row)

    def passed(self, study: str, round: int) -> None:
        """A round was answered, and that is durable."""
        self._due[study] = max(self._due.get(study, 0), round + 1)
