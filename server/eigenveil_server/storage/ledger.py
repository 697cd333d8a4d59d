"""The federation's ledger, one entry at a time although studies run side by side."""

from __future__ import annotations

from eigenveil.accounting.zcdp import NOTHING, Cost
from eigenveil.protocol.query import RoundQuery
from eigenveil_common.storage.database import Database
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_server.clock import Clock
from eigenveil_server.storage.database import Change


class FederationLedger:
    """Reserve, charge, settle; each call blocks until its entry and `also` are durable."""

    def __init__(self, database: Database, budget: Cost, clock: Clock) -> None:
        self._store = LedgerStore(database, budget, lambda: clock() // 1000)

    def reserve(self, study: str, cost: Cost, also: Change) -> None:
        """Set `cost` aside, or raise `budget-exhausted` with nothing written."""
        self._store.reserve(study, cost, also)

    def check(self, study: str, cost: Cost) -> None:
        """Raise `budget-exhausted` if `reserve` would, with nothing written."""
        self._store.check(study, cost)

    def charge(self, asked: RoundQuery, also: Change) -> None:
        """Spend a query's price, once."""
        self._store.charge(asked.plan_digest, asked.round, asked.digest, asked.cost, also)

    def settle(self, study: str, also: Change) -> None:
        """End a study and free what it did not spend."""
        self._store.settle(study, also)

    def spent(self, study: str) -> int:
        """Micro-rho that `study` has spent."""
        return self._store.ledger.spent_by_study.get(study, NOTHING).micro_rho

    @property
    def tip(self) -> tuple[str, int]:
        """The digest of the last durable row, and how many rows there are."""
        return self._store.tip

    @property
    def budget(self) -> int:
        """Micro-rho that may be spent in all."""
        return self._store.ledger.budget.micro_rho

    @property
    def total_spent(self) -> int:
        """Micro-rho spent by all studies."""
        return self._store.ledger.spent.micro_rho

    @property
    def committed(self) -> int:
        """Micro-rho spent or set aside."""
        return self._store.ledger.committed().micro_rho
