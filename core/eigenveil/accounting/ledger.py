"""The budget ledger as a pure value machine: reserve, charge, settle; hash-chained, append-only.

Each side keeps one (the coordinator for the federation's data set, every site for its own), so that a
coordinator restored from an old backup is refunded nothing [P8]. The
caller stores the entries durably; the same entries replayed give the same state, or are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from enum import Enum

from eigenveil.accounting.budget import Budget
from eigenveil.accounting.zcdp import NOTHING, Cost, pico_epsilon
from eigenveil.errors import Code, InternalError, PeerError, RequestError, spoken
from eigenveil.numerics.encoding import digest

GENESIS = "0" * 64
LOSS, OWN_DELTA = "budget_epsilon", "budget_own_delta"  # of every daemon's configuration


class EntryKind(Enum):
    """`reserve` sets a study's whole price aside, and so does `reserve-gaussian` where nothing but Gaussian
    noise was admitted; `charge` spends part of it for one round, for ever, and `attempt` for one attempt at a
    masked round, which may have several; `settle` ends the study and frees what was not charged."""

    RESERVE = "reserve"
    RESERVE_GAUSSIAN = "reserve-gaussian"
    CHARGE = "charge"
    ATTEMPT = "attempt"
    SETTLE = "settle"

    @property
    def spends(self) -> bool:
        """Whether a row of this kind is part of what was spent."""
        return self in (EntryKind.CHARGE, EntryKind.ATTEMPT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One row of the ledger. `at` is Unix time in seconds, for people; no decision rests on it."""

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


BODY = tuple(one.name for one in fields(Entry) if one.name != "digest")  # what a row's digest is of


@dataclass(slots=True)
class Ledger:
    """The state that entries add up to. `spent` never decreases; `gaussian` until anything was set
    aside while other noise was admitted; `paid` is what a round first cost and `times` how often it was
    charged; `pico_by_study` adds a study's charges up as epsilons, in 1e-12.

    Raises on append:
        RequestError: code `budget-exhausted`, also for noise that the budget does not admit, or a study
            reserved twice.
        PeerError: a round already charged for another query.
        InternalError: a stored row does not continue the chain.
    """

    budget: Budget
    gaussian: bool = True
    head: str = GENESIS
    size: int = 0
    spent: Cost = NOTHING
    reserved: dict[str, Cost] = field(default_factory=dict)
    charged: dict[tuple[str, int], str] = field(default_factory=dict)
    paid: dict[tuple[str, int], Cost] = field(default_factory=dict)
    times: dict[tuple[str, int], int] = field(default_factory=dict)
    spent_by_study: dict[str, Cost] = field(default_factory=dict)
    pico_by_study: dict[str, int] = field(default_factory=dict)

    def committed(self) -> Cost:
        return sum(self.reserved.values(), self.spent)

    @property
    def limit(self) -> Cost:
        """All that may be committed, as far as it is known what will be asked."""
        return self.budget.limit(gaussian=self.gaussian)

    @property
    def exact(self) -> bool:
        """Whether the budget holds in mu: nothing but Gaussian noise could ever be charged, or can be."""
        return self.gaussian and self.budget.gaussian is not None

    def reserve(self, study: str, cost: Cost, *, at: int, gaussian: bool = False) -> Entry:
        """The entry that sets `cost` aside for `study`; `gaussian`: all its noise is.

        Where other noise is admitted, the row is as of any: its analyst could have chosen other, by the
        results so far, so what it is part of never adds up in mu.
        """
        if not gaussian and self.budget.gaussian is not None:
            raise RequestError(
                Code.BUDGET,
                "this budget is for Gaussian noise alone, and the study asks for other noise; nothing was "
                'charged: choose an algorithm without it and a delta above 0, or have noise = "any" admitted',
            )
        return self.reserve_lost(study, cost, at=at, gaussian=self.budget.gaussian is not None)

    def reserve_lost(self, study: str, cost: Cost, *, at: int, gaussian: bool) -> Entry:
        """The same for what was admitted before and whose rows are lost, whatever is admitted now."""
        kind = EntryKind.RESERVE_GAUSSIAN if gaussian else EntryKind.RESERVE
        return self._next(kind, study, 0, "", cost, at)

    def charge(self, study: str, round: int, query: str, cost: Cost, *, at: int) -> Entry | None:
        """The entry that spends `cost` for a round; None if exactly this was charged already."""
        known = self.charged.get((study, round))
        if known == query:
            return None
        if known is not None:
            raise PeerError(
                Code.PROTOCOL,
                f"{spoken(round)} of study {study[:12]} was already charged for another query",
            )
        return self._next(EntryKind.CHARGE, study, round, query, cost, at)

    def attempt(self, study: str, round: int, query: str, cost: Cost, *, at: int) -> Entry:
        """The entry that spends `cost` for an attempt at a masked round, beside what others at it have spent:
        whoever calls sees to it that no attempt is charged twice, or never."""
        if self.charged.get((study, round), query) != query:
            raise PeerError(
                Code.PROTOCOL,
                f"{spoken(round)} of study {study[:12]} was already charged for another query",
            )
        return self._next(EntryKind.ATTEMPT, study, round, query, cost, at)

    def settle(self, study: str, *, at: int) -> Entry | None:
        """The entry that ends `study`; None if it is not open."""
        if study not in self.reserved:
            return None
        return self._next(EntryKind.SETTLE, study, 0, "", NOTHING, at)

    def _next(self, kind: EntryKind, study: str, round: int, query: str, cost: Cost, at: int) -> Entry:
        body = {
            "index": self.size, "kind": kind.value, "study": study, "round": round, "query": query,
            "micro_rho": cost.micro_rho, "atto_delta": cost.atto_delta, "at": at, "previous": self.head,
        }  # fmt: skip
        entry = Entry(**{**body, "kind": kind}, digest=_digest(body))  # type: ignore[arg-type]
        self._check(entry)
        return entry

    def _check(self, entry: Entry) -> None:
        match entry.kind:
            case EntryKind.RESERVE | EntryKind.RESERVE_GAUSSIAN:
                if entry.study in self.spent_by_study:
                    raise RequestError(Code.CONFLICT, f"study {entry.study[:12]} was reserved already")
                limit = self.budget.limit(gaussian=self._stays_gaussian(entry))
                self._check_fits(self.committed() + entry.cost, limit, "the budget")
            case EntryKind.CHARGE | EntryKind.ATTEMPT:
                left = self.reserved.get(entry.study)
                if left is None:
                    raise RequestError(Code.BUDGET, f"study {entry.study[:12]} holds no reservation")
                if entry.kind is EntryKind.CHARGE and (entry.study, entry.round) in self.charged:
                    raise InternalError(
                        Code.STORAGE,
                        f"ledger row {entry.index} charges a round twice; restore the ledger",
                    )
                self._check_fits(entry.cost, left, "the study's reservation")
            case EntryKind.SETTLE:
                pass

    def _stays_gaussian(self, reserving: Entry) -> bool:
        return self.gaussian and reserving.kind is EntryKind.RESERVE_GAUSSIAN

    @staticmethod
    def _check_fits(cost: Cost, budget: Cost, name: str) -> None:
        if not cost.fits(budget):
            key, much = _beyond(cost, budget)
            raise RequestError(Code.BUDGET, f"{much} of {name} would exceed it ({key}); nothing was charged")

    def apply(self, entry: Entry) -> None:
        """Take one entry into the state, after checking that it continues the chain and is allowed."""
        body = {name: getattr(entry, name) for name in BODY} | {"kind": entry.kind.value}
        intact = entry.index == self.size and entry.previous == self.head and entry.digest == _digest(body)
        if not intact:
            raise InternalError(
                Code.STORAGE,
                f"ledger row {entry.index} does not continue the chain; restore the ledger",
            )
        self._check(entry)
        self.head, self.size = entry.digest, self.size + 1
        match entry.kind:
            case EntryKind.RESERVE | EntryKind.RESERVE_GAUSSIAN:
                self.gaussian = self._stays_gaussian(entry)
                self.reserved[entry.study] = entry.cost
                self.spent_by_study[entry.study], self.pico_by_study[entry.study] = NOTHING, 0
            case EntryKind.CHARGE | EntryKind.ATTEMPT:
                self.reserved[entry.study] -= entry.cost
                self.spent = self.spent + entry.cost
                self.spent_by_study[entry.study] = self.spent_by_study[entry.study] + entry.cost
                self.pico_by_study[entry.study] += pico_epsilon(entry.micro_rho)
                self.charged[entry.study, entry.round] = entry.query
                self.paid.setdefault((entry.study, entry.round), entry.cost)
                self.times[entry.study, entry.round] = 1 + self.times.get((entry.study, entry.round), 0)
            case EntryKind.SETTLE:
                self.reserved.pop(entry.study, None)


