"""Ledger on disk: append-only rows, replayed through the pure ledger at start."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from eigenveil.accounting.budget import PrivacyBudget
from eigenveil.accounting.ledger import EntryKind, Ledger, LedgerEntry, replay
from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code, InternalError
from eigenveil.protocol.query import RoundQuery
from eigenveil_common.storage.database import Connection, Database, Row, tables

SCHEMA, POSTGRESQL_SCHEMA = tables(__package__)
COLUMNS = LedgerEntry._fields
KINDS = {kind.value: kind for kind in EntryKind}
SPENDING = ", ".join(f"'{kind.value}'" for kind in EntryKind if kind.spends)
ALL_ROWS = "SELECT " + ", ".join(f'"{name}"' for name in COLUMNS) + " FROM ledger"


T = TypeVar("T")
LedgerPosition = tuple[str, int]  # digest of a ledger's last row, and the number of rows
Decide = Callable[[Connection], LedgerEntry | None]
ExtraWrite = Callable[[Connection], None] | None
PositionedWrite = Callable[[Connection, LedgerPosition], None]


class LedgerTotals(NamedTuple):
    """Totals of a ledger at one moment, under their names in the ledger."""

    spent: Cost
    committed: Cost
    limit: Cost
    exact: bool
    gaussian: bool
    head: str
    size: int

    @classmethod
    def of(cls, ledger: Ledger) -> LedgerTotals:
        committed, noise = ledger.committed(), (ledger.exact, ledger.gaussian)
        return cls(ledger.spent, committed, ledger.limit, *noise, ledger.head, ledger.size)


class LedgerStore:
    """Ledger of one data set, durable in `database`, whose schema includes the ledger's. Every decision is
    made inside the transaction that stores it, on the entries of all processes, so several processes may
    share one ledger. `also` writes further rows in that transaction: one sync for both, and neither without
    the other. It runs even if the entry exists already and nothing is appended. `ledger` may change at any
    time without the lock (see `read`). `ledger_position` and `totals` are replaced after every change, and
    can be read on any thread."""

    def __init__(self, database: Database, budget: PrivacyBudget, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()  # from the decision until the entry is in `ledger`
        self.ledger = replay(budget, self.entries())
        self.totals = LedgerTotals.of(self.ledger)

    def entries(self) -> list[LedgerEntry]:
        return [_entry(row) for row in self._database.rows(f'{ALL_ROWS} ORDER BY "index"')]

    def charges(self) -> dict[tuple[str, int], int]:
        """Return how often each round of each study was charged, settled ones too, accepted losses not."""
        counted = "SELECT study, round, COUNT(*) FROM ledger"
        rows = self._database.rows(
            f"{counted} WHERE kind IN ({SPENDING}) AND query <> study GROUP BY study, round"
        )
        return {(study, round): times for study, round, times in rows}

    def charged_queries(self, study: str) -> dict[int, str]:
        """Return the query of each charged round of a study, settled or not."""
        selected = f"SELECT round, query FROM ledger WHERE study = ? AND kind IN ({SPENDING})"
        return dict(tuple(row) for row in self._database.rows(selected, (study,)))

    def reserve(self, study: str, cost: Cost, also: ExtraWrite = None, *, gaussian: bool = False) -> None:
        """Reserve `cost` for `study`, durably on return. Raises as `Ledger.reserve`."""
        self._append(
            lambda _: self.ledger.reserve(study, cost, at=self._clock(), gaussian=gaussian), _extra(also)
        )

    def restore_reservation(self, study: str, cost: Cost, *, gaussian: bool) -> None:
        """Reserve `cost` again for a study that was admitted before and whose rows are lost."""
        self._append(
            lambda _: self.ledger.restore_reservation(study, cost, at=self._clock(), gaussian=gaussian),
            _extra(None),
        )

    def check(self, study: str, cost: Cost, *, gaussian: bool) -> None:
        """Raise as `reserve` would now, without reserving anything."""
        with self._lock:
            self.ledger.reserve(study, cost, at=self._clock(), gaussian=gaussian)

    def charge(self, study: str, round: int, query: str, cost: Cost, also: ExtraWrite = None) -> None:
        """Spend `cost` for a round, durably on return; once only. Raises as `Ledger.charge`."""
        if also is None and self.ledger.charged.get((study, round)) == query:
            return
        self._append(lambda change: self._charge(study, round, query, cost, change), _extra(also))

    def charge_round(self, round_query: RoundQuery, also: PositionedWrite) -> None:
        """Charge a query's cost; `also` gets the resulting position of the ledger."""
        study, round = round_query.plan_digest, round_query.round
        query, cost = round_query.digest, round_query.cost
        self._append(lambda change: self._charge(study, round, query, cost, change), also)

    def _charge(
        self, study: str, round: int, query: str, cost: Cost, change: Connection
    ) -> LedgerEntry | None:
        """Return as `Ledger.charge`, which knows the rounds of open studies; others are looked up."""
        if study not in self.ledger.open_amounts:
            known = f"SELECT query FROM ledger WHERE study = ? AND round = ? AND kind IN ({SPENDING})"
            if query in [row[0] for row in change.execute(known, (study, round))]:
                return None
        return self.ledger.charge(study, round, query, cost, at=self._clock())

    def attempt(self, round_query: RoundQuery, cost: Cost, pool: Cost, also: PositionedWrite) -> None:
        """Spend `cost` for an attempt at a masked round, durably on return, with the rows of `also`. These
        rows must not exist already. `pool` is for the study's repeated attempts. Raises as
        `Ledger.attempt`."""
        study, round, query = round_query.plan_digest, round_query.round, round_query.digest
        self._append(
            lambda _: self.ledger.attempt(study, round, query, cost, pool=pool, at=self._clock()), also
        )

    def write_alongside(self, also: PositionedWrite) -> None:
        """Write the rows of `also` without spending; it gets the position of the ledger."""
        self._append(lambda _: None, also)

    def settle(self, study: str, also: ExtraWrite = None) -> None:
        """Settle `study`, durably on return, and release what was not charged."""
        self._append(lambda _: self.ledger.settle(study, at=self._clock()), _extra(also))

    @property
    def ledger_position(self) -> LedgerPosition:
        """Return the position after the last change, on any thread."""
        totals = self.totals
        return totals.head, totals.size

    def spent(self, study: str) -> int:
        """Return the micro-rho that `study` has spent."""
        return self.ledger.spent_amounts.get(study, (0, 0))[0]

    def read(self, look: Callable[[Ledger], T]) -> T:
        """Return `look` of the ledger, while nothing is appended."""
        with self._lock:
            return look(self.ledger)

    def refresh(self) -> None:
        """Read the entries that other processes have appended."""
        with self._changing(), self._database.transaction() as change:
            self._read_new_entries(change)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock, and update the totals on exit, also after an error."""
        with self._lock:
            try:
                yield
            finally:
                self.totals = LedgerTotals.of(self.ledger)

    def _append(self, decide: Decide, also: PositionedWrite) -> None:
        with self._changing():
            with self._database.transaction() as change:
                self._read_new_entries(change)
                entry = decide(change)
                if entry is not None:
                    # atto-delta may exceed 63 bits, so it is stored as decimal text.
                    text = {"kind": entry.kind.value, "atto_delta": str(entry.atto_delta)}
                    change.insert("ledger", {name: getattr(entry, name) for name in COLUMNS} | text)
                head, size = self.ledger.head, self.ledger.size
                also(change, (head, size) if entry is None else (entry.digest, entry.index + 1))
            if entry is not None:
                self.ledger.apply(entry)

    def _read_new_entries(self, change: Connection) -> None:
        """Apply the entries of other processes. They are durable, so they stay if this transaction fails."""
        last = self.ledger.size - 1
        rows = change.execute(f'{ALL_ROWS} WHERE "index" >= ? ORDER BY "index"', (last,))
        if last >= 0 and (not rows or rows.pop(0)["digest"] != self.ledger.head):
            raise InternalError(
                Code.STORAGE,
                f"row {last} of the ledger was changed or removed under this process; restore the ledger",
            )
        budget = self.ledger.budget
        try:
            for entry in map(_entry, rows):  # the process that stored it has checked the budget
                self.ledger.budget = PrivacyBudget(mixed=self.ledger.committed() + entry.cost)
                self.ledger.apply(entry)
        finally:
            self.ledger.budget = budget


def _extra(also: ExtraWrite) -> PositionedWrite:
    return lambda change, ledger_position: None if also is None else also(change)


def _entry(row: Row) -> LedgerEntry:
    index, kind, study, round, query, micro_rho, atto_delta, at, previous, row_digest = row
    try:
        entry = LedgerEntry(
            index, KINDS[kind], study, round, query, micro_rho, int(atto_delta), at, previous, row_digest
        )
        if micro_rho < 0 or entry.atto_delta < 0:
            raise ValueError("a cost cannot be negative")
    except (KeyError, ValueError) as problem:
        raise InternalError(
            Code.STORAGE, f"ledger row {index} cannot be read: {problem}; restore the ledger"
        ) from problem
    return entry
