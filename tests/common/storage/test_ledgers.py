"""[P8] One ledger, several processes: what one has spent the others know before they decide."""

from __future__ import annotations

from pathlib import Path

import pytest

from eigenveil.accounting.budget import PrivacyBudget
from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code
from eigenveil_common.storage.database import Connection
from eigenveil_common.storage.ledger_store import LedgerStore
from tests.common.storage.places import LEDGER, Place
from tests.support import refused

BUDGET = Cost(micro_rho=100, atto_delta=10**20)
A, B, QUERY = "a" * 64, "b" * 64, "d" * 64


def ledger(place: Place) -> LedgerStore:
    return LedgerStore(place.open(LEDGER), PrivacyBudget(mixed=BUDGET), lambda: 1_700_000_000)


def test_a_ledger_reopens_as_it_was(place: Place) -> None:
    first = ledger(place)
    first.reserve(A, Cost(micro_rho=50, atto_delta=10**19))  # beyond 63 bits
    first.charge(A, 0, QUERY, Cost(micro_rho=20))
    assert ledger(place).ledger == first.ledger


def test_what_one_reserves_the_other_cannot(place: Place) -> None:
    first, second = ledger(place), ledger(place)
    first.reserve(A, Cost(micro_rho=70))
    with refused(Code.BUDGET):
        second.reserve(B, Cost(micro_rho=31))
    second.reserve(B, Cost(micro_rho=30))
    first.charge(B, 0, QUERY, Cost(micro_rho=10))
    first.settle(B)
    second.reserve("c" * 64, Cost(micro_rho=20))
    with refused(Code.BUDGET, "has no reservation"):
        second.charge(B, 1, QUERY, Cost(micro_rho=1))
    first.charge(B, 0, QUERY, Cost(micro_rho=10))
    assert first.ledger.spent.micro_rho == 10
    assert ledger(place).ledger == second.ledger


def test_the_ledger_is_append_only(place: Place) -> None:
    store = ledger(place)
    store.reserve(A, Cost(micro_rho=1))
    database = place.open(LEDGER)
    for statement in ("UPDATE ledger SET micro_rho = 0", "DELETE FROM ledger"):
        with refused(Code.STORAGE, "append-only"), database.transaction() as change:
            change.execute(statement)


def test_not_even_truncated(url: str) -> None:
    place = Place(url)
    ledger(place).reserve(A, Cost(micro_rho=1))
    with refused(Code.STORAGE, "append-only"), place.opened[0].transaction() as change:
        change.execute("TRUNCATE ledger")
    place.close()


@pytest.mark.parametrize(
    "change",
    [
        "micro_rho = 19",
        "micro_rho = -20",
        "atto_delta = 'much'",
        "kind = 'refund'",
        "digest = 'x'",
        '"index" = 5',
    ],
)
def test_a_tampered_row_stops_the_start(place: Place, change: str) -> None:
    ledger(place).reserve(A, Cost(micro_rho=20))
    trigger = "ledger_is_append_only_update"
    with place.opened[0].transaction() as intruder:
        intruder.execute(f"DROP TRIGGER {trigger}" if place.is_file else f"DROP TRIGGER {trigger} ON ledger")
        intruder.execute(f"UPDATE ledger SET {change}")
    with refused(Code.STORAGE, "restore the ledger"):
        ledger(place)


def test_a_process_that_lost_its_database_writes_nothing_more(tmp_path: Path, url: str) -> None:
    """The server ends the connection in the middle of a transaction."""
    place = Place(url)
    store = ledger(place)
    pid = place.opened[0].rows("SELECT pg_backend_pid()")[0][0]
    other = place.open(LEDGER)

    def cut(_: Connection) -> None:
        other.rows("SELECT pg_terminate_backend(?)", (pid,))

    with refused(Code.STORAGE):
        store.reserve(A, Cost(micro_rho=1), also=cut)
    with refused(Code.STORAGE):
        store.reserve(A, Cost(micro_rho=1))
    assert store.ledger.size == 0
    assert ledger(place).entries() == []
    place.close()
