"""Accounts of a federation at rest: what each site charged, by its own ledger, is what the coordinator asked
of it, and each study has ended as it states.

A site that answered too late has charged an answer that is in no release: the coordinator opened that round
with that query, and names the site absent. Nothing else may differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from eigenveil.reporting.verify import load_release, verify_release
from tests.torture.model import Place, Snapshot, opened

ENDED = ("released", "failed", "cancelled")
ROUNDS = "SELECT study, round, query_digest FROM rounds"
STATES = "SELECT digest, state, failure, micro_rho FROM studies"
UNSETTLED = (
    "SELECT COUNT(DISTINCT study) FROM ledger WHERE kind LIKE 'reserve%' "
    "AND study NOT IN (SELECT study FROM ledger WHERE kind = 'settle')"
)
LEFT = "SELECT DISTINCT study, round FROM egress WHERE kind NOT IN ('decline', 'ready')"


class Account(NamedTuple):
    """Faults, states of the studies, and answers that were charged and are in no release."""

    faults: list[str]
    states: Counter[str]
    late: int


def unsettled(books: Path | str) -> int:
    """Studies whose reservation a ledger still has."""
    with opened(books) as found:
        ((count,),) = found.execute(UNSETTLED).fetchall()
    return int(count)


def account(coordinator: Path | str, sites: Mapping[str, Path], now: Snapshot, known: Any) -> Account:
    """`now` has the ledgers, read at rest; `known` are the keys of releases."""
    with opened(coordinator) as books:
        rounds = {(study, round): query for study, round, query in books.execute(ROUNDS).fetchall()}
        studies = books.execute(STATES).fetchall()
    faults, late = [], 0
    for name, path in sites.items():
        wrong, more = _site(name, path, now, rounds)
        faults += wrong
        late += more
    faults += [
        fault
        for digest, state, failure, cost in studies
        for fault in _study(digest, state, failure, cost, now)
    ]
    for bundle in now.bundles.values():
        verify_release(load_release(bundle), known)
    faults += [
        f"{one} has {count} reservations of studies that are over"
        for one, count in {name: unsettled(path) for name, path in sites.items()}.items()
        if count
    ]
    if count := unsettled(coordinator):
        faults.append(f"the coordinator has {count} reservations of studies that are over")
    return Account(faults, Counter(state for _, state, _, _ in studies), late)


def _site(name: str, path: Path, now: Snapshot, rounds: Mapping[Place, str]) -> tuple[list[str], int]:
    """Faults of a site's two ledgers, and how many of its charges are in no release."""
    charged, faults = now.paid[name], list[str]()
    with opened(path) as books:
        left = {(study, round) for study, round in books.execute(LEFT).fetchall()}
    due = {place: one for place, one in now.sealed.items() if name in one.present}
    for place, charge in charged.items():
        if rounds.get(place) != charge.query:
            faults.append(f"{name} charged {place[0][:12]} round {place[1]}, which was never asked")
        if place in due and (charge.micro_rho, charge.times) != (due[place].micro_rho, 1):
            faults.append(f"{name} charged {charge.micro_rho} for {place[0][:12]} round {place[1]}")
    faults += [f"{name} did not charge {place[0][:12]}" for place in due.keys() - charged.keys()]
    faults += [f"{name} sent and did not charge {place[0][:12]}" for place in left - charged.keys()]
    faults += [f"{name} charged and did not write down {place[0][:12]}" for place in charged.keys() - left]
    return faults, len(charged.keys() - due.keys())


def _study(digest: str, state: str, failure: str, cost: int, now: Snapshot) -> list[str]:
    """Faults of a study's end and of what the coordinator charged for it."""
    found, name = [], digest[:12]
    charged, sealed = (
        sum(one.micro_rho for (study, _), one in entries.items() if study == digest)
        for entries in (now.charged, now.sealed)
    )
    if state not in ENDED or (state != "released" and not failure):
        found.append(f"study {name} is {state}, {failure or 'without a reason'}")
    if not charged == sealed <= cost:
        found.append(f"study {name} may cost {cost}, {sealed} are released and {charged} are charged")
    if state == "released" and digest not in now.bundles:
        found.append(f"the release of study {name} is lost")
    return found
