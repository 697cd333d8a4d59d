"""Check 2: power cuts at random moments of a coordinator's work, and of a site's (`masked.site_power`).

A chain of lives: each begins on what the last cut left, works through the coordinator's own code for a
random number of writes and syncs, and ends in a cut. What the disk then holds is opened as the product
opens it and compared with what was said to the outside before the cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np

from eigenveil.accounting.budget import PrivacyBudget
from eigenveil.accounting.ledger import EntryKind
from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import EigenveilError
from eigenveil.numerics.encoding import digest
from eigenveil.protocol.query import PricedQuery, RoundQuery
from eigenveil.protocol.rounds import Release
from eigenveil.protocol.wire import query_to_proto
from eigenveil.queries import Count
from eigenveil.secure_aggregation.masking import Attempt
from eigenveil.study.study import Federation
from eigenveil_common.storage import sqlite
from eigenveil_common.storage.database import Connection
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_common.storage.sqlite import FULL, SqliteDatabase
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.process import end_process
from eigenveil_server.rounds.drivers import write_dispatch
from eigenveil_server.rounds.round import Round
from eigenveil_server.rounds.sealing import RoundJournal
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.database import MIGRATIONS, SCHEMA, VERSION, Store
from eigenveil_server.storage.release_pieces import StoredPieces, store_piece
from eigenveil_server.storage.repository import GroupCommit, Repository
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.study_reads import RoundAnswers, StoredStudy, Studies
from eigenveil_server.storage.submissions import StudyLists
from tests.fuzz.hunt import memory_folder
from tests.server.rig import SUMMARY, UNLIMITED
from tests.torture.crashes.vfs import Disk, powered
from tests.torture.masked import site_power

CUTS, CONTROL_CUTS = 2000, 400
SITE_CUTS, SITE_CONTROL_CUTS = 1000, 100
LIVES = 25  # in one chain; then a new coordinator begins
LONGEST = 250  # writes and syncs of one life
LOG_PAGES = (20, sqlite.LOG_PAGES)  # a short log, so that cuts fall into the copying of it as well
ROUNDS, TRIES = 3, 2
COST = Cost(micro_rho=7)
POOL = Cost(micro_rho=(TRIES - 1) * ROUNDS * 7)  # of repeated attempts
BUDGET = Cost(micro_rho=10**9)
NAME, VFS = "state.db", "power"


@dataclass(frozen=True, slots=True)
class Mode:
    journal: str
    synchronous: str
    safe: bool
    cuts: int = CONTROL_CUTS

    def __str__(self) -> str:
        return f"{self.journal}+{self.synchronous}"


MODES = (
    Mode("WAL", "FULL", safe=True, cuts=CUTS), Mode("DELETE", "EXTRA", safe=True),
    Mode("WAL", "NORMAL", safe=False), Mode("DELETE", "FULL", safe=False),
)  # fmt: skip


class Other(SqliteDatabase):
    mode = MODES[0]

    def _pragma(self, text: str) -> Any:
        match text:
            case "journal_mode=WAL":
                super()._pragma(f"journal_mode={self.mode.journal}")
                return "wal"
            case "synchronous":
                return FULL
            case _ if text.startswith("synchronous="):
                return super()._pragma(f"synchronous={self.mode.synchronous}")
            case _:
                return super()._pragma(text)


@dataclass(slots=True)
class Outside:
    """Facts that left: studies taken and ended, the questions to which answers are in, the query and
    the release of each round, and the attempts at masked ones."""

    taken: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    opened: dict[tuple[str, int], str] = field(default_factory=dict)
    published: dict[tuple[str, int], tuple[str, str]] = field(default_factory=dict)
    fixed: dict[tuple[str, int], list[str]] = field(default_factory=dict)

    def lost(self, database: SqliteDatabase) -> list[str]:
        """Facts of it that `database` does not know."""
        books = LedgerStore(database, PrivacyBudget(mixed=BUDGET), lambda: 0)
        ledger, entries = books.ledger, books.entries()
        studies, found = Studies(database), []
        charged = {(one.study, one.round): one.query for one in entries if one.kind.spends}
        if not self.taken <= set(ledger.spent_amounts):
            found.append("a study that was taken")
        if self.ended & set(ledger.reserved):
            found.append("the end of a study")
        if any(studies.query_digest(*place) != query for place, query in self.opened.items()):
            found.append("a question")
        for (study, round), (query, release) in self.published.items():
            if charged.get((study, round)) != query:
                found.append("a charge")
            sealed = studies.sealed(study, round)
            if sealed is None or sealed.release.digest != release:
                found.append("a release")
        paid = Counter((one.study, one.round) for one in entries if one.kind is EntryKind.ATTEMPT)
        for (study, round), result in self.fixed.items():
            if [one.digest for one in studies.attempts(study, round)][: len(result)] != result:
                found.append("a set of sites")
            if paid[study, round] < len(result):
                found.append("the charge of an attempt")
        return found


class Work:
    """The coordinator's work on one database, without its sites: reserve, then open and release round
    by round, each release with its charge, then settle; for ever. Half of the studies are masked: their
    rounds are charged for each of two attempts, before the release."""

    def __init__(self, database: SqliteDatabase, outside: Outside, random: Random) -> None:
        self._database = database
        self._outside = outside
        self._random = random
        self._repository = Repository(
            store=Store(
                writer=database, reader=database, acquire_server_lock=lambda: None, check_whole=lambda: None
            ),
            studies=Studies(database), lists=StudyLists(database),
            ledger=LedgerStore(database, PrivacyBudget(mixed=BUDGET), lambda: 0),
            writer=GroupCommit(database), clock=lambda: 0, fatal=end_process,
        )  # fmt: skip

    def go_on(self) -> None:
        """Take up what is under way; then study after study, until the power goes."""
        for stored in self._repository.studies.all():
            if stored.state is StudyState.RUNNING:
                self._run(stored.digest)
        while True:
            self._run(self._take())

    def _take(self) -> str:
        study = digest("torture", {"study": self._random.getrandbits(50)})
        stored = StoredStudy(
            digest=study, name="power", analyst="ada", submission=study, plan_json=bytes(2000),
            signature=bytes(64), micro_rho=TRIES * ROUNDS * COST.micro_rho, expected_rounds=ROUNDS,
            state=StudyState.RUNNING, failure="", submitted_at=0,
        )  # fmt: skip
        self._repository.ledger.reserve(
            study,
            Cost(micro_rho=stored.micro_rho),
            lambda change: study_writes.add_study(change, stored, "submitted", UNLIMITED, SUMMARY),
        )
        self._outside.taken.add(study)
        return study

    def _run(self, study: str) -> None:
        releases = [one.release for one in self._repository.studies.sealed_rounds(study)]
        for round in range(ROUNDS):
            if round == len(releases):
                releases.append(self._round(study, round, releases[-1].digest if round else ""))
            result = (_round_query(study, round).digest, releases[round].digest)
            self._outside.published.setdefault((study, round), result)

        def end(change: Connection) -> None:
            store_piece(change, study, 1, bytes(1000))
            release = StoredPieces(first=bytes(2000), count=2)
            study_writes.end_study(change, study, StudyState.RELEASED, 0, release=release)
            study_writes.add_event(change, study, pb.StudyEvent())

        self._repository.ledger.settle(study, end)
        self._outside.ended.add(study)

    def _round(self, study: str, round: int, after: str) -> Release:
        round_query = _round_query(study, round)
        masked = bool(int(study, 16) % 2)
        self._open(round_query)
        attempts = self._fix(round_query) if masked else []
        journal = RoundJournal(
            opened=_answered(round_query, masked, attempts),
            after=after, sign=lambda _: bytes(64), event=pb.StudyEvent(), repository=self._repository,
        )  # fmt: skip
        drawn = np.array([self._random.getrandbits(40) for _ in range(self._random.choice((1, 600)))])
        release = Release(
            round=round, query=round_query.digest, values=drawn, sigma=1.0, present=("anna", "bert"),
            micro_rho=round_query.priced.micro_rho, atto_delta=0,
        )  # fmt: skip
        journal.seal(round_query, release)
        return release

    def _open(self, round_query: RoundQuery) -> None:
        """The question, and that an answer to it is in is told once it is durable."""
        place = round_query.plan_digest, round_query.round
        if not self._repository.studies.attempts(*place):
            with self._database.transaction() as change:
                query, event = query_to_proto(round_query), pb.StudyEvent()
                write_dispatch(change, opened=_round_of(round_query), query=query, at=0, event=event)
        self._outside.opened[place] = round_query.digest

    def _fix(self, round_query: RoundQuery) -> list[Attempt]:
        place = round_query.plan_digest, round_query.round
        stored = self._repository.studies.attempts(*place)
        for number in range(1, TRIES + 1):
            if number > len(stored):
                card = digest("torture", {"card": self._random.getrandbits(50)})
                stored.append(Attempt.at(round_query, number, {"anna": card, "bert": card}))
                self._repository.ledger.attempt(
                    round_query,
                    COST,
                    POOL,
                    lambda change, _: study_writes.store_attempt(change, stored[-1], 0),
                )
            self._outside.fixed[place] = [one.digest for one in stored[:number]]
        return stored


def _round_query(study: str, round: int) -> RoundQuery:
    return RoundQuery(PricedQuery(query=Count(), micro_rho=COST.micro_rho), study, round)


def _round_of(round_query: RoundQuery, masked: bool = False, attempts: Sequence[Attempt] = ()) -> Round:
    nothing = RoundAnswers(macs={}, declined={})
    return Round(round_query, Federation(sites=("anna", "bert")), nothing, masked=masked, attempts=attempts)


def _answered(round_query: RoundQuery, masked: bool, attempts: Sequence[Attempt]) -> Round:
    opened = _round_of(round_query, masked, attempts)
    opened._macs = {"anna": bytes(32), "bert": bytes(32)}
    opened._answered |= opened._macs.keys()
    return opened


def opened(path: Path, mode: Mode, vfs: str | None = None) -> SqliteDatabase:
    return in_mode(mode)(path, SCHEMA, VERSION, vfs, migrations=MIGRATIONS)


def in_mode(mode: Mode) -> type[SqliteDatabase]:
    return type("InMode", (Other,), {"mode": mode})


def live(mode: Mode, image: dict[str, bytes], outside: Outside, random: Random) -> dict[str, bytes]:
    """One life, from the files in `image` to those that are left after its cut."""
    with memory_folder() as here:
        _write(here, image)
        disk = Disk(cut=random.randint(1, LONGEST))
        disk.load(here)
        with powered(VFS, disk):
            database = None
            try:
                database = opened(here / NAME, mode, VFS)
                Work(database, outside, random).go_on()
            except EigenveilError:
                if not disk.off:
                    raise
            finally:
                _close(database)
        return {Path(name).name: data for name, data in disk.survived(random).items()}


def _close(database: SqliteDatabase | None) -> None:
    if database is None:
        return
    try:
        database.close()
    except EigenveilError:
        return  # the power is off


def _write(here: Path, image: dict[str, bytes]) -> None:
    for name, data in image.items():
        (here / name).write_bytes(data)


def losses(mode: Mode, image: dict[str, bytes], outside: Outside) -> list[str]:
    with memory_folder() as here:
        _write(here, image)
        try:
            with closing(opened(here / NAME, mode)) as database:
                return outside.lost(database)
        except EigenveilError as problem:
            return [f"all: {problem}"]


def cuts(mode: Mode, count: int, seed: int) -> list[list[str]]:
    """Cut the power `count` times; what each cut lost. A chain ends early with a loss."""
    found: list[list[str]] = []
    image: dict[str, bytes] = {}
    for number in range(count):
        random = Random(seed * 1_000_003 + number)
        if number % LIVES == 0 or found[-1]:
            image, outside = {}, Outside()
            pages = random.choice(LOG_PAGES)
        with mock.patch.object(sqlite, "LOG_PAGES", pages):
            image = live(mode, image, outside, random)
            found.append(losses(mode, image, outside))
    return found


def judge(mode: Mode, scale: float, seed: int = 1) -> tuple[bool, str]:
    found = cuts(mode, max(100, round(scale * mode.cuts)), seed)
    lost = sum(map(bool, found))
    what = next((f" ({losses[0]})" for losses in found if losses), "") if mode.safe else ""
    return (lost == 0) is mode.safe, f"{mode} {lost} of {len(found)} lose{what}"


def judge_site(mode: Mode, scale: float, seed: int = 1) -> tuple[bool, str]:
    count = max(12, round(scale * (SITE_CUTS if mode.safe else SITE_CONTROL_CUTS)))
    with memory_folder() as here:
        found = site_power.cuts(in_mode(mode), count, seed, here)
    lost = [losses for losses in found.lost if losses]
    fell = ", ".join(f"{step} {times}" for step, times in sorted(found.fell.items()))
    what = f" {sorted(lost[0])}" if lost and mode.safe else ""
    result = f"a masked site's {mode} {len(lost)} of {count} lose{what}"
    more = f" (at {fell}; {found.unsent} answers stored and not sent)" if mode.safe else ""
    return (not lost) is mode.safe, result + more


def run(folder: Path, scale: float) -> tuple[list[str], str]:
    """All modes: the product's loses nothing, and the two unsafe ones must lose something."""
    judged = [judge(mode, scale) for mode in MODES]
    judged += [judge_site(mode, scale) for mode in (MODES[0], MODES[2])]
    return [text for good, text in judged if not good], ", ".join(text for _, text in judged)
