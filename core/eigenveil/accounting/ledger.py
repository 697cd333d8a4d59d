"""Budget ledger without I/O: reserve, charge and settle in a hash-chained, append-only log.

The coordinator has one for the federation's data set, and every site one for its own records. So a
coordinator restored from an old backup gets no refund [P8]. The caller stores the entries durably. Replaying
them gives the same state, or an error."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from eigenveil.accounting.budget import PrivacyBudget
from eigenveil.accounting.zcdp import NO_COST, Cost, pico_epsilon
from eigenveil.errors import Code, InternalError, PeerError, RequestError, round_label
from eigenveil.numerics.encoding import digest, digest_of, field_names

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One row of the ledger. `at` is a Unix time in seconds for people; no decision depends on it."""

    index: int
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


@dataclass(slots=True)
class Ledger:
    """State of a ledger after its entries.

    `spent` never decreases. `gaussian` is True until a reservation is made where other noise is admitted.
    `paid` is the cost of a round's first charge, `times` the number of its charges, and `repeated` the cost
    of a study's later charges of its rounds. `pico_by_study` is the sum of a study's charges as epsilons, in
    1e-12.

    Raises on append:
        RequestError: code `budget-exhausted`, also for noise that the budget does not admit, or a study
            reserved twice.
        PeerError: a round already charged for another query.
        InternalError: a stored row does not continue the chain."""

    budget: PrivacyBudget
    gaussian: bool = True
    head: str = GENESIS
    size: int = 0
    spent: Cost = NO_COST
    reserved: dict[str, Cost] = field(default_factory=dict)
    charged: dict[tuple[str, int], str] = field(default_factory=dict)
    paid: dict[tuple[str, int], Cost] = field(default_factory=dict)
    times: dict[tuple[str, int], int] = field(default_factory=dict)
    repeated: dict[str, Cost] = field(default_factory=dict)
    spent_by_study: dict[str, Cost] = field(default_factory=dict)
    pico_by_study: dict[str, int] = field(default_factory=dict)

    def committed(self) -> Cost:
        return sum(self.reserved.values(), self.spent)

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
        if study not in self.reserved:
            return None
        return self._next(EntryKind.SETTLE, study, 0, "", NO_COST, at)

    def _next(self, kind: EntryKind, study: str, round: int, query: str, cost: Cost, at: int) -> LedgerEntry:
        entry = LedgerEntry(
            index=self.size, kind=kind, study=study, round=round, query=query, micro_rho=cost.micro_rho,
            atto_delta=cost.atto_delta, at=at, previous=self.head, digest="",
        )  # fmt: skip
        entry = replace(entry, digest=_digest(entry))
        self._check(entry, cost)
        return entry

    def _check(self, entry: LedgerEntry, cost: Cost) -> None:
        match entry.kind:
            case EntryKind.RESERVE | EntryKind.RESERVE_GAUSSIAN:
                if entry.study in self.spent_by_study:
                    raise RequestError(Code.CONFLICT, f"study {entry.study[:12]} was reserved already")
                limit = self.budget.limit(gaussian=self._stays_gaussian(entry))
                self._check_fits(self.committed() + cost, limit, "the budget")
            case EntryKind.CHARGE | EntryKind.ATTEMPT:
                left = self.reserved.get(entry.study)
                if left is None:
                    raise RequestError(Code.BUDGET, f"study {entry.study[:12]} has no reservation")
                if entry.kind is EntryKind.CHARGE and (entry.study, entry.round) in self.charged:
                    raise InternalError(
                        Code.STORAGE, f"ledger row {entry.index} charges a round twice; restore the ledger"
                    )
                self._check_fits(cost, left, "the study's reservation")
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
        study, cost, at = entry.study, entry.cost, (entry.study, entry.round)
        self._check(entry, cost)
        self.head, self.size = entry.digest, self.size + 1
        match entry.kind:
            case EntryKind.RESERVE | EntryKind.RESERVE_GAUSSIAN:
                self.gaussian = self._stays_gaussian(entry)
                self.reserved[study] = cost
                self.spent_by_study[study], self.pico_by_study[study] = NO_COST, 0
            case EntryKind.CHARGE | EntryKind.ATTEMPT:
                self.reserved[study] -= cost
                self.spent = self.spent + cost
                self.spent_by_study[study] = self.spent_by_study[study] + cost
                self.pico_by_study[study] += pico_epsilon(entry.micro_rho)
                if at in self.charged:
                    self.repeated[study] = self.repeated.get(study, NO_COST) + cost
                self.charged[at] = entry.query
                self.paid.setdefault(at, cost)
                self.times[at] = 1 + self.times.get(at, 0)
            case EntryKind.SETTLE:
                self.reserved.pop(study, None)


def _digest(entry: LedgerEntry) -> str:
    """Return the digest of a row; numbers are hashed as text: canonical JSON has no integers beyond 2**53."""
    names = entry.study + entry.query
    if not (names.isascii() and names.isalnum()):  # of a damaged row
        values = {name: str(getattr(entry, name)) for name in field_names(LedgerEntry) if name != "digest"}
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
