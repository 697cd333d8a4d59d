"""Check 3: many clients in two processes spend one budget at once; it admits what it admits."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from eigenveil.accounting.budget import PrivacyBudget
from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code, RequestError
from eigenveil_common.storage.database import Database
from eigenveil_common.storage.ledger_store import LedgerStore
from tests.common.storage import cluster
from tests.common.storage.places import LEDGER, Place

PROCESSES, CLIENTS = 2, 32
ONE = Cost(micro_rho=1)
SHARED, QUERY = "f" * 64, "d" * 64
Charge = Callable[[int, int], None]  # of a client, its n-th


def exact(database: Database, budget: int) -> Charge:
    """As the product does it. Even clients charge one study's reservation, which is half of the budget;
    odd ones reserve and charge studies of their own from the other half."""
    store = LedgerStore(database, PrivacyBudget(mixed=Cost(micro_rho=budget)), lambda: 0)

    def charge(client: int, number: int) -> None:
        place = client * 1_000_000 + number
        study = SHARED if client % 2 == 0 else f"{place:064x}"
        if study != SHARED:
            store.reserve(study, ONE)
        store.charge(study, place, QUERY, ONE)

    return charge


def careless(database: Database, budget: int) -> Charge:
    """The positive control: it decides on what is spent before its transaction begins."""

    def charge(client: int, number: int) -> None:
        spent = database.rows("SELECT COUNT(*) FROM ledger WHERE kind = 'charge'")[0][0]
        if spent >= budget:
            raise RequestError(Code.BUDGET, "nothing is left")
        time.sleep(0.02)  # so that somebody is always in between
        with database.transaction() as change:
            change.execute(
                "INSERT INTO ledger SELECT COALESCE(MAX(\"index\"), 0) + 1, 'charge', ?, 0, '', 1, '0', 0, "
                "?, ? FROM ledger",
                (SHARED, f"{client}/{number}", f"{client}/{number}"),
            )

    return charge


STORES = {"exact": exact, "careless": careless}


def _process(kind: str, where: Path | str, process: int, tries: int, budget: int) -> int:
    place = Place(where)
    charge = STORES[kind](place.open(LEDGER), budget)
    start = threading.Barrier(CLIENTS // PROCESSES)

    def client(number: int) -> int:
        start.wait()
        return sum(_succeeds(charge, number, one) for one in range(tries))

    with ThreadPoolExecutor(CLIENTS // PROCESSES) as pool:
        done = sum(pool.map(client, range(process, CLIENTS, PROCESSES)))
    place.close()
    return done


def _succeeds(charge: Charge, client: int, number: int) -> bool:
    try:
        charge(client, number)
    except RequestError as problem:
        if problem.code is not Code.BUDGET:
            raise
        return False
    return True


def spend(kind: str, where: Path | str, tries: int, budget: int) -> tuple[int, int]:
    """Let all clients try `tries` charges of 1; how many were told yes, and how many are in the ledger."""
    place = Place(where)
    database = place.open(LEDGER)
    if kind == "exact":
        store = LedgerStore(database, PrivacyBudget(mixed=Cost(micro_rho=budget)), lambda: 0)
        store.reserve(SHARED, Cost(micro_rho=budget // 2))
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        lines = [(kind, where, process, tries, budget) for process in range(PROCESSES)]
        result = sum(pool.starmap(_process, lines))
    if kind == "exact":
        stored = LedgerStore(
            database, PrivacyBudget(mixed=Cost(micro_rho=budget)), lambda: 0
        ).ledger.spent.micro_rho
    else:
        stored = database.rows("SELECT COUNT(*) FROM ledger WHERE kind = 'charge'")[0][0]
    place.close()
    return result, stored


@contextmanager
def places(folder: Path) -> Iterator[dict[str, Callable[[], Path | str]]]:
    """By the name of each database, how to get an empty one."""
    with cluster.running() as server:
        files = iter(range(1_000))
        yield {"SQLite": lambda: folder / f"{next(files)}.db", "PostgreSQL": server.database}


def run(folder: Path, scale: float) -> tuple[list[str], str]:
    if cluster.missing():
        return [cluster.missing()], ""
    budget, tries = max(20, 2 * round(500 * scale)), max(20, round(500 * scale))
    found, figures = [], []
    with places(folder) as empty:
        for name, new in empty.items():
            result, stored = spend("exact", new(), tries, budget)
            over, _ = spend("careless", new(), 20, 20)
            if not (result == stored == budget and over > 20):
                found.append(f"{name}: {result} admitted")
            figures.append(f"{name} {stored} of {budget} (control: {over} of 20)")
    return found, f"{CLIENTS} x {tries} charges: {', '.join(figures)}"
