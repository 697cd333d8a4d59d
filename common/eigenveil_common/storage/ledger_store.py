"""The ledger on disk: rows that are only ever added, replayed through the pure ledger at start."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TypeVar

from eigenveil.accounting.budget import Budget
from eigenveil.accounting.ledger import Entry, EntryKind, Ledger, replay
from eigenveil.accounting.zcdp import NOTHING, Cost
from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.protocol.query import RoundQuery
from eigenveil_common.storage.database import Connection, Database, Row
from eigenveil_common.storage.migrations import tables

SCHEMA, POSTGRESQL_SCHEMA = tables(__package__)
COLUMNS = tuple(f.name for f in fields(Entry))


T = TypeVar("T")
Tip = tuple[str, int]  # the digest of a ledger's last row, and how many rows that makes
Also = Callable[[Connection], None]
AlsoAt = Callable[[Connection, Tip], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerTotals:
    """What a ledger adds up to at one moment; `limit` and `exact` as the ledger's."""

    spent: Cost
    committed: Cost
    limit: Cost
    exact: bool

    @classmethod
    def of(cls, ledger: Ledger) -> LedgerTotals:
        return cls(spent=ledger.spent, committed=ledger.committed(), limit=ledger.limit, exact=ledger.exact)


class LedgerStore:
    """The ledger of one data set, durable in `database` (whose schema includes this one).

    Every decision is taken inside the transaction that stores it, on all that any process has stored
    until then; so several processes may share one ledger.

    `also` writes further rows in the same transaction as the entry (one sync for both, and neither
    without the other); it runs even when the entry is there already and nothing is appended.

    `ledger` may change under whoever has not the lock (see `read`). `tip` and `totals` are values that are
    replaced after every change, and may be read on any thread at any time.
    """

    def __init__(self, database: Database, budget: Budget, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()  # from the decision until the entry is in `ledger`
        self.ledger = replay(budget, self.entries())
        self.tip: Tip
        self.totals: LedgerTotals
        self._note()

    def entries(self) -> list[Entry]:
        return [_entry(row) for row in self._database.rows('SELECT * FROM ledger ORDER BY "index"')]

    def reserve(self, study: str, cost: Cost, also: Also | None = None, *, gaussian: bool = False) -> None:
        """Set `cost` aside for `study`, durably on return. Raises as `Ledger.reserve`."""
        self._append(
            lambda: self.ledger.reserve(study, cost, at=self._clock(), gaussian=gaussian), _anywhere(also)
        )

    def reserve_lost(self, study: str, cost: Cost, *, gaussian: bool) -> None:
        """The same for what was admitted before and whose rows are lost."""
        self._append(
            lambda: self.ledger.reserve_lost(study, cost, at=self._clock(), gaussian=gaussian),
            _anywhere(None),
        )

    def check(self, study: str, cost: Cost, *, gaussian: bool) -> None:
        """Refuse what `reserve` would refuse now, and set nothing aside."""
        with self._lock:
            self.ledger.reserve(study, cost, at=self._clock(), gaussian=gaussian)

    def charge(self, study: str, round: int, query: str, cost: Cost, also: Also | None = None) -> None:
        """Spend `cost` for a round, durably on return; once only. Raises as `Ledger.charge`."""
        if also is None and self.ledger.charged.get((study, round)) == query:
            return
        self._append(lambda: self.ledger.charge(study, round, query, cost, at=self._clock()), _anywhere(also))

    def charge_round(self, asked: RoundQuery, also: AlsoAt) -> None:
        """`charge` of a query's price; `also` is told where the ledger stands with it."""

        def decide() -> Entry | None:
            study, at = asked.plan_digest, self._clock()
            return self.ledger.charge(study, asked.round, asked.digest, asked.cost, at=at)

        self._append(decide, also)

    def attempt(self, asked: RoundQuery, cost: Cost, also: AlsoAt) -> None:
        """Spend `cost` for an attempt at a masked round, durably on return, with what `also` writes of it:
        that must not be there already. Raises as `Ledger.attempt`."""
        study, round = asked.plan_digest, asked.round
        self._append(lambda: self.ledger.attempt(study, round, asked.digest, cost, at=self._clock()), also)

    def beside(self, also: AlsoAt) -> None:
        """What `also` writes, where nothing is spent; it is told where the ledger stands."""
        self._append(lambda: None, also)

    def settle(self, study: str, also: Also | None = None) -> None:
        """End `study`, durably on return; frees what was not charged."""
        self._append(lambda: self.ledger.settle(study, at=self._clock()), _anywhere(also))

    def spent(self, study: str) -> int:
        """Micro-rho that `study` has spent."""
        return self.ledger.spent_by_study.get(study, NOTHING).micro_rho

    def read(self, look: Callable[[Ledger], T]) -> T:
        """`look` at the ledger while nothing is appended to it."""
        with self._lock:
            return look(self.ledger)

    def refresh(self) -> None:
        """Take in what other processes have appended."""
        with self._changing(), self._database.transaction() as change:
            self._catch_up(change)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock. Also what fails may have taken in what others appended."""
        with self._lock:
            try:
                yield
            finally:
                self._note()

    def _note(self) -> None:
        self.tip = (self.ledger.head, self.ledger.size)
        self.totals = LedgerTotals.of(self.ledger)

    def _append(self, decide: Callable[[], Entry | None], also: AlsoAt) -> None:
        with self._changing():
            with self._database.transaction() as change:
                self._catch_up(change)
                entry = decide()
                if entry is not None:
                    change.insert("ledger", _row(entry))
                also(change, _tip(self.ledger, entry))
            if entry is not None:
                self.ledger.apply(entry)

    def _catch_up(self, change: Connection) -> None:
        """Take in what others appended. It is durable, so it stays even if this transaction fails."""
        last = self.ledger.size - 1
        rows = change.execute('SELECT * FROM ledger WHERE "index" >= ? ORDER BY "index"', (last,))
        if last >= 0 and (not rows or rows.pop(0)["digest"] != self.ledger.head):
            raise InternalError(
                Code.STORAGE,
                f"row {last} of the ledger was changed or removed under this process; restore the ledger",
            )
        for row in rows:
            self._take(_entry(row))

    def _take(self, entry: Entry) -> None:
        """What is stored was allowed by the budget of the process that stored it."""
        budget = self.ledger.budget
        self.ledger.budget = Budget(mixed=self.ledger.committed() + entry.cost)
        try:
            self.ledger.apply(entry)
        finally:
            self.ledger.budget = budget


def _tip(ledger: Ledger, entry: Entry | None) -> Tip:
    """Where `ledger` stands once it holds `entry`."""
    return (ledger.head, ledger.size) if entry is None else (entry.digest, entry.index + 1)


def _anywhere(also: Also | None) -> AlsoAt:
    return lambda change, tip: None if also is None else also(change)


def _row(entry: Entry) -> dict[str, object]:
    values = {name: getattr(entry, name) for name in COLUMNS}
    # atto-delta may exceed 63 bits, so it is stored as decimal text.
    return {**values, "kind": entry.kind.value, "atto_delta": str(entry.atto_delta)}


def _entry(row: Row) -> Entry:
    values = {name: row[name] for name in COLUMNS}
    try:
        values |= {"kind": EntryKind(values["kind"]), "atto_delta": int(values["atto_delta"])}
        entry = Entry(**values)
        entry.cost  # noqa: B018 - refuses a price that no row can have
    except (ValueError, RequestError) as problem:
        raise InternalError(
            Code.STORAGE, f"ledger row {values['index']} cannot be read: {problem}; restore the ledger"
        ) from problem
    return entry
