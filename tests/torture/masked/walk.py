"""Whatever a coordinator says of sets and numbers, in any order, with a crash at any step: a site against a
model of it that fits on a page.

There is one set for each number of a round; what is sent was charged, and is sent again with the same bytes;
a pass over batches has paid as often as its most tried batch was tried; repeated attempts cost no more than
the study's pool."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from eigenveil.queries import batch_of
from eigenveil.secure_aggregation.masking import Attempt
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import MAX_ATTEMPTS
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.site.daemon.answers import MaskedAnswer, Ready
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.daemon.worker import Reply, SiteWorker
from eigenveil_client.site.engine.engine import RecordEngine, make_engine
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.files import arm, disarm
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.masking import EVERY, Peers
from tests.client.site.support import SITE, Driven, write_records
from tests.fuzz.hunt import memory_folder
from tests.torture.masked.scene import Scene, acquainted

WALKS, STEPS = 300, 60
BATCHES: dict[str, object] = {"algorithm": Algorithm.PRIVATE_OJA, "batches": 3}
Beginning = tuple[dict[str, object], int]  # a study, and the first round that a site sees
ONE: dict[str, object] = {"spare_attempts": 1}
BEGINNINGS: tuple[Beginning, ...] = (
    ({}, 0), (BATCHES, 5), (BATCHES, 6), ({}, 3), (ONE, 5), (ONE | BATCHES, 5),
)  # fmt: skip
STORED = "attempt-stored"
POINTS = ("share-drawn", "answer-masked", "attempt-storing", STORED)
honest = st.sampled_from((EVERY, EVERY[:3], (*EVERY[:2], EVERY[3])))
sets = (
    honest
    | honest
    | honest
    | st.sets(st.sampled_from(EVERY), min_size=2).map(lambda names: tuple(sorted(names)))
)
ahead = st.sampled_from((*[0] * 12, 1, 1, -1, 2))  # of the round that the site follows
beyond = st.sampled_from((*[1] * 8, 0, 2, -1, 3))  # of the latest number that it answered


class Killed(BaseException):
    """The process ended here."""


@contextmanager
def deadly(point: str) -> Iterator[None]:
    """To pass `point` is to be killed."""

    def die() -> None:
        raise Killed

    arm(point, die)
    try:
        yield
    finally:
        disarm()


class Walk(RuleBasedStateMachine):
    """One study. `sent` are the attempts that were charged, with the digest of what left (empty if nothing
    has yet); `due` is the round that the site follows, and `durable` what a crash leaves of that."""

    peers: ClassVar[Peers]
    engine: ClassVar[RecordEngine]
    serial: ClassVar[Iterator[int]] = count()
    store: SiteStore
    worker: SiteWorker

    @initialize(study=st.sampled_from(BEGINNINGS))
    def begin(self, study: Beginning) -> None:
        kind, self.first = study
        self.scene = Scene.of(self.peers, f"walk-{next(self.serial)}", **kind)
        self.sent: dict[tuple[int, int], str] = {}
        self.sets: dict[tuple[int, int], Attempt] = {}
        self.due = self.durable = 0
        self._live()

    def _live(self) -> None:
        self.store = self.peers.stage.store()
        config = self.peers.stage.config
        self.worker = Driven(load_identity(config.identity), config.policy, self.store, self.engine)

    @rule(ahead=ahead, beyond=beyond, sites=sets)
    def notify(self, ahead: int, beyond: int, sites: tuple[str, ...]) -> None:
        attempt = self._attempt(ahead, beyond, sites)
        self._received(attempt, self._state(self.scene.fixed, attempt))

    @rule(ahead=ahead)
    def request(self, ahead: int) -> None:
        round = self._round(ahead)
        reply, due = self.worker.work(self.scene.question(round)), round >= self.due
        self._follow(round)
        assert isinstance(reply, Ready if due else Refusal)

    @rule(back=st.sampled_from((0, 0, 0, 1, 2)))
    def again(self, back: int) -> None:
        if len(self.sets) > back:
            attempt = list(self.sets.values())[-1 - back]
            self._received(attempt, self._state(self.scene.fixed, attempt))

    @rule(ahead=ahead, beyond=beyond, sites=sets, point=st.sampled_from(POINTS))
    def crash(self, ahead: int, beyond: int, sites: tuple[str, ...], point: str) -> None:
        attempt = self._attempt(ahead, beyond, sites)
        wanted = self._wanted(attempt) and self._place(attempt) not in self.sent
        reply: Reply | None = None
        with deadly(point):
            try:
                reply = self._state(self.scene.fixed, attempt)
            except Killed:
                assert wanted
                if point == STORED:
                    self._charged(attempt, "")
                    self.durable = self.due = max(self.due, attempt.round)
            else:
                assert not wanted
                self._received(attempt, reply)
        self.restart()

    def restart(self) -> None:
        """Another life: what was not durable is forgotten."""
        self.store.close()
        self.due = self.durable
        self._live()

    def _state(self, fixed: object, attempt: Attempt) -> Reply | None:
        return self.worker.work(self.scene.fixed(attempt.round, attempt.number, sites=attempt.sites))

    def _round(self, ahead: int) -> int:
        begin = self.first if not self.sent and not self.due else self.due
        return min(max(begin + ahead, 0), len(self.scene.queries) - 1)

    def _attempt(self, ahead: int, beyond: int, sites: tuple[str, ...]) -> Attempt:
        round = self._round(ahead)
        number = min(max(self._latest(round) + beyond, 1), MAX_ATTEMPTS)
        return self.scene.attempt(round, number, sites)

    def _latest(self, round: int) -> int:
        return max((number for at, number in self.sent if at == round), default=0)

    @staticmethod
    def _place(attempt: Attempt) -> tuple[int, int]:
        return attempt.round, attempt.number

    def _wanted(self, attempt: Attempt) -> bool:
        place, members = self._place(attempt), attempt.members
        if attempt.round < self.due or len(members) < 3 or not {SITE, EVERY[1]} <= set(members):
            return False
        latest = self._latest(attempt.round)
        if place in self.sets:
            return attempt.number == latest and self.sets[place] == attempt
        _, repeated = self._paid([*(round for round, _ in self.sent), attempt.round])
        return latest < attempt.number and repeated <= self.scene.plan.spare_micro_rho

    def _received(self, attempt: Attempt, reply: Reply | None) -> None:
        wanted, place = self._wanted(attempt), self._place(attempt)
        assert isinstance(reply, MaskedAnswer if wanted else Refusal), (attempt, self.sets, self.due, reply)
        self._follow(attempt.round)
        if isinstance(reply, MaskedAnswer):
            if place not in self.sent:
                self._charged(attempt, "")
            self.sent[place] = self.sent[place] or reply.contribution.digest
            assert reply.contribution.digest == self.sent[place]

    def _charged(self, attempt: Attempt, digest: str) -> None:
        place = self._place(attempt)
        self.sent[place], self.sets[place] = digest, attempt

    def _follow(self, round: int) -> None:
        self.durable = self.due = max(self.due, round)

    def _paid(self, rounds: Iterable[int]) -> tuple[int, int]:
        """Cost of attempts at these rounds, one after the other, and what of it is for repeated ones."""
        tried: Counter[int] = Counter()
        total = repeated = 0
        for round in rounds:
            priced = self.scene.queries[round].priced
            batch = batch_of(priced.query)
            before = range(round if batch is None else batch.first_round, round)
            is_paid = tried[round] < max((tried[other] for other in before), default=0)
            cost = 0 if is_paid else priced.micro_rho
            total, repeated = total + cost, repeated + cost * (tried[round] > 0)
            tried[round] += 1
        return total, repeated

    @invariant()
    def the_books_agree(self) -> None:
        """One charge for each attempt, but of a pass one for each time that any of its batches was tried."""
        due, repeated = self._paid(round for round, _ in self.sent)
        assert repeated <= self.scene.plan.spare_micro_rho
        ledger = self.store.ledger.ledger
        assert ledger.spent_by(self.scene.plan.digest).micro_rho == due
        stored = {
            place: self.store.attempts.answered(self.scene.plan.digest, place[0]) for place in self.sets
        }
        assert all(stored[place][place[1]] == attempt.digest for place, attempt in self.sets.items())

    def teardown(self) -> None:
        """The study is over: its price is free for the next one."""
        if hasattr(self, "store"):
            digest = bytes.fromhex(self.scene.plan.digest)
            ended = pb.StudyEnd(plan_digest=digest, state=pb.STUDY_STATE_FAILED)
            self.worker.work(pb.NextWorkResponse(ended=[ended]))
            self.store.close()


def walk(walks: int, steps: int, phases: Sequence[Phase] = (Phase.generate, Phase.shrink)) -> None:
    """Raises AssertionError, with the shortest way there, if site and model differ."""
    with memory_folder() as folder:
        Walk.peers = acquainted(
            folder, algorithms=("gauss-cov", "private-oja"), minimum_records=80, budget_epsilon=1000.0
        )
        write_records(Walk.peers.stage.records, rows=80)
        Walk.engine = make_engine(Walk.peers.stage.config)
        run_state_machine_as_test(
            Walk,
            settings=settings(
                max_examples=walks,
                stateful_step_count=steps,
                deadline=None,
                derandomize=True,
                database=None,
                phases=phases,
                suppress_health_check=list(HealthCheck),
            ),
        )


def run(folder: Path, scale: float) -> tuple[list[str], str]:
    walks, problem = max(5, round(scale * WALKS)), ""
    logging.getLogger("eigenveil").setLevel(logging.CRITICAL + 1)  # each refusal is an alarm
    try:
        walk(walks, STEPS)
    except Exception as found:  # noqa: BLE001 - whatever it is, it is told
        problem = f"{type(found).__name__}: {found}"
    detail = f"{walks} walks of {STEPS} steps through sets, numbers, rounds and crashes: site and model agree"
    return [problem] if problem else [], detail
