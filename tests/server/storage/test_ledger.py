"""[P4] [P9] What the coordinator's ledger is really charged for a question of each kind."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from eigenveil import barrier
from eigenveil.accounting.budget import PrivacyBudget
from eigenveil.accounting.zcdp import Cost, Neighbours
from eigenveil.numerics.encoding import frozen
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import total_length
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_server.metrics import _StateCollector
from eigenveil_server.rpc.responses import federation_budget
from eigenveil_server.storage.database import open_store
from tests.core.recorder import QUERIES, Recorder, in_a_pass, plan_of, query_of
from tests.core.specification import Setting
from tests.server.rig import made
from tests.support import MemoryStore

PLENTY = Cost(micro_rho=10**9, atto_delta=10**17)


class OnBooks(MemoryStore):
    """A journal that charges the coordinator's books."""

    def __init__(self, books: LedgerStore) -> None:
        super().__init__()
        self.books = books

    def charge(self, round_query: RoundQuery) -> None:
        """Durable."""
        self.books.charge_round(round_query, lambda change, tip: None)


@pytest.mark.parametrize("name", QUERIES)
def test_the_books_are_charged_the_price_and_nothing_for_later_parts(name: str, tmp_path: Path) -> None:
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


def test_what_is_told_of_the_budget_reads_no_ledger_that_another_thread_may_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = made(tmp_path / "c", budget_epsilon=10.0)
    with closing(open_store(config.store)) as store:
        books = LedgerStore(store.writer, config.budget, lambda: 0)
        books.reserve("a" * 64, Cost(micro_rho=7), lambda change: None)
        books.charge("a" * 64, 0, "b" * 64, Cost(micro_rho=3))
        monkeypatch.setattr(books, "ledger", None)
        result = federation_budget(SimpleNamespace(ledger=books), 1e-6)  # type: ignore[arg-type]
        assert result.committed_micro_rho == 7
        (budget, *_) = _StateCollector(config, store, books).collect()
        parts = {one.labels["part"]: one.value for one in budget.samples}
        assert (parts["spent"], parts["reserved"], parts["total"]) == (3, 4, result.micro_rho)
