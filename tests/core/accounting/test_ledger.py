"""[P4] [P8] The ledger against a naive model, in any order of requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from eigenveil.accounting.budget import NoiseRule, PrivacyBudget, budget_for
from eigenveil.accounting.ledger import GENESIS, EntryKind, Ledger, LedgerEntry, replay
from eigenveil.accounting.zcdp import ATTO, NO_COST, Cost
from eigenveil.errors import Code, EigenveilError, InternalError
from eigenveil.numerics.encoding import digest
from tests.support import refused

MOST = Cost(micro_rho=100, atto_delta=10**18)
BUDGET = PrivacyBudget(mixed=MOST)
EXACT = PrivacyBudget(mixed=MOST, gaussian=Cost(micro_rho=115, atto_delta=10**18))

costs = st.builds(Cost, micro_rho=st.integers(0, 60), atto_delta=st.sampled_from([0, 1, 10**17, 6 * 10**17]))
names = st.sampled_from(["a" * 64, "b" * 64, "c" * 64])
rounds = st.integers(0, 3)
queries = st.sampled_from(["d" * 64, "e" * 64])


class Model:
    """Meaning of a ledger, without chain, entries or reservations kept up to date."""

    def __init__(self) -> None:
        self.costs: dict[str, Cost] = {}
        self.charges: dict[tuple[str, int], tuple[str, Cost]] = {}
        self.ended: set[str] = set()
        self.mixed = False

    def limit(self, budget: PrivacyBudget, gaussian: bool) -> Cost:
        """Any noise but Gaussian, admitted once and for ever, leaves the smaller limit."""
        return budget.gaussian if budget.gaussian and gaussian and not self.mixed else budget.mixed

    def spent(self, study: str | None = None) -> Cost:
        found = [c for (name, _), (_, c) in self.charges.items() if study in (None, name)]
        return sum(found, NO_COST)

    def committed(self) -> Cost:
        """The whole price of a running study, what was charged of an ended one."""
        parts = [self.spent(s) if s in self.ended else p for s, p in self.costs.items()]
        return sum(parts, NO_COST)


class LedgerMachine(RuleBasedStateMachine):
    """Each rule asks both; they must agree on the answer, and on the state ever after."""

    budget = BUDGET

    def __init__(self) -> None:
        super().__init__()
        self.ledger, self.model = Ledger(budget=self.budget), Model()
        self.entries: list[LedgerEntry] = []
        self.highest = NO_COST

    def append(self, entry: LedgerEntry | None) -> None:
        if entry is not None:
            self.ledger.apply(entry)
            self.entries.append(entry)

    @rule(study=names, cost=costs, gaussian=st.booleans(), lost=st.booleans())
    def reserve(self, study: str, cost: Cost, gaussian: bool, lost: bool) -> None:
        """Once a study, only what is left, and only noise that is admitted; what was lost was admitted."""
        reserve = partial(self.ledger.restore_reservation if lost else self.ledger.reserve, study, cost, at=1)
        if not (gaussian or lost) and self.budget.gaussian:
            with refused(Code.BUDGET, "admits only Gaussian noise"):
                reserve(gaussian=gaussian)
        elif study in self.model.costs:
            with refused(Code.CONFLICT, "already"):
                reserve(gaussian=gaussian)
        elif not (self.model.committed() + cost).fits(self.model.limit(self.budget, gaussian)):
            with refused(Code.BUDGET, "nothing was charged"):
                reserve(gaussian=gaussian)
        else:
            self.append(reserve(gaussian=gaussian))
            self.model.costs[study] = cost
            self.model.mixed |= not gaussian or not (lost or self.budget.gaussian)

    @rule(study=names, round=rounds, query=queries, cost=costs)
    def charge(self, study: str, round: int, query: str, cost: Cost) -> None:
        """Once a round; the same again is nothing, another query is refused, and so is all once settled."""
        known = self.model.charges.get((study, round))
        running = study in self.model.costs and study not in self.model.ended
        if known is not None and running:
            if known[0] == query:
                assert self.ledger.charge(study, round, query, cost, at=2) is None
            else:
                with refused(Code.PROTOCOL, "another query"):
                    self.ledger.charge(study, round, query, cost, at=2)
        elif not running or not (self.model.spent(study) + cost).fits(self.model.costs[study]):
            with refused(Code.BUDGET):
                self.ledger.charge(study, round, query, cost, at=2)
        else:
            self.append(self.ledger.charge(study, round, query, cost, at=2))
            self.model.charges[study, round] = query, cost

    @rule(study=names)
    def settle(self, study: str) -> None:
        running = study in self.model.costs and study not in self.model.ended
        entry = self.ledger.settle(study, at=3)
        assert (entry is not None) == running
        self.append(entry)
        if running:
            self.model.ended.add(study)

    @rule()
    def restart(self) -> None:
        again = replay(self.budget, self.entries)
        assert again == self.ledger
        self.ledger = again

    @invariant()
    def the_states_agree(self) -> None:
        """Spent, committed and per-study sums, and the head of the chain."""
        assert self.ledger.spent == self.model.spent()
        assert self.ledger.committed() == self.model.committed()
        for study in self.model.costs:
            assert self.ledger.spent_by(study) == self.model.spent(study)
        assert self.ledger.size == len(self.entries)
        assert self.ledger.head == (self.entries[-1].digest if self.entries else GENESIS)

    @invariant()
    def the_budget_holds_and_spending_never_shrinks(self) -> None:
        assert self.ledger.spent.fits(self.ledger.committed())
        assert self.ledger.committed().fits(self.model.limit(self.budget, True))
        assert self.ledger.gaussian is not self.model.mixed
        assert self.highest.fits(self.ledger.spent)
        self.highest = self.ledger.spent


LedgerMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=30)
TestLedger = LedgerMachine.TestCase


class ExactMachine(LedgerMachine):
    budget = EXACT


ExactMachine.TestCase.settings = LedgerMachine.TestCase.settings
TestExactLedger = ExactMachine.TestCase


def test_a_row_under_any_noise_stays_so_and_a_later_rule_refunds_no_budget() -> None:
    """A ledger that ever took anything in under `any`, Gaussian noise too, keeps the limit of zCDP for ever;
    and one that holds more than that in mu does not open to other noise, until the budget is raised."""
    ledger, entries = Ledger(budget=BUDGET), []
    for study in "ab":
        entries.append(ledger.reserve(study * 64, Cost(micro_rho=50), at=1, gaussian=True))
        ledger.apply(entries[-1])
    assert replay(EXACT, entries).limit == MOST
    assert not replay(EXACT, entries).exact
    exact = Ledger(budget=EXACT)
    full = exact.reserve("a" * 64, Cost(micro_rho=115), at=1, gaussian=True)
    assert replay(EXACT, [full]).exact
    with refused(Code.BUDGET, "115 %", 'raise budget_epsilon, or set noise back to "gaussian"'):
        replay(BUDGET, [full])
    small = exact.reserve("a" * 64, Cost(micro_rho=99), at=1, gaussian=True)
    opened = replay(BUDGET, [small])
    assert opened.gaussian
    with refused(Code.BUDGET):
        opened.reserve("b" * 64, Cost(micro_rho=2), at=2, gaussian=True)
    opened.apply(opened.reserve("b" * 64, Cost(micro_rho=1), at=2, gaussian=True))
    assert not opened.gaussian


@pytest.mark.parametrize("admits", list(NoiseRule))
def test_the_delta_of_mechanisms_is_part_of_either_limit(admits: NoiseRule) -> None:
    budget = budget_for(1.0, 1e-6, 0.25, admits)
    assert [budget.limit(gaussian=either).atto_delta for either in (True, False)] == [ATTO // 4] * 2


def chain() -> list[LedgerEntry]:
    ledger = Ledger(budget=BUDGET)
    entries: list[LedgerEntry] = []

    def retain(entry: LedgerEntry | None) -> None:
        assert entry is not None
        ledger.apply(entry)
        entries.append(entry)

    retain(ledger.reserve("a" * 64, Cost(micro_rho=40, atto_delta=10**17), at=1))
    retain(ledger.reserve("b" * 64, Cost(micro_rho=50), at=2))
    retain(ledger.charge("a" * 64, 0, "d" * 64, Cost(micro_rho=30, atto_delta=10**17), at=3))
    retain(ledger.charge("b" * 64, 0, "e" * 64, Cost(micro_rho=10), at=4))
    retain(ledger.settle("a" * 64, at=5))
    retain(ledger.charge("b" * 64, 1, "e" * 64, Cost(micro_rho=10), at=6))
    return entries


FORGED: dict[str, list[Any]] = {
    "index": [0, 7],
    "kind": [EntryKind.RESERVE, EntryKind.SETTLE],
    "study": ["c" * 64, ""],
    "round": [9, 2**60],
    "query": ["0" * 64],
    "micro_rho": [0, 1, 2**60],
    "atto_delta": [5, 10**30],
    "at": [0, 2**62],
    "previous": ["0" * 64, "f" * 64],
    "digest": ["0" * 64],
}


@pytest.mark.parametrize(("field", "value"), [(f, v) for f, values in FORGED.items() for v in values])
@pytest.mark.parametrize("row", [2, 5])
def test_a_changed_field_of_any_row_breaks_the_chain(row: int, field: str, value: Any) -> None:
    entries = chain()
    entries[row] = entries[row]._replace(**{field: value})
    with refused(Code.STORAGE, "chain"):
        replay(BUDGET, entries)


@given(st.integers(0, 5), st.integers(0, 5))
def test_rows_removed_or_moved_break_the_chain(row: int, other: int) -> None:
    entries = chain()
    if row < 5:
        with refused(Code.STORAGE, "chain"):
            replay(BUDGET, entries[:row] + entries[row + 1 :])
    if row != other:
        entries[row], entries[other] = entries[other], entries[row]
        with refused(Code.STORAGE, "chain"):
            replay(BUDGET, entries)


@pytest.mark.parametrize("change", [{"previous": "0" * 64}, {"index": 6}, {"index": 4}])
def test_a_row_with_a_digest_of_its_own_must_still_continue_the_chain(change: dict[str, Any]) -> None:
    forger = replay(BUDGET, chain()[:5])
    forger.head = change.get("previous", forger.head)
    forger.size = change.get("index", forger.size)
    forged = forger.charge("b" * 64, 1, "e" * 64, Cost(micro_rho=1), at=6)
    assert forged is not None
    with refused(Code.STORAGE, "chain"):
        replay(BUDGET, [*chain()[:5], forged])


@pytest.mark.parametrize(
    ("lowered", "words"),
    [
        ({"micro_rho": 1}, ("8000 % of it: raise budget_epsilon",)),
        ({"atto_delta": 0}, ("more than nothing of it: raise budget_mechanism_delta",)),
    ],
)
def test_a_budget_lowered_below_what_is_committed_is_named(
    lowered: dict[str, int], words: tuple[str, ...]
) -> None:
    with refused(Code.BUDGET, *words):
        replay(PrivacyBudget(mixed=replace(MOST, **lowered)), chain())


def test_a_refused_request_changes_nothing() -> None:
    ledger = replay(BUDGET, chain())
    before = replay(BUDGET, chain())
    requests: list[Callable[[], LedgerEntry | None]] = [
        lambda: ledger.reserve("c" * 64, Cost(micro_rho=21), at=9),
        lambda: ledger.reserve("c" * 64, Cost(micro_rho=1, atto_delta=10**18), at=9),
        lambda: ledger.reserve("a" * 64, NO_COST, at=9),
        lambda: ledger.charge("b" * 64, 2, "d" * 64, Cost(micro_rho=31), at=9),
        lambda: ledger.charge("b" * 64, 1, "d" * 64, NO_COST, at=9),
        lambda: ledger.charge("a" * 64, 3, "d" * 64, NO_COST, at=9),
    ]
    for request in requests:
        with pytest.raises(EigenveilError):
            request()
        assert ledger == before


def test_a_forged_chain_cannot_charge_one_round_twice() -> None:
    ledger = replay(BUDGET, chain())
    del ledger.charged["b" * 64, 1]
    second = ledger.charge("b" * 64, 1, "f" * 64, Cost(micro_rho=1), at=7)
    assert second is not None
    with pytest.raises(InternalError, match="twice"):
        replay(BUDGET, [*chain(), second])


def test_repeated_attempts_of_all_rounds_cost_no_more_than_their_pool() -> None:
    """[P35] A round's first attempt is none of them, whatever it costs, and a restart forgets none."""
    ledger, study, pool = Ledger(budget=BUDGET), "a" * 64, Cost(micro_rho=10)
    rows = [ledger.reserve(study, Cost(micro_rho=60), at=1, gaussian=True)]
    ledger.apply(rows[0])
    attempt = partial(ledger.attempt, study, query="d" * 64, pool=pool, at=2)
    for round, cost in ((0, 20), (0, 4), (1, 15), (1, 6), (0, 0)):
        rows.append(attempt(round, cost=Cost(micro_rho=cost)))
        ledger.apply(rows[-1])
    assert ledger.repeated[study] == pool
    for again in (ledger, replay(BUDGET, rows)):
        assert again == ledger
        with refused(Code.BUDGET, "set aside for repeated attempts"):
            again.attempt(study, 0, "d" * 64, Cost(micro_rho=1), pool=pool, at=3)
        again.attempt(study, 2, "d" * 64, Cost(micro_rho=12), pool=pool, at=3)


@pytest.mark.parametrize("study", ["a" * 64, "", 'x","zz":"', "back\\slash", "a\nb", "Zürich"])
def test_a_row_is_hashed_as_canonical_json_of_texts_whatever_it_holds(study: str) -> None:
    """Rows of hexadecimal names are written without a JSON encoder; no quote may make two rows alike."""
    ledger = Ledger(budget=BUDGET)
    row = ledger.reserve(study, Cost(micro_rho=7, atto_delta=10**17), at=3)
    values = {name: str(getattr(row, name)) for name in LedgerEntry._fields if name != "digest"}
    assert row.digest == digest("ledger", values | {"kind": row.kind.value})
