"""Budget ledger without I/O: reserve, charge and settle in a hash-chained, append-only log.

The coordinator has one for the federation's data set, and every site one for its own records. So a
coordinator restored from an old backup gets no refund [P8]. The caller stores the entries durably. Replaying
them gives the same state, or an error."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from eigenveil.accounting.budget import PrivacyBudget
from eigenveil.accounting.zcdp import NO_COST, Cost, pico_epsilon
from eigenveil.errors import Code, InternalError, PeerError, RequestError, round_label
from eigenveil.numerics.encoding import digest, digest_of

GENESIS = "0" * 64
EPSILON_KEY, DELTA_KEY = "budget_epsilon", "budget_mechanism_delta"  # of every daemon's configuration


class EntryKind(Enum):
    """Kind of a ledger entry. `reserve` reserves a study's whole cost; `reserve-gaussian` does so where only
    Gaussian noise is admitted. `charge` spends a part for one round, permanently. `attempt` does so for one
    attempt at a masked round, which may have several. `settle` ends the study and frees the rest."""

    RESERVE = "reserve"
    RESERVE_GAUSSIAN = "reserve-gaussian"
    CHARGE = "charge"
    ATTEMPT = "attempt"
    SETTLE = "settle"

    @property
    def spends(self) -> bool:
        """True if entries of this kind are charges."""
        return self in (EntryKind.CHARGE, EntryKind.ATTEMPT)


class LedgerEntry(NamedTuple):
    """One row of the ledger; a tuple, as a start makes one of each row. `at` is a Unix time in seconds for
    people; no decision depends on it."""

    index: int  # type: ignore[assignment]  # a tuple's search for a value, which nobody needs of a row
    kind: EntryKind
    study: str
    round: int
    query: str
    micro_rho: int
    atto_delta: int
    at: int
    previous: str
    digest: str

    @property
    def cost(self) -> Cost:
        return Cost(micro_rho=self.micro_rho, atto_delta=self.atto_delta)


Amount = tuple[int, int]  # micro-rho and atto-delta of a cost; a start adds up those of all rows


@dataclass(slots=True)
class Ledger:
    """State of a ledger after its entries.

    `spent` never decreases. `gaussian` is True until a reservation is made where other noise is admitted.
    `charged` is the query of each charged round, `paid` the round's first charge, and `repeated` the cost of
    a study's later charges of its rounds. `pico_by_study` is the sum of a study's charges as epsilons, in
    1e-12. These four are of open studies: a settled one has no reservation, so it is never charged again, and
    only what it spent is remembered, so that it is never reserved again.

    Raises on append:
        RequestError: code `budget-exhausted`, also for noise that the budget does not admit, or a study
            reserved twice.
        PeerError: a round already charged for another query.
        InternalError: a stored row does not continue the chain."""

    budget: PrivacyBudget
    gaussian: bool = True
    head: str = GENESIS
    size: int = 0
    spent_amount: Amount = (0, 0)
    open_amounts: dict[str, Amount] = field(default_factory=dict)  # reserved and not charged
    spent_amounts: dict[str, Amount] = field(default_factory=dict)  # of each study that was ever reserved
    charged: dict[tuple[str, int], str] = field(default_factory=dict)
    paid: dict[tuple[str, int], LedgerEntry] = field(default_factory=dict)
    repeated: dict[str, Cost] = field(default_factory=dict)
    pico_by_study: dict[str, int] = field(default_factory=dict)

    @property
    def spent(self) -> Cost:
        return _cost(self.spent_amount)

    @property
    def reserved(self) -> dict[str, Cost]:
        """Reservation of each open study, without what was charged."""
        return {study: _cost(amount) for study, amount in self.open_amounts.items()}

    def spent_by(self, study: str) -> Cost:
        """Return what `study` has spent."""
        return _cost(self.spent_amounts.get(study, (0, 0)))

    def knows(self, study: str) -> bool:
        """Return True if `study` was ever reserved."""
        return study in self.spent_amounts

    def committed(self) -> Cost:
        return sum(map(_cost, self.open_amounts.values()), self.spent)

    @property
    def limit(self) -> Cost:
        """Limit of the committed cost, under the noise admitted so far."""
        return self.budget.limit(gaussian=self.gaussian)

    @property
    def exact(self) -> bool:
        """True if the budget is counted in mu: only Gaussian noise was and is admitted."""
        return self.gaussian and self.budget.gaussian is not None

    def reserve(self, study: str, cost: Cost, *, at: int, gaussian: bool = False) -> LedgerEntry:
        """Return the entry that reserves `cost` for `study`; `gaussian`: all its noise is Gaussian. Where
        other noise is admitted, the entry is `reserve` for every study: an analyst could have chosen other
        noise by earlier results, so the sum is not counted in mu."""
        if not gaussian and self.budget.gaussian is not None:
            raise RequestError(
                Code.BUDGET,
                "the budget admits only Gaussian noise, and the study needs other; nothing was charged: "
                'choose another algorithm and a delta above 0, or have noise = "any" configured',
            )
        return self.restore_reservation(study, cost, at=at, gaussian=self.budget.gaussian is not None)

    def restore_reservation(self, study: str, cost: Cost, *, at: int, gaussian: bool) -> LedgerEntry:
        """Return the reservation entry of a study whose rows were lost, whatever noise is admitted now."""
        kind = EntryKind.RESERVE_GAUSSIAN if gaussian else EntryKind.RESERVE
        return self._next(kind, study, 0, "", cost, at)

    def charge(self, study: str, round: int, query: str, cost: Cost, *, at: int) -> LedgerEntry | None:
        """Return the entry that charges `cost` for a round; None if it was charged already."""
        self._check_query(study, round, query)
        if (study, round) in self.charged:
            return None
        return self._next(EntryKind.CHARGE, study, round, query, cost, at)

    def attempt(self, study: str, round: int, query: str, cost: Cost, *, pool: Cost, at: int) -> LedgerEntry:
        """Return the entry that charges `cost` for one more attempt at a masked round. The caller must charge
        each attempt exactly once. Raises RequestError: code `budget-exhausted`, `pool` is set aside for the
        study's repeated attempts and does not pay for this one [P35]."""
        self._check_query(study, round, query)
        if not self.covers(study, round, cost, pool):
            raise RequestError(
                Code.BUDGET,
                f"what study {study[:12]} set aside for repeated attempts does not pay for another at "
                f"{round_label(round)}; nothing was charged",
            )
        return self._next(EntryKind.ATTEMPT, study, round, query, cost, at)

    def covers(self, study: str, round: int, cost: Cost, pool: Cost) -> bool:
        """Return True unless `cost` is for a repeated attempt that exceeds what is left of the `pool`. A
        round's first attempt is no repeated one, whatever its number."""
        first = (study, round) not in self.charged
        return first or (self.repeated.get(study, NO_COST) + cost).fits(pool)

    def _check_query(self, study: str, round: int, query: str) -> None:
        if self.charged.get((study, round), query) != query:
            raise PeerError(
                Code.PROTOCOL,
                f"{round_label(round)} of study {study[:12]} was already charged for another query",
            )

    def settle(self, study: str, *, at: int) -> LedgerEntry | None:
        """Return the entry that ends `study`; None if it is not open."""
        if study not in self.open_amounts:
            return None
        return self._next(EntryKind.SETTLE, study, 0, "", NO_COST, at)

    def _next(self, kind: EntryKind, study: str, round: int, query: str, cost: Cost, at: int) -> LedgerEntry:
        entry = LedgerEntry(
            index=self.size, kind=kind, study=study, round=round, query=query, micro_rho=cost.micro_rho,
            atto_delta=cost.atto_delta, at=at, previous=self.head, digest="",
        )  # fmt: skip
        entry = entry._replace(digest=_digest(entry))
        self._check(entry)
        return entry

    def _check(self, entry: LedgerEntry) -> None:
        match entry.kind:
            case EntryKind.RESERVE | EntryKind.RESERVE_GAUSSIAN:
                if self.knows(entry.study):
                    raise RequestError(Code.CONFLICT, f"study {entry.study[:12]} was reserved already")
                limit = self.budget.limit(gaussian=self._stays_gaussian(entry))
                self._check_fits(self.committed() + entry.cost, limit, "the budget")
            case EntryKind.CHARGE | EntryKind.ATTEMPT:
                left = self.open_amounts.get(entry.study)
                if left is None:
                    raise RequestError(Code.BUDGET, f"study {entry.study[:12]} has no reservation")
                if entry.kind is EntryKind.CHARGE and (entry.study, entry.round) in self.charged:
                    raise InternalError(
                        Code.STORAGE, f"ledger row {entry.index} charges a round twice; restore the ledger"
                    )
                if entry.micro_rho > left[0] or entry.atto_delta > left[1]:
                    self._check_fits(entry.cost, _cost(left), "the study's reservation")
            case EntryKind.SETTLE:
                pass

    def _stays_gaussian(self, reserving: LedgerEntry) -> bool:
        return self.gaussian and reserving.kind is EntryKind.RESERVE_GAUSSIAN

    @staticmethod
    def _check_fits(cost: Cost, budget: Cost, name: str) -> None:
        if not cost.fits(budget):
            key, excess_text = _exceeded(cost, budget)
            raise RequestError(
                Code.BUDGET, f"{excess_text} of {name} would exceed it ({key}); nothing was charged"
            )

    def apply(self, entry: LedgerEntry) -> None:
        """Add an entry to the state, after a check that it continues the chain and is allowed."""
        continues = entry.index == self.size and entry.previous == self.head
        if not (continues and entry.digest == _digest(entry)):
            raise InternalError(
                Code.STORAGE, f"ledger row {entry.index} does not continue the chain; restore the ledger"
            )
        self._check(entry)
        self.head, self.size = entry.digest, self.size + 1
        study, amount = entry.study, (entry.micro_rho, entry.atto_delta)
        match entry.kind:
            case EntryKind.RESERVE | EntryKind.RESERVE_GAUSSIAN:
                self.gaussian = self._stays_gaussian(entry)
                self.open_amounts[study] = amount
                self.spent_amounts[study], self.pico_by_study[study] = (0, 0), 0
            case EntryKind.CHARGE | EntryKind.ATTEMPT:
                self._spend(entry, amount)
            case EntryKind.SETTLE:
                self._forget_rounds(study)

    def _spend(self, entry: LedgerEntry, amount: Amount) -> None:
        study, at = entry.study, (entry.study, entry.round)
        left = self.open_amounts[study]
        self.open_amounts[study] = left[0] - amount[0], left[1] - amount[1]
        self.spent_amount = _sum(self.spent_amount, amount)
        self.spent_amounts[study] = _sum(self.spent_amounts[study], amount)
        self.pico_by_study[study] += pico_epsilon(entry.micro_rho)
        if at in self.charged:
            self.repeated[study] = self.repeated.get(study, NO_COST) + entry.cost
        self.charged[at] = entry.query
        self.paid.setdefault(at, entry)

    def _forget_rounds(self, study: str) -> None:
        """Free the reservation of a settled study, and drop its charges: each needs a reservation."""
        if self.open_amounts.pop(study, None) is None:
            return
        self.repeated.pop(study, None)
        del self.pico_by_study[study]
        for at in [one for one in self.charged if one[0] == study]:
            del self.charged[at], self.paid[at]


