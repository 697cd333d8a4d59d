"""Share of masked studies that finish although sites drop out, by spare attempts, and their cost.

`python -m benchmarks.spare_attempts [--runs N] [--chance P --spares K]` runs whole federations in virtual
time: the real coordinator, daemons, rounds, masks and ledgers. A site is killed with probability P at each
attempt that it is to answer, half of the time after it was charged, and is started again once the attempt is
void. The ledgers of all sites are compared with the coordinator's. Beside them stands what arithmetic gives
for the same costs and chances, over 20,000 studies; `--predicted` prints that alone."""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eigenveil.accounting.ledger import LedgerEntry
from eigenveil.accounting.zcdp import NO_COST, Cost
from eigenveil.planning.choose import make_plan, possible_rehearsals
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.study.toml import parse_study
from eigenveil_common.files import arm, disarm
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.fuzz.hunt import memory_folder
from tests.server.masked.sites import masked_toml
from tests.support import signed_by_analyst
from tests.torture.programs.operations import COORDINATOR, template
from tests.torture.programs.virtual import VirtualLoop, play
from tests.torture.programs.world import LIVE, Died, World, world

SITES = tuple(f"site-{number}" for number in range(1, 7))
ROUNDS, QUORUM = 15, 4
DEADLINE, AWAY = 10.0, 15.0  # virtual seconds of a round, and until a killed site is started again
POINTS = ("share-drawn", "attempt-stored")  # before a site charges an attempt, and after
GOALS = ((0.005, 2), (0.02, 5))  # probabilities, with the spare attempts that suffice in 95 of 100 runs
ENOUGH = 0.95
PREDICTED = 20_000  # studies by arithmetic
EVERY = 10  # runs between two lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome of one study: `price` is what was charged, as a share of what its rounds cost once, and
    `reserved` what was set aside. `faults` are differences between ledgers."""

    finished: bool
    failure: str
    rounds: int
    attempts: int
    price: float
    reserved: float
    faults: tuple[str, ...]


class Dropouts:
    """Kill of sites at the attempts that they are to answer, and their return."""

    def __init__(self, here: World, chance: float, seed: int) -> None:
        self._here, self._chance, self._random = here, chance, random.Random(seed)

    def begin(self) -> None:
        for point in POINTS:
            arm(point, self._pass)

    def _pass(self) -> None:
        who, _, _ = (life := LIVE.get("")).partition("#")
        if who in SITES and self._random.random() < self._chance / len(POINTS):
            loop = self._here.loop
            loop.call_soon(self._here.bury, who, life)
            loop.call_later(AWAY, lambda: loop.create_task(self._here.start(who)))
            raise Died


def study_text(spares: int) -> str:
    """Study file of all runs."""
    return masked_toml(
        spares=spares, name="spare", algorithm="refined-cov", columns=len(SITES), components=1, epsilon=3.0,
        sites=SITES, quorum=QUORUM, minimum_cohort=20, deadline_seconds=DEADLINE,
    )  # fmt: skip


async def run_study(here: World, spares: int) -> Plan:
    """Submit a study of `ROUNDS` rounds and return its plan once it has ended."""
    for who in (COORDINATOR, *SITES):
        await here.start(who)
    toml = study_text(spares)
    asked = pb.ExplainStudyRequest(study_toml=toml, submission="spare")
    plan = plan_from_json((await here.query("ExplainStudy", asked)).plan_json)
    signed = signed_by_analyst(plan, expires=here.clock(COORDINATOR) // 1000 + 86_400).to_proto()
    request = pb.SubmitStudyRequest(study_toml=toml, submission="spare", authorization=signed)
    await here.query("SubmitStudy", request)
    while here.states()[plan.digest] == "running":
        await asyncio.sleep(1.0)
    disarm()
    await asyncio.sleep(3 * AWAY)  # all sites are back, and know the end
    return plan


def charges(entries: Sequence[LedgerEntry]) -> dict[int, list[Cost]]:
    """Return the charges of each round, in order."""
    found = defaultdict[int, list[Cost]](list)
    for one in entries:
        if one.kind.spends:
            found[one.round].append(one.cost)
    return found


def differences(here: World, plan: Plan) -> list[str]:
    """Return where the ledgers of sites and coordinator disagree: about what an attempt costs, about attempts
    that were never made, about the pool, or about what is still reserved."""
    assert here.daemon is not None
    repository, found = here.daemon.runtime.repository, list[str]()
    made = charges(repository.ledger.entries())
    ledgers = {COORDINATOR: repository.ledger.ledger}
    for name, store in here.stores.items():
        ledgers[name] = store.ledger.ledger
        for round, paid in charges(store.ledger.entries()).items():
            answered = store.attempts.answered(plan.digest, round)
            fixed = {one.number: one.digest for one in repository.studies.attempts(plan.digest, round)}
            if len(paid) != len(answered) or not answered.items() <= fixed.items():
                found.append(f"{name} paid {len(paid)} of {len(fixed)} attempts at round {round}")
            if set(paid) - set(made[round]):
                found.append(f"{name} paid another price in round {round}")
    for name, ledger in ledgers.items():
        if ledger.reserved:
            found.append(f"{name} still reserves budget")
        if not ledger.repeated.get(plan.digest, NO_COST).fits(plan.spare_cost):
            found.append(f"{name} was charged more than the pool")
        if not ledger.spent.fits(ledgers[COORDINATOR].spent):
            found.append(f"{name} was charged more than the coordinator")
    return found


def outcome(here: World, plan: Plan) -> Outcome:
    """Return what became of an ended study."""
    assert here.daemon is not None
    repository = here.daemon.runtime.repository
    stored, made = repository.studies.get(plan.digest), charges(repository.ledger.entries())
    once = sum((paid[0].micro_rho for paid in made.values()), 0)
    return Outcome(
        finished=here.states()[plan.digest] == "released",
        failure=stored.failure,
        rounds=len(made),
        attempts=sum(map(len, made.values())),
        price=repository.ledger.ledger.spent.micro_rho / once,
        reserved=plan.cost.micro_rho / plan.micro_rho,
        faults=(*differences(here, plan), *here.faults, *here.network.defects, *here.witness.faults),
    )


def run(chance: float, spares: int, seed: int, made: Path) -> Outcome:
    """Run one federation whose sites drop out with this probability at each attempt."""
    with memory_folder() as folder:

        async def work(loop: VirtualLoop) -> Outcome:
            with world(loop, folder, made, seed, SITES, manual=()) as here:
                Dropouts(here, chance, seed).begin()
                plan = await run_study(here, spares)
                here.look()
                return outcome(here, plan)

        return play(work, seed)


def predicted(chance: float, spares: int) -> str:
    """Return what arithmetic gives: each member of an attempt drops out independently, a void attempt lasts
    until its deadline, and a site that dropped out is back in the first attempt after `AWAY`."""
    plan = make_plan(parse_study(study_text(spares)))
    course, random_source = max(possible_rehearsals(plan), key=len), random.Random(0)
    costs = [one.priced.micro_rho for one in course]
    assert len(costs) == ROUNDS
    prices = [one for _ in range(PREDICTED) if (one := _price(costs, plan, chance, random_source))]
    charged = statistics.mean(prices) / sum(costs)
    return f"predicted: {len(prices) / PREDICTED:.1%} finish, charged {charged:.3f} times the rounds"


def _price(costs: Sequence[int], plan: Plan, chance: float, random_source: random.Random) -> int:
    """Return what one study is charged, in micro-rho; 0 if it fails."""
    now, back, left = 0.0, dict.fromkeys(SITES, 0.0), plan.spare_micro_rho
    for cost in costs:
        for number in range(1, plan.most_attempts + 1):
            members = [site for site in SITES if back[site] <= now]
            left -= cost if number > 1 else 0
            if len(members) < QUORUM or left < 0:
                return 0
            lost = [site for site in members if random_source.random() < chance]
            if not lost:
                break
            back |= dict.fromkeys(lost, now + AWAY)
            now += DEADLINE
        else:
            return 0
    return sum(costs) + plan.spare_micro_rho - left


def report(chance: float, spares: int, outcomes: Sequence[Outcome]) -> bool:
    """Print one line, and each fault; return True if enough runs finished and all ledgers agree."""
    finished = [one for one in outcomes if one.finished]
    failures = Counter(one.failure for one in outcomes if one.failure)
    prices = [one.price for one in finished] or [0.0]
    rounds = sorted({one.rounds for one in finished})
    faults = [fault for one in outcomes for fault in one.faults]
    print(
        f"{len(SITES)} sites that drop out with {100 * chance:g} %, spare_attempts = {spares}: "
        f"{len(finished)} of {len(outcomes)} finished their {'/'.join(map(str, rounds))} rounds in "
        f"{statistics.mean([one.attempts for one in finished] or [0]):.2f} attempts on average; charged "
        f"{statistics.mean(prices):.3f} times the rounds on average, at most {max(prices):.3f}, of "
        f"{outcomes[0].reserved:.3f} set aside; ledgers "
        + ("agree" if not faults else f"differ: {faults[:3]}"),
        flush=True,
    )
    for why, times in failures.items():
        print(f"  {times} failed: {why}")
    return len(finished) >= ENOUGH * len(outcomes) and not faults


def main() -> int:
    """Print a line for each goal, or for the one that is named; exit code 1 if one is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--chance", type=float)
    parser.add_argument("--spares", type=int)
    parser.add_argument("--predicted", action="store_true")
    wanted = parser.parse_args()
    logging.getLogger("eigenveil").setLevel(logging.CRITICAL + 1)
    one = wanted.chance is not None and wanted.spares is not None
    good = True
    goals: Sequence[tuple[float, int]] = [(wanted.chance, wanted.spares)] if one else GOALS
    for chance, spares in goals:
        print(f"{100 * chance:g} %, spare_attempts = {spares}: {predicted(chance, spares)}", flush=True)
    if wanted.predicted:
        return 0
    with template(SITES) as made:
        outcomes: dict[tuple[float, int], list[Outcome]] = {goal: [] for goal in goals}
        for seed in range(wanted.runs):
            for goal in goals:
                chance, spares = goal
                outcomes[goal].append(run(chance, spares, seed, made))
            if (seed + 1) % EVERY == 0 or seed + 1 == wanted.runs:
                good = not [goal for goal in goals if not report(goal[0], goal[1], outcomes[goal])]
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
