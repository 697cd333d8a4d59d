"""Invariants of a federation's books at every moment, whatever was killed, lost or repeated.

A `Snapshot` is what the databases say; a `Witness` compares each with the rules and with every snapshot
before it. It knows nothing of how the daemons work: rows in, faults out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import psycopg

Place = tuple[str, int]  # a study's digest and a round
Tried = Mapping[Place, Mapping[int, str]]  # the digest of each attempt at a masked round, by its number


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """Charge of a ledger for a round, and its number: a masked one once for each attempt at it."""

    query: str
    micro_rho: int
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedRelease:
    query: str
    micro_rho: int
    present: tuple[str, ...]
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The books at about one moment: the coordinator's, and every site's charges by its name, read before
    the coordinator's (`before`) and after (`paid`): each is right for one direction of comparison."""

    charged: Mapping[Place, Charge]
    sealed: Mapping[Place, SealedRelease]
    states: Mapping[str, str]
    bundles: Mapping[str, bytes]
    before: Mapping[str, Mapping[Place, Charge]]
    paid: Mapping[str, Mapping[Place, Charge]]
    doubled: tuple[str, ...]  # whoever charged a round twice
    fixed: Tried = field(default_factory=dict)  # by the coordinator
    members: Mapping[Place, tuple[str, ...]] = field(default_factory=dict)  # of the latest attempt
    answered: Mapping[str, Tried] = field(default_factory=dict)  # by each site, read before the coordinator


def read(coordinator: Path | str, sites: Mapping[str, Path]) -> Snapshot:
    doubled: list[str] = []
    before, answered = {}, {}
    for name, path in sites.items():
        with opened(path) as books:
            before[name], answered[name] = _charged(books, name, doubled), _tried(books, "plan")
    with opened(coordinator) as books:
        sealed = books.execute("SELECT study, round, query, micro_rho, present, digest FROM releases")
        releases = {(row[0], row[1]): _sealed(*row[2:]) for row in sealed}
        charged, fixed = _charged(books, "the coordinator", doubled), _tried(books, "study")
        last = books.execute("SELECT study, round, signed_json FROM attempts ORDER BY number")
        members = {(row[0], row[1]): tuple(sorted(json.loads(row[2])["members"])) for row in last}
        studies: list[Any] = books.execute("SELECT digest, state FROM studies").fetchall()
        bundles = _bundles(books)
    return Snapshot(
        charged=charged, sealed=releases, states=dict(studies), bundles=bundles, before=before,
        paid={name: _charges(path, name, doubled) for name, path in sites.items()}, doubled=tuple(doubled),
        fixed=fixed, members=members, answered=answered,
    )  # fmt: skip


@contextmanager
def opened(path: Path | str) -> Iterator[Any]:
    """A file, or the database of a URL, as it is at one moment: an open connection."""
    if isinstance(path, str):
        with psycopg.connect(path) as server:
            server.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            yield server
        return
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(10_000)
    with closing(connection):
        connection.execute("BEGIN")
        yield connection


def _bundles(books: Any) -> dict[str, bytes]:
    """The file of each release."""
    pieces: dict[str, list[bytes]] = {}
    begun = "SELECT digest, release FROM studies WHERE release IS NOT NULL"
    more = "SELECT study, data FROM release_pieces ORDER BY study, piece"
    for study, first in books.execute(begun):
        pieces[study] = [first]
    for study, piece in books.execute(more):
        if study in pieces:  # else it is not published yet
            pieces[study].append(piece)
    return {study: b"".join(found) for study, found in pieces.items()}


def _sealed(query: str, micro_rho: int, present: str, digest: str) -> SealedRelease:
    return SealedRelease(query=query, micro_rho=micro_rho, present=tuple(json.loads(present)), digest=digest)


def _charges(path: Path, owner: str, doubled: list[str]) -> dict[Place, Charge]:
    with opened(path) as books:
        return _charged(books, owner, doubled)


def _charged(books: Any, owner: str, doubled: list[str]) -> dict[Place, Charge]:
    select = "SELECT study, round, query, micro_rho, kind FROM ledger WHERE kind IN ('charge', 'attempt')"
    found: dict[Place, Charge] = {}
    once: Counter[Place] = Counter()
    for study, round, query, cost, kind in books.execute(select):
        before = found.get((study, round), Charge(query=query, micro_rho=0, times=0))
        once[study, round] += kind == "charge"
        found[study, round] = Charge(
            query=query if query == before.query else "two", micro_rho=before.micro_rho + cost,
            times=before.times + 1,
        )  # fmt: skip
    doubled += [
        f"{owner} charged {_place_name(place)} {count} times" for place, count in once.items() if count > 1
    ]
    return found


def _tried(books: Any, study: str) -> dict[Place, dict[int, str]]:
    found: dict[Place, dict[int, str]] = {}
    for plan, round, number, digest in books.execute(f"SELECT {study}, round, number, digest FROM attempts"):
        found.setdefault((plan, round), {})[number] = digest
    return found


