"""What must hold of a federation's books at every moment, whatever was killed, lost or repeated.

A `Snapshot` is what the databases say; a `Witness` compares each with the rules and with every snapshot
before it. It knows nothing of how the daemons work: rows in, faults out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

Place = tuple[str, int]  # a study's digest and a round


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One charge of a ledger."""

    query: str
    micro_rho: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """One stored release."""

    query: str
    micro_rho: int
    present: tuple[str, ...]
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The books at about one moment: the coordinator's, and every site's charges by its name, read before
    the coordinator's (`asked`) and after (`paid`): each is right for one direction of comparison."""

    charged: Mapping[Place, Charge]
    sealed: Mapping[Place, Sealed]
    states: Mapping[str, str]
    bundles: Mapping[str, bytes]
    asked: Mapping[str, Mapping[Place, Charge]]
    paid: Mapping[str, Mapping[Place, Charge]]
    doubled: tuple[str, ...]  # whoever charged a round twice


def read(coordinator: Path, sites: Mapping[str, Path]) -> Snapshot:
    """Read the databases, which their daemons may hold open."""
    doubled: list[str] = []
    asked = {name: _charges(path, name, doubled) for name, path in sites.items()}
    with _opened(coordinator) as books:
        sealed = books.execute("SELECT study, round, query, micro_rho, present, digest FROM releases")
        releases = {(row[0], row[1]): _sealed(*row[2:]) for row in sealed}
        charged = _charged(books, "the coordinator", doubled)
        studies: list[Any] = books.execute("SELECT digest, state, release FROM studies").fetchall()
    return Snapshot(
        charged=charged,
        sealed=releases,
        states={digest: state for digest, state, _ in studies},
        bundles={digest: release for digest, _, release in studies if release is not None},
        asked=asked,
        paid={name: _charges(path, name, doubled) for name, path in sites.items()},
        doubled=tuple(doubled),
    )


@contextmanager
def _opened(path: Path) -> Iterator[apsw.Connection]:
    """One read transaction."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(10_000)
    with closing(connection):
        connection.execute("BEGIN")
        yield connection


def _sealed(query: str, micro_rho: int, present: str, digest: str) -> Sealed:
    return Sealed(query=query, micro_rho=micro_rho, present=tuple(json.loads(present)), digest=digest)


def _charges(path: Path, whose: str, doubled: list[str]) -> dict[Place, Charge]:
    with _opened(path) as books:
        return _charged(books, whose, doubled)


def _charged(books: apsw.Connection, whose: str, doubled: list[str]) -> dict[Place, Charge]:
    select = "SELECT study, round, query, micro_rho FROM ledger WHERE kind = 'charge'"
    rows: list[Any] = books.execute(select).fetchall()
    times = Counter((row[0], row[1]) for row in rows)
    doubled += [
        f"{whose} charged {_said(place)} {count} times" for place, count in times.items() if count > 1
    ]
    return {(study, round): Charge(query=query, micro_rho=price) for study, round, query, price in rows}


def _said(place: Place) -> str:
    return f"{place[0][:12]} round {place[1]}"


@dataclass(slots=True)
class Witness:
    """Everything that was ever seen, and what was wrong with it. `most_open` is the largest number of
    charges without a sealed release that one study ever had: none is allowed [P27]."""

    digests: dict[Place, str] = field(default_factory=dict)
    bundles: dict[str, bytes] = field(default_factory=dict)
    queries: dict[Place, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    most_open: int = 0
    looks: int = 0

    def look(self, now: Snapshot) -> None:
        """Hold one snapshot against the rules and against all before."""
        self.looks += 1
        self._tell(now.doubled)
        for place, sealed in now.sealed.items():
            self._covered(place, sealed, now)
            if self.digests.setdefault(place, sealed.digest) != sealed.digest:
                self._tell([f"{_said(place)} was sealed twice, with different bytes"])
        for study, bundle in now.bundles.items():
            if self.bundles.setdefault(study, bundle) != bundle:
                self._tell([f"the release of study {study[:12]} changed"])
        for lost in (self.digests.keys() - now.sealed.keys()) | (self.bundles.keys() - now.bundles.keys()):
            self._tell([f"{lost} was released and is gone"])
        self._open(now)
        for site, asked in now.asked.items():
            for place, charge in asked.items():
                self._asked(site, place, charge.query, now)
            self._paid_enough(site, now)

    def published(self, study: str, round: int, now: Snapshot) -> None:
        """A watcher was told that this round is sealed: by then it was charged and stored."""
        if (study, round) not in now.sealed:
            self._tell([f"{_said((study, round))} was published and is not sealed"])
        elif (study, round) not in now.charged:
            self._tell([f"{_said((study, round))} was published and is not charged"])

    def _covered(self, place: Place, sealed: Sealed, now: Snapshot) -> None:
        charge = now.charged.get(place)
        if charge is None or charge.query != sealed.query or charge.micro_rho < sealed.micro_rho:
            self._tell([f"under-charge: the coordinator's ledger does not cover {_said(place)}"])
        for site in sealed.present:
            paid = now.paid[site].get(place)
            if paid is None or paid.query != sealed.query:
                self._tell([f"under-charge: {site} is in {_said(place)} and did not charge it"])

    def _paid_enough(self, site: str, now: Snapshot) -> None:
        """In sum, because a site that joins a pass over parts late pays for the pass in another round."""
        for study in now.states:
            due = sum(
                one.micro_rho for (of, _), one in now.sealed.items() if of == study and site in one.present
            )
            if due > sum(one.micro_rho for (of, _), one in now.paid[site].items() if of == study):
                self._tell([f"under-charge: {site} paid less for study {study[:12]} than was released of it"])

    def _asked(self, site: str, place: Place, query: str, now: Snapshot) -> None:
        """Round n + 1 is asked only once release n is out, and with one query for everybody."""
        study, round = place
        if self.queries.setdefault(place, query) != query:
            self._tell([f"{site} was asked another query for {_said(place)} than somebody before"])
        if round and (study, round - 1) not in now.sealed:
            self._tell([f"{site} answered {_said(place)} before round {round - 1} was sealed"])

    def _open(self, now: Snapshot) -> None:
        unsealed = Counter(study for study, round in now.charged if (study, round) not in now.sealed)
        self.most_open = max(self.most_open, *unsealed.values(), 0)
        self._tell(
            f"over-charge: {count} charges of study {study[:12]} are not sealed"
            for study, count in unsealed.items()
        )

    def _tell(self, faults: Iterable[str]) -> None:
        self.faults += [fault for fault in faults if fault not in self.faults]
