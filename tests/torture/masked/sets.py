"""A malicious coordinator of masked studies, with the federation's real keys, against a real site daemon.

Attacks come one after the other, each in a study of its own between honest attempts.
Passed: the honest attempts are answered, each with a share of noise and under its own masks; of an attack
nothing but refusals left, or the same bytes as before; the ledger has one charge for each attempt answered.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from eigenveil.accounting.ledger import EntryKind, LedgerEntry
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil_client.site.state.egress import EgressRow
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.command_line import written
from tests.client.site.masking import Peers
from tests.client.site.support import until
from tests.torture.masked.attacks import ATTACKS, SETS, Attack, Place, honest
from tests.torture.masked.scene import MAX_NOISE_SCALE, Recording, Scene, acquainted
from tests.torture.peers.malicious import Daemon, process

ATTACKERS = 2
SURE = 6  # standard deviations: one run in 500 million is off by more
ATTACK_SECONDS = 20.0  # seconds for one attack


@dataclass(slots=True)
class Outcome:
    """Outcome of an attack; `faults` is empty if all is well. `scores` are the shares of noise that left,
    in standard deviations of what is due."""

    name: str
    faults: list[str] = field(default_factory=list)
    answered: int = 0
    scores: list[FloatArray] = field(default_factory=list)


@dataclass(slots=True)
class Assault:
    """Attacks on the daemon of a site, which knows its `peers`; the coordinator is `heard`."""

    peers: Peers
    log: Path
    recording: Recording = field(default_factory=Recording)

    async def all(self, attacks: Sequence[Attack], daemon: Daemon) -> list[Outcome]:
        scenes = [Scene.of(self.peers, one.name.encode().hex(), **one.study) for one in attacks]
        stage = self.peers.stage
        async with stage.serving(self.recording), daemon(stage, self.log):
            outcomes = [await self._one(*each) for each in zip(attacks, scenes, strict=True)]
        with closing(stage.store()) as store:
            entries, rows = list(store.ledger.entries()), list(store.egress.rows())
        for attack, scene, outcome in zip(attacks, scenes, outcomes, strict=True):
            outcome.faults += books(attack, scene, entries, rows)
        return outcomes

    async def _one(self, attack: Attack, scene: Scene) -> Outcome:
        outcome, recording = Outcome(attack.name), self.recording
        sent, declined, wire = len(recording.contributions), len(recording.declines), len(recording.wire)
        result, evil = len(self.log.read_text()), attack.evil(scene)
        due = [*attack.before, *attack.again, *attack.after]
        recording.work += [*honest(scene, attack.before), *evil, *honest(scene, attack.after)]
        refused = len(evil) if attack.refused is None else attack.refused
        try:
            await until(
                lambda: (
                    not recording.work
                    and len(recording.contributions) >= sent + len(due)
                    and len(recording.declines) >= declined + refused
                ),
                ATTACK_SECONDS,
            )
        except TimeoutError:
            outcome.faults.append("what was asked honestly was not answered, or the rest not refused")
            recording.work.clear()
        if len(recording.declines) != declined + refused:
            outcome.faults.append(f"{len(recording.declines) - declined} refusals left, {refused} were due")
        if attack.seen not in self.log.read_text()[result:]:
            outcome.faults.append(f"the log does not say {attack.seen}")
        self._answers(scene, recording.contributions[sent:], due, outcome)
        outcome.faults += leaks(scene, recording.wire[wire:], len(due))
        return outcome

    def _answers(
        self, scene: Scene, sent: list[pb.ContributeRequest], due: list[Place], outcome: Outcome
    ) -> None:
        """Hold what left against the attempts that were asked honestly, in their order."""
        outcome.answered = len(sent)
        attempts = [scene.attempt(*place, sites=SETS[place[1]]) for place in due]
        named = [one.attempt_digest.hex() for one in sent]
        if named != [one.digest for one in attempts]:
            outcome.faults.append(f"{len(sent)} answers left, {len(due)} were due, or for other attempts")
            return
        if len(set(zip(named, (one.values for one in sent), strict=True))) != len(set(named)):
            outcome.faults.append("other bytes for the same attempt")
        for request, attempt in zip(sent, attempts, strict=True):
            outcome.scores.append(scene.share(request, attempt))
            if np.abs(outcome.scores[-1]).max() > MAX_NOISE_SCALE:
                outcome.faults.append(f"what left in round {attempt.round} is no masked answer")


def books(
    attack: Attack, scene: Scene, entries: Sequence[LedgerEntry], rows: Sequence[EgressRow]
) -> list[str]:
    """One charge for each attempt that was answered, and one row for each message that left."""
    positions, found = dict.fromkeys((*attack.before, *attack.after)), []
    paid = sum(scene.queries[round].cost.micro_rho for round, _ in positions)
    booked = [entry for entry in entries if entry.study == scene.plan.digest]
    kinds = Counter(entry.kind for entry in booked)
    spent = sum(entry.micro_rho for entry in booked if entry.kind is EntryKind.ATTEMPT)
    if (kinds[EntryKind.ATTEMPT], spent, kinds[EntryKind.CHARGE]) != (len(positions), paid, 0):
        found.append(
            f"{kinds[EntryKind.ATTEMPT]} attempts at {spent} charged, {len(positions)} at {paid} due"
        )
    left = [row for row in rows if row.study == scene.plan.digest and row.bytes]
    if len(left) != len(positions) + len(attack.again):
        found.append(f"the egress ledger has {len(left)} answers")
    return found


def leaks(scene: Scene, wire: list[tuple[str, bytes]], answers: int) -> list[str]:
    """Parts of an exact answer that went over the wire, and answers that were not reported."""
    calls = Counter(name for name, _ in wire)
    found = [] if calls["Contribute"] + calls["Commit"] == answers else ["more answers left than arrived"]
    exact = [pair for round in range(len(scene.queries)) for pair in telling(scene.exact(round))]
    found += {f"an exact answer is in a {name}" for name, data in wire for pair in exact if pair in data}
    return found


def telling(values: IntArray) -> list[bytes]:
    """Neighbouring numbers of an answer, as bytes, that are nowhere by chance."""
    noisy = np.abs(values) > 2**16
    return [values[at : at + 2].tobytes() for at in np.flatnonzero(noisy[:-1] & noisy[1:])]


async def _all(folder: Path, attacks: Sequence[Attack]) -> list[Outcome]:
    async def some(number: int) -> list[Outcome]:
        here = folder / str(number)
        peers, log = acquainted(here), here / "log"
        log.touch()
        written(peers.stage, 'budget_epsilon = 1000.0\ntrust = ["central", "secure-aggregation"]\n')
        return await Assault(peers=peers, log=log).all(attacks[number::ATTACKERS], process)

    return [one for result in await asyncio.gather(*map(some, range(ATTACKERS))) for one in result]


async def run(folder: Path, scale: float) -> tuple[list[str], str]:
    attacks = ATTACKS[: max(4, round(scale * len(ATTACKS)))]
    return verdict(await _all(folder, attacks))


def verdict(outcomes: Sequence[Outcome]) -> tuple[list[str], str]:
    """One line about all of them. Shares that are too quiet or too loud on the whole do not pass."""
    bad = [f"{one.name}: {'; '.join(one.faults)}" for one in outcomes if one.faults]
    shares = np.concatenate([score for one in outcomes for score in one.scores] or [np.zeros(1)])
    power, most = float(np.mean(shares**2)), SURE * math.sqrt(2 / shares.size)
    if abs(power - 1) > most:
        bad.append(f"the shares of noise have {power:.2f} of the variance that is due")
    answered = sum(one.answered for one in outcomes)
    detail = (
        f"{len(outcomes)} attacks, {len(outcomes) - len(bad)} refused, logged and unanswered; {answered} "
        f"honest attempts answered, their shares of noise {power:.2f} of what is due"
    )
    return bad, detail