def _cost(amount: Amount) -> Cost:
    return Cost(micro_rho=amount[0], atto_delta=amount[1])


def _sum(one: Amount, other: Amount) -> Amount:
    return one[0] + other[0], one[1] + other[1]


def _digest(entry: LedgerEntry) -> str:
    """Return the digest of a row; numbers are hashed as text: canonical JSON has no integers beyond 2**53."""
    names = entry.study + entry.query
    if not (names.isascii() and names.isalnum()):  # of a damaged row
        values = {name: str(getattr(entry, name)) for name in LedgerEntry._fields if name != "digest"}
        return digest("ledger", values | {"kind": entry.kind.value})
    # The same canonical JSON, in a quarter of the time: at each start all rows are checked.
    body = (
        f'{{"at":"{entry.at}","atto_delta":"{entry.atto_delta}","index":"{entry.index}",'
        f'"kind":"{entry.kind.value}","micro_rho":"{entry.micro_rho}","previous":"{entry.previous}",'
        f'"query":"{entry.query}","round":"{entry.round}","study":"{entry.study}"}}'
    )
    return digest_of("ledger", body.encode())


def replay(budget: PrivacyBudget, entries: Iterable[LedgerEntry]) -> Ledger:
    """Return the ledger of stored `entries`. Raises InternalError: the chain is broken; RequestError: code
    `budget-exhausted`, if the budget was lowered below the committed cost, also by admitting other noise than
    Gaussian."""
    rows = list(entries)
    # Settled studies may have had a larger budget: only the committed cost is compared with today's.
    total = Cost(micro_rho=sum(row.micro_rho for row in rows), atto_delta=sum(row.atto_delta for row in rows))
    ledger = Ledger(budget=PrivacyBudget(mixed=total))
    for row in rows:
        ledger.apply(row)
    ledger.budget = budget
    committed = ledger.committed()
    if not committed.fits(ledger.limit):
        key, excess_text = _exceeded(committed, ledger.limit)
        raise RequestError(
            Code.BUDGET,
            f"the configured budget is below what is already spent or reserved, {excess_text} of it: raise "
            f"{key}"
            + (', or set noise back to "gaussian"' if ledger.gaussian and budget.gaussian is None else ""),
        )
    return ledger


def _exceeded(cost: Cost, budget: Cost) -> tuple[str, str]:
    """Return the configuration key of the exceeded part of the budget, and the excess as text."""
    loss = cost.micro_rho > budget.micro_rho
    key = EPSILON_KEY if loss else DELTA_KEY
    excess_text, total = (cost.micro_rho, budget.micro_rho) if loss else (cost.atto_delta, budget.atto_delta)
    return key, f"{-(-100 * excess_text // total)} %" if total else "more than nothing"