def _digest(body: dict[str, object]) -> str:
    """Numbers are hashed as decimal text: canonical JSON has no integers beyond 2**53."""
    return digest("ledger", {key: str(value) for key, value in body.items()})


def replay(budget: Budget, entries: Iterable[Entry]) -> Ledger:
    """The ledger that stored `entries` add up to.

    Raises:
        InternalError: the chain is broken.
        RequestError: code `budget-exhausted`, if the budget was lowered below what is committed, or no longer
            holds as much because other noise than Gaussian is admitted.
    """
    rows = list(entries)
    # What was settled long ago may have had a larger budget: only what is committed now must fit.
    most = Cost(micro_rho=sum(row.micro_rho for row in rows), atto_delta=sum(row.atto_delta for row in rows))
    ledger = Ledger(budget=Budget(mixed=most))
    for row in rows:
        ledger.apply(row)
    ledger.budget = budget
    committed = ledger.committed()
    if not committed.fits(ledger.limit):
        key, much = _beyond(committed, ledger.limit)
        raise RequestError(
            Code.BUDGET,
            f"the configured budget is below what is already spent or set aside, {much} of it: raise {key}"
            + (', or set noise back to "gaussian"' if ledger.gaussian and budget.gaussian is None else ""),
        )
    return ledger


def _beyond(cost: Cost, budget: Cost) -> tuple[str, str]:
    """The first column in which `cost` is beyond `budget`: the key that states it, and by how much."""
    loss = cost.micro_rho > budget.micro_rho
    key = LOSS if loss else OWN_DELTA
    much, most = (cost.micro_rho, budget.micro_rho) if loss else (cost.atto_delta, budget.atto_delta)
    return key, f"{-(-100 * much // most)} %" if most else "more than nothing"
