"""Check 2, second half: power cuts at random moments of a site's masked rounds.

The coordinator outlives each cut and asks anew for the attempt that was cut, for its set of sites or for
another. What then leaves under that number is what left before, if anything did; what left is stored
and paid, in the words of the product that opens what the disk still holds."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from unittest import mock

from eigenveil.accounting.ledger import EntryKind
from eigenveil.errors import EigenveilError
from eigenveil.study.study import MAX_ATTEMPTS
from eigenveil_client.site.daemon.answers import MaskedAnswer
from eigenveil_client.site.daemon.worker import SiteWorker
from eigenveil_client.site.state import store as site_store
from eigenveil_client.site.state.store_access import open_site_store
from eigenveil_common.storage.sqlite import SqliteDatabase
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.masking import EVERY, Peers
from tests.torture.crashes.vfs import Disk, powered
from tests.torture.masked.scene import Scene, acquainted

SETS = (EVERY, EVERY[:3])
NAME, VFS = "state.db", "power"
LIVES = 10  # of one site
LONGEST = 150  # writes and syncs of one life
Place = tuple[str, int, int]  # a study, a round, a number


@dataclass(slots=True)
class Coordinator:
    """Queries and their outcomes. `left` is the set, and the digest of the bytes, of each answer;
    `doing` is asked now; `unsent` counts answers that were stored when a cut kept them from leaving; `wrong`
    must never come."""

    peers: Peers
    random: Random
    left: dict[Place, tuple[str, str]] = field(default_factory=dict)
    studies: int = 0
    round: int = 0
    number: int = 1
    doing: str = "begin"
    unsent: int = 0
    wrong: set[str] = field(default_factory=set)
    scene: Scene = field(init=False)

    def __post_init__(self) -> None:
        self.scene = Scene.of(self.peers, "power-0")

    def go_on(self, worker: SiteWorker) -> None:
        """Take up the attempt that is under way; then one after the other, until the power goes."""
        while True:
            self._attempt(worker)
            if self._pool_covers() and self.random.random() < 0.3:
                self.number += 1
            elif self.round + 1 < len(self.scene.queries):
                self.round, self.number = self.round + 1, 1
            else:
                self._end(worker)

    def _pool_covers(self) -> bool:
        """True if the pool pays for one more attempt at this round."""
        digest, queries = self.scene.plan.digest, self.scene.queries
        costs = [
            queries[round].cost.micro_rho
            for plan, round, number in self.left
            if plan == digest and number > 1
        ]
        left = self.scene.plan.spare_micro_rho - sum(costs) - queries[self.round].cost.micro_rho
        return self.number < MAX_ATTEMPTS and left >= 0

    def _attempt(self, worker: SiteWorker) -> None:
        if self.number == 1 and self._place not in self.left:
            self.doing = "ready"
            worker.work(self.scene.question(self.round))
        self.doing = "answer"
        first, second = self.random.sample(SETS, 2)
        if self._notified(worker, first) + self._notified(worker, second) != 1:
            self.wrong.add("an attempt was not answered for one of two sets")
        if self.random.random() < 0.5:
            self.doing = "the same again"
            self._notified(worker, first)

    def _notified(self, worker: SiteWorker, sites: tuple[str, ...]) -> bool:
        attempt = self.scene.attempt(self.round, self.number, sites)
        reply = worker.work(self.scene.fixed(self.round, self.number, sites=sites))
        if isinstance(reply, MaskedAnswer):
            message = attempt.digest, reply.contribution.digest
            if self.left.setdefault(self._place, message) != message:
                self.wrong.add("other bytes, or another set, under one number")
        return isinstance(reply, MaskedAnswer)

    @property
    def _place(self) -> Place:
        return self.scene.plan.digest, self.round, self.number

    def _end(self, worker: SiteWorker) -> None:
        """Of this study, and the beginning of the next."""
        digest, self.doing = bytes.fromhex(self.scene.plan.digest), "end"
        self.studies, self.round, self.number = self.studies + 1, 0, 1
        self.scene = Scene.of(self.peers, f"power-{self.studies}")
        ended = pb.StudyEnd(plan_digest=digest, state=pb.STUDY_STATE_FAILED)
        worker.work(pb.NextWorkResponse(ended=[ended]))

    def lost(self) -> set[str]:
        """Answers that left the site and are unknown to it, or known and not charged."""
        with open_site_store(self.peers.stage.config) as store:
            entries = [one for one in store.ledger.entries() if one.kind is EntryKind.ATTEMPT]
            paid = Counter((one.study, one.round, one.micro_rho) for one in entries)
            result, found = {row.attempt for row in store.egress.rows()}, set()
            for (plan, round, number), (attempt, _) in self.left.items():
                answered = store.attempts.answered(plan, round)
                if answered.get(number) != attempt or attempt not in result:
                    found.add("an answer that left")
                cost = self.scene.queries[round].priced.micro_rho
                if paid[plan, round, cost] != len(answered):
                    found.add("the charge of an attempt")
            plan, round, number = self._place
            self.unsent += number in store.attempts.answered(plan, round) and self._place not in self.left
        return found


@contextmanager
def a_site(folder: Path) -> Iterator[Peers]:
    """One that knows its peers, and has no state yet, in a folder of its own."""
    with tempfile.TemporaryDirectory(dir=folder) as here:
        peers = acquainted(Path(here))
        state = Path(here) / "state" / NAME
        state.parent.mkdir()
        peers.stage.config = replace(peers.stage.config, state=state)
        yield peers


def live(coordinator: Coordinator, kind: type[SqliteDatabase], random: Random) -> dict[str, bytes]:
    stage, disk = coordinator.peers.stage, Disk(cut=random.randint(1, LONGEST))
    disk.load(stage.config.state.parent)
    with powered(VFS, disk), mock.patch.object(site_store, "SqliteDatabase", partial(kind, vfs=VFS)):
        try:
            with closing(stage.store()) as store:
                coordinator.go_on(stage.worker(store))
        except EigenveilError:
            if not disk.off:
                raise
    names = {Path(name).name: data for name, data in disk.survived(random).items()}
    return {name: data for name, data in names.items() if name.startswith(NAME)}


def losses(coordinator: Coordinator, kind: type[SqliteDatabase], image: dict[str, bytes]) -> set[str]:
    """Losses after a cut, in words; the files are then as the cut left them."""
    _write(coordinator, image)
    try:
        with mock.patch.object(site_store, "SqliteDatabase", kind):
            found = coordinator.lost()
    except EigenveilError as problem:
        found = {f"all: {problem}"}
    _write(coordinator, image)
    return found | coordinator.wrong


def _write(coordinator: Coordinator, image: dict[str, bytes]) -> None:
    folder = coordinator.peers.stage.config.state.parent
    for path in folder.glob(f"{NAME}*"):
        path.unlink()
    for name, data in image.items():
        (folder / name).write_bytes(data)


@dataclass(slots=True)
class Found:
    """Outcome of all cuts: their places, and the losses of each."""

    fell: Counter[str] = field(default_factory=Counter)
    unsent: int = 0
    lost: list[set[str]] = field(default_factory=list)


def cuts(kind: type[SqliteDatabase], count: int, seed: int, folder: Path) -> Found:
    """Cut the power `count` times. A site ends early with a loss."""
    found = Found()
    while len(found.lost) < count:
        with a_site(folder) as peers:
            coordinator = Coordinator(peers, Random(seed * 1_000_003 + len(found.lost)))
            for _ in range(min(LIVES, count - len(found.lost))):
                image = live(coordinator, kind, coordinator.random)
                found.fell[coordinator.doing] += 1
                found.lost.append(losses(coordinator, kind, image))
                if found.lost[-1]:
                    break
            found.unsent += coordinator.unsent
    return found
