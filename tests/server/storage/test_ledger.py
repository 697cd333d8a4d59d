"""[P4] [P9] What the coordinator's ledger is really charged for a question of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from eigenveil import barrier
from eigenveil.accounting.budget import PrivacyBudget
from eigenveil.accounting.zcdp import Cost, Neighbours
from eigenveil.errors import Code
from eigenveil.numerics.encoding import frozen
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import total_length
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_server.storage.database import open_store
from tests.core.queries.kinds import QUERIES
from tests.core.recorder import Recorder, in_a_pass, plan_of, query_of
from tests.core.specification import Setting
from tests.support import MemoryStore, refused

PLENTY = Cost(micro_rho=10**9, atto_delta=10**17)


class OnBooks(MemoryStore):
    def __init__(self, books: LedgerStore) -> None:
        super().__init__()
        self.books = books

    def charge(self, round_query: RoundQuery) -> None:
        self.books.charge_round(round_query, lambda change, tip: None)


@pytest.mark.parametrize("name", QUERIES)
def test_the_ledger_is_charged_the_cost_and_nothing_for_later_batches(name: str, tmp_path: Path) -> None:
    plan = plan_of(Neighbours.REPLACE_ONE, 1)
    s = Setting(adds=False, sites=1, micro_rho=500_000, atto_delta=10**12)
    paid, free = in_a_pass(plan, query_of(plan, QUERIES[name], s))
    round_query, store = [paid[-1], *free], open_store(tmp_path / "coordinator.db")
    books = LedgerStore(store.writer, PrivacyBudget(mixed=PLENTY), lambda: 0)
    books.reserve(plan.digest, PLENTY, lambda change: None)
    for query in round_query:
        zeros = frozen([0] * total_length(query.query, 1))
        barrier.release(
            query, zeros, plan.study.federation.sites, plan=plan, journal=OnBooks(books), noise=Recorder()
        )
    entries = LedgerStore(store.reader, PrivacyBudget(mixed=PLENTY), lambda: 0).entries()
    store.close()
    assert [(e.round, e.cost) for e in entries[1:]] == [
        (query.round, Cost(micro_rho=500_000, atto_delta=10**12) if query in paid else Cost(micro_rho=0))
        for query in round_query
    ]
    assert books.spent(plan.digest) == 500_000


def test_a_charge_of_a_settled_study_is_repeated_at_no_cost_and_no_other_is_made(tmp_path: Path) -> None:
    """Its rounds are in the database alone, also after a restart."""
    store, study, query = open_store(tmp_path / "coordinator.db"), "a" * 64, "b" * 64
    books = LedgerStore(store.writer, PrivacyBudget(mixed=PLENTY), lambda: 0)
    books.reserve(study, Cost(micro_rho=9))
    books.charge(study, 0, query, Cost(micro_rho=4))
    books.settle(study)
    ran: list[bool] = []
    for times, again in ((1, books), (2, LedgerStore(store.writer, PrivacyBudget(mixed=PLENTY), lambda: 0))):
        again.charge(study, 0, query, Cost(micro_rho=4), lambda change: ran.append(True))
        assert (ran, again.spent(study), again.charged_queries(study)) == ([True] * times, 4, {0: query})
        for round, other in ((0, "c" * 64), (1, query)):
            with refused(Code.BUDGET, "no reservation"):
                again.charge(study, round, other, Cost(micro_rho=1))
        assert again.charges() == {(study, 0): 1}
    store.close()
