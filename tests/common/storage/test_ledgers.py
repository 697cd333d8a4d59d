"""[P8] One ledger for several processes: each knows what the others have spent before it decides."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from eigenveil.accounting.budget import PrivacyBudget
from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code, InternalError
from eigenveil_common.storage.database import Connection
from eigenveil_common.storage.ledger_store import SCHEMA, LedgerStore, LedgerTotals
from eigenveil_common.storage.sqlite import SqliteDatabase
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


def test_a_reservation_of_one_process_binds_the_others(place: Place) -> None:
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
    assert (first.ledger.spent.micro_rho, ledger(place).ledger) == (10, second.ledger)


@pytest.mark.parametrize("change", [
    "micro_rho = 19", "micro_rho = -20", "atto_delta = 'much'", "kind = 'refund'", "digest = 'x'",
    '"index" = 5',
])  # fmt: skip
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
    assert (store.ledger.size, ledger(place).entries()) == (0, [])
    place.close()


# [P8] The ledger on disk: charges stay, and changed rows are found.


STUDY, OTHER = "a" * 64, "e" * 64


OPENED: list[SqliteDatabase] = []


def open_database(path: Path) -> SqliteDatabase:
    OPENED.append(SqliteDatabase(path, SCHEMA, 1))
    return OPENED[-1]


def open_store(path: Path, budget: Cost = BUDGET) -> LedgerStore:
    return LedgerStore(open_database(path), PrivacyBudget(mixed=budget), lambda: 1_700_000_000)


@pytest.fixture(autouse=True)
def _close_databases() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with one reservation, one charge and a large delta."""
    store = open_store(tmp_path / "state.db")
    store.reserve(STUDY, Cost(micro_rho=50, atto_delta=10**17))
    store.charge(STUDY, 0, QUERY, Cost(micro_rho=20, atto_delta=10**16))
    return tmp_path / "state.db"


def edit(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def test_the_database_syncs_each_commit(path: Path) -> None:
    database = open_database(path)
    assert database.rows("PRAGMA journal_mode")[0][0] == "wal"
    assert database.rows("PRAGMA synchronous")[0][0] == 2  # FULL, in SQLite's own number
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_reservation_under_a_larger_budget_stands(path: Path) -> None:
    first, second = open_store(path, Cost(micro_rho=300, atto_delta=10**18)), open_store(path)
    first.reserve(OTHER, Cost(micro_rho=250))
    with refused(Code.BUDGET):
        second.reserve("c" * 64, Cost(micro_rho=1))
    second.charge(STUDY, 1, OTHER, Cost(micro_rho=1))
    assert (second.ledger.committed().micro_rho, second.ledger.limit.micro_rho) == (300, 100)


def test_a_ledger_put_back_under_a_running_process_stops_it(path: Path) -> None:
    store = open_store(path)
    edit(path, "DROP TRIGGER ledger_is_append_only_delete", 'DELETE FROM ledger WHERE "index" = 1')
    with refused(Code.STORAGE, "row 1", "under this process"):
        store.charge(STUDY, 1, OTHER, Cost(micro_rho=1))


def test_a_write_alongside_an_entry_is_atomic_with_it(path: Path) -> None:
    """`also` shares the entry's transaction: if it fails, nothing was charged, here and on disk."""
    store = open_store(path)

    def fail(_: Connection) -> None:
        raise InternalError(Code.STORAGE, "planted")

    with refused(Code.STORAGE, "planted"):
        store.charge(STUDY, 1, OTHER, Cost(micro_rho=1), also=fail)
    assert store.ledger == open_store(path).ledger
    assert store.ledger.size == 2


def test_totals_are_those_of_the_ledger_after_every_change(path: Path) -> None:
    store, other = open_store(path), open_store(path)
    assert store.totals == LedgerTotals.of(store.ledger)
    assert (store.totals.spent.micro_rho, store.totals.committed.micro_rho) == (20, 50)

    def result(*changes: Callable[[], object]) -> None:
        for change in changes:
            change()
            assert store.totals == LedgerTotals.of(store.ledger)
            assert store.ledger_position == (store.ledger.head, store.ledger.size)

    result(
        lambda: store.charge(STUDY, 1, QUERY, Cost(micro_rho=5)),
        lambda: store.write_alongside(lambda change, ledger_position: None),
        lambda: other.reserve(OTHER, Cost(micro_rho=7)),
        store.refresh,
    )
    assert store.totals.committed.micro_rho == 57
    other.settle(OTHER)
    with refused(Code.BUDGET):  # and what others appended is known from then on
        result(lambda: store.reserve("c" * 64, Cost(micro_rho=1000)))
    assert store.totals == LedgerTotals.of(store.ledger) == other.totals
    result(lambda: store.settle(STUDY))
    assert store.totals.committed == store.totals.spent == Cost(micro_rho=25, atto_delta=10**16)


def test_totals_are_read_while_another_thread_changes_the_ledger(path: Path) -> None:
    """As of before: neither waiting for the lock, nor adding up what changes meanwhile."""
    store = open_store(path)
    before, seen = store.totals, list[LedgerTotals]()

    def also(change: Connection) -> None:
        reader = threading.Thread(target=lambda: seen.append(store.totals))
        reader.start()
        reader.join(60)

    store.reserve(OTHER, Cost(micro_rho=7), also)
    assert (seen, store.totals.committed.micro_rho) == ([before], before.committed.micro_rho + 7)
    with pytest.raises(AttributeError):
        before.spent = store.totals.spent  # type: ignore[misc]
