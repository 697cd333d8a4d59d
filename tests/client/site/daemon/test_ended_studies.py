"""Memory of a site's daemon after studies that have ended."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum
from typing import Any

from eigenveil.errors import Code
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.study.study import Federation
from eigenveil_client.site.engine import engine
from eigenveil_client.site.policy import Policy
from tests.client.site.stated import work
from tests.client.site.support import SITE, Patch, Stage, a_plan, a_study, ended
from tests.support import refused

# Of every study that was ever reserved: that it is never reserved again, and what it spent. And of those that
# used kept records: a person may withdraw from one until its end.
REMEMBERED = {".store.ledger.ledger.spent_amounts", "._engine._kept._grids.plans"}


def attributes(one: object) -> Iterator[tuple[str, object]]:
    slots = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
    yield from getattr(one, "__dict__", {}).items()
    yield from ((name, getattr(one, name)) for name in slots if hasattr(one, name))


def sizes(one: object, path: str, seen: set[int]) -> Iterator[tuple[str, int]]:
    """Lengths of all containers of `one` and of objects of ours that it holds, by their path."""
    if id(one) in seen or isinstance(one, str | bytes | type | Enum | Plan | Policy):
        return
    seen.add(id(one))
    if isinstance(one, Collection) and not isinstance(one, range | memoryview):
        yield path, len(one)
        for value in one.values() if isinstance(one, dict) else one:
            yield from sizes(value, path, seen)
    if type(one).__module__.startswith(("eigenveil", "tests.")):
        for name, value in attributes(one):
            yield from sizes(value, f"{path}.{name}", seen)


def remembered(worker: object) -> dict[str, int]:
    """The sum of lengths at each path."""
    found: dict[str, int] = {}
    for path, length in sizes(worker, "", set()):
        found[path] = found.get(path, 0) + length
    return found


def run(worker: Any, stage: Stage, number: int) -> Plan:
    plan = a_plan(a_study(name=f"study-{number}", epsilon=0.5, federation=Federation(sites=(SITE, "b"))))
    first, *others = rehearse(plan)
    for message in (work(first, stage.signed(plan)), *map(work, others), ended(plan)):
        worker.work(message)
    return plan


def test_an_ended_study_leaves_one_sum_in_memory(stage: Stage, monkeypatch: Patch) -> None:
    monkeypatch.setattr(engine, "REMEMBERED_PLANS", 1)
    with stage.process() as (store, worker):
        for number in range(2):
            run(worker, stage, number)
        before = remembered(worker)
        plans = [run(worker, stage, number) for number in range(2, 5)]
        grown = {path for path, size in remembered(worker).items() if size > before.get(path, 0)}
        assert ".store.ledger.ledger.spent_amounts" in grown
        assert grown <= REMEMBERED
        ledger = store.ledger.ledger
        assert not any((ledger.charged, ledger.paid, ledger.pico_by_study, ledger.repeated))
        assert len(store.ledger.charged_queries(plans[0].digest)) == len(rehearse(plans[0]))
        with refused(Code.CONFLICT, "reserved already"):
            store.ledger.reserve(plans[0].digest, plans[0].cost, gaussian=True)