def _place_name(place: Place) -> str:
    return f"{place[0][:12]} round {place[1]}"


@dataclass(slots=True)
class Witness:
    """Everything that was ever seen, and what was wrong with it. `most_open` is the largest number of
    charges without a sealed release that one study ever had: none is allowed [P27], but those of the attempts
    at one masked round [P33]."""

    digests: dict[Place, str] = field(default_factory=dict)
    bundles: dict[str, bytes] = field(default_factory=dict)
    queries: dict[Place, str] = field(default_factory=dict)
    sets: dict[tuple[Place, int], str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    most_open: int = 0
    looks: int = 0

    def look(self, now: Snapshot) -> None:
        self.looks += 1
        self._notify(now.doubled)
        for place, sealed in now.sealed.items():
            self._covered(place, sealed, now)
            if self.digests.setdefault(place, sealed.digest) != sealed.digest:
                self._notify([f"{_place_name(place)} was sealed twice, with different bytes"])
        for study, bundle in now.bundles.items():
            if self.bundles.setdefault(study, bundle) != bundle:
                self._notify([f"the release of study {study[:12]} changed"])
        for lost in (self.digests.keys() - now.sealed.keys()) | (self.bundles.keys() - now.bundles.keys()):
            self._notify([f"{lost} was released and is gone"])
        self._open(now)
        self._one_set_each(now)
        for site, before in now.before.items():
            for place, charge in before.items():
                self._query(site, place, charge.query, now)
            self._paid_enough(site, now)

    def published(self, study: str, round: int, now: Snapshot) -> None:
        """A watcher was told that this round is sealed: by then it was charged and stored."""
        if (study, round) not in now.sealed:
            self._notify([f"{_place_name((study, round))} was published and is not sealed"])
        elif (study, round) not in now.charged:
            self._notify([f"{_place_name((study, round))} was published and is not charged"])

    def _covered(self, place: Place, sealed: SealedRelease, now: Snapshot) -> None:
        charge, tried = now.charged.get(place), len(now.fixed.get(place, {0: ""}))
        due = tried * sealed.micro_rho
        if charge is None or charge.query != sealed.query or charge.micro_rho < due or charge.times != tried:
            self._notify([f"under-charge: the coordinator's ledger does not cover {_place_name(place)}"])
        if now.members.get(place, sealed.present) != sealed.present:
            self._notify([f"{_place_name(place)} was released for others than the sites of its last attempt"])
        for site in sealed.present:
            paid = now.paid[site].get(place)
            if paid is None or paid.query != sealed.query:
                self._notify([f"under-charge: {site} is in {_place_name(place)} and did not charge it"])

    def _paid_enough(self, site: str, now: Snapshot) -> None:
        """In sum, because a site that joins a pass over parts late pays for the pass in another round."""
        for study in now.states:
            due = sum(
                one.micro_rho for (of, _), one in now.sealed.items() if of == study and site in one.present
            )
            if due > sum(one.micro_rho for (of, _), one in now.paid[site].items() if of == study):
                self._notify(
                    [f"under-charge: {site} paid less for study {study[:12]} than was released of it"]
                )

    def _query(self, site: str, place: Place, query: str, now: Snapshot) -> None:
        """Round n + 1 is asked only once release n is out, and with one query for everybody."""
        study, round = place
        if self.queries.setdefault(place, query) != query:
            self._notify([f"{site} was asked another query for {_place_name(place)} than somebody before"])
        if round and (study, round - 1) not in now.sealed:
            self._notify([f"{site} answered {_place_name(place)} before round {round - 1} was sealed"])

    def _open(self, now: Snapshot) -> None:
        unsealed = [place for place in now.charged if place not in now.sealed]
        exact = Counter(study for study, round in unsealed if (study, round) not in now.fixed)
        masked = Counter(study for study, round in unsealed if (study, round) in now.fixed)
        self.most_open = max(self.most_open, *exact.values(), 0)
        over = exact + Counter({study: count - 1 for study, count in masked.items()})
        self._notify(
            f"over-charge: {count} charges of study {study[:12]} are not sealed"
            for study, count in over.items()
        )

    def _one_set_each(self, now: Snapshot) -> None:
        """A number has one set, for ever and for everybody; each is paid, by whoever answered it."""
        for place, tried in now.fixed.items():
            for number, digest in tried.items():
                if self.sets.setdefault((place, number), digest) != digest:
                    self._notify([f"attempt {number} at {_place_name(place)} has two sets"])
        for site, answered in now.answered.items():
            for place, tried in answered.items():
                if not tried.items() <= now.fixed.get(place, {}).items():
                    self._notify([f"{site} answered an attempt at {_place_name(place)} that was never fixed"])
                paid = now.before[site].get(place)
                if paid is None or paid.times != len(tried):
                    self._notify(
                        [f"under-charge: {site} answered {_place_name(place)} more often than it paid"]
                    )

    def _notify(self, faults: Iterable[str]) -> None:
        self.faults += [fault for fault in faults if fault not in self.faults]
