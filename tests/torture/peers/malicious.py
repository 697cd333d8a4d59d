"""A malicious coordinator, with the federation's real keys, against a real site daemon.

Each attack begins after the site has answered honest questions, and ends with one more honest question.
Passed: the honest ones are answered, and of the attack nothing but refusals left: no contribution arrived,
the egress ledger has no row of one, and the site's log names the breach."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import Gram
from eigenveil.study.study import Federation
from eigenveil_client.site.policy import Approval
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.command_line import site, written
from tests.client.site.support import SITE, Coordinator, Stage, a_plan, a_stage, a_study, until, work
from tests.support import analyst_card, changed_query, signed_by_analyst
from tests.torture.peers import impersonation, steering

ATTACKERS = 2
# The study cannot go on without this site, so no round may be passed over.
PLAN = a_plan(a_study(federation=Federation(sites=(SITE, "hospital-b"), quorum=2)))
QUERIES = rehearse(PLAN)
COUNT, NORMS, GRAM = QUERIES[0], QUERIES[1], QUERIES[-1]
CONTROL = a_plan(submission="control")
Responses = list[pb.NextWorkResponse]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """Messages of a malicious coordinator after `honest` answers. `before` is what the operator
    does then; `seen` must be in the log, and `waits` says that it is not even declined. `pins`: people at the
    site have confirmed the analyst's key; `restarts`: the daemon does, before the attack; `settled` is what a
    person decides after it."""

    name: str
    seen: str
    evil: Callable[[Stage], Responses]
    honest: tuple[RoundQuery, ...] = (COUNT, NORMS)
    before: tuple[str, ...] = ()
    approval: Approval = Approval.AUTO
    waits: bool = False
    pins: bool = False
    restarts: bool = False
    settled: tuple[str, ...] = ()

    def question(self, stage: Stage, query: RoundQuery, plan: Plan) -> pb.NextWorkResponse:
        """An honest question, of a plan that its analyst signed where the site knows them."""
        return work(query, stage.authorized(plan, signed_by_analyst(plan) if self.pins else None))


def signed(plan: Plan) -> Callable[[Stage], Responses]:
    return lambda stage: [work(rehearse(plan)[0], stage.signed(plan))]


def questions(*queries: RoundQuery) -> Callable[[Stage], Responses]:
    return lambda _: [work(query) for query in queries]


def wider_clip(_: Stage) -> Responses:
    """A radius beyond the longest record that the public bounds allow, as no constructor would make it."""
    response = work(replace(GRAM, round=2))
    response.query.gram.radius = 2**40
    return [response]


def overflowing(_: Stage) -> Responses:
    first, second = work(replace(NORMS, round=2)), work(replace(GRAM, round=2))
    first.query.row_norms.edges = b"\xff" * 7 + b"\x7f" + b"\xff" * 7 + b"\x7f"
    second.query.micro_rho = 2**64 - 1
    return [first, second]


def plan_changed_after_signing(stage: Stage) -> Responses:
    """The quorum is lowered, under the signature of the plan that was agreed to."""
    lower = replace(
        PLAN, study=replace(PLAN.study, federation=Federation(sites=(SITE, "hospital-b"), quorum=1))
    )
    forged = pb.SignedPlan(plan_json=lower.to_json(), signature=stage.signed(PLAN).signature)
    return [work(rehearse(lower)[0], forged)]


def plan_swapped(stage: Stage) -> Responses:
    """Another signed plan beside a question about the one that was agreed to."""
    return [work(replace(GRAM, round=2), stage.signed(a_plan(submission="swapped")))]


def wrong_signature(stage: Stage) -> Responses:
    other = a_plan(submission="unsigned")
    return [work(rehearse(other)[0], pb.SignedPlan(plan_json=other.to_json(), signature=bytes(64)))]


def lower_quorum(stage: Stage) -> Responses:
    """A study that is easier to run alone, signed with the real key: another plan, to which nobody agreed."""
    federation = Federation(sites=(SITE, "hospital-b"), quorum=1, minimum_cohort=1)
    return signed(a_plan(a_study(federation=federation)))(stage)


def forged_checkpoint(stage: Stage) -> Responses:
    """A checkpoint that the federation's key did not sign, beside an honest-looking question."""
    response = work(replace(GRAM, round=2))
    unsigned = pb.SignedCheckpoint(checkpoint_json=b"{}", signature=bytes(64))
    response.checkpoint.CopyFrom(unsigned)
    return [response]


HIGH_COHORT = a_plan(a_study(federation=Federation(sites=(SITE, "hospital-b"), minimum_cohort=21)))
PRECISE = a_plan(a_study(epsilon=5.5))
PROTOCOL, POLICY, IDENTITY = "code=protocol", "code=site-policy", "code=identity"

ATTACKS = (
    Attack(name="changed clip", seen="code=plan-overflow", evil=wider_clip),
    Attack(name="clip of an answered round", seen=PROTOCOL,
           evil=questions(changed_query(GRAM, round=1, query=Gram(centre=np.zeros(3, np.int64), radius=5)))),
    Attack(name="changed columns", seen=PROTOCOL,
           evil=questions(changed_query(GRAM, round=2, query=Gram(centre=np.zeros(4, np.int64), radius=5)))),
    Attack(name="less noise than planned (price)", seen=PROTOCOL,
           evil=questions(changed_query(GRAM, round=2, micro_rho=PLAN.micro_rho))),
    Attack(name="question for nothing", seen=PROTOCOL,
           evil=questions(changed_query(GRAM, round=2, micro_rho=1))),
    Attack(name="less noise than allowed (plan)", seen=POLICY, evil=signed(PRECISE)),
    Attack(name="plan changed after signing", seen=IDENTITY, evil=plan_changed_after_signing),
    Attack(name="plan swapped in mid-study", seen=PROTOCOL, evil=plan_swapped),
    Attack(name="lowered quorum", seen="study-waits", evil=lower_quorum,
           honest=(), approval=Approval.MANUAL, waits=True),
    Attack(name="cohort that probes the site", seen=POLICY, evil=signed(HIGH_COHORT)),
    Attack(name="replayed round", seen=PROTOCOL, evil=questions(COUNT)),
    Attack(name="second, different question", seen=PROTOCOL, evil=questions(replace(GRAM, round=1))),
    Attack(name="round out of order", seen=PROTOCOL, evil=questions(replace(GRAM, round=7))),
    Attack(name="forged checkpoint", seen="checkpoint-refused", evil=forged_checkpoint, waits=True),
    Attack(name="wrong plan signature", seen=IDENTITY, evil=wrong_signature),
    Attack(name="another federation's plan", seen=PROTOCOL, evil=signed(a_plan(federation="elsewhere"))),
    Attack(name="site that is not invited", seen=PROTOCOL,
           evil=signed(a_plan(a_study(federation=Federation(sites=("hospital-b",)))))),
    Attack(name="overflowing questions", seen="code=", evil=overflowing),
    Attack(name="unapproved study", seen="study-waits",
           evil=lambda stage: [*signed(PLAN)(stage), work(COUNT)],
           honest=(), approval=Approval.MANUAL, waits=True),
    Attack(name="withdrawn study", seen=POLICY, evil=questions(replace(GRAM, round=2)),
           before=("withdraw", PLAN.digest)),
    Attack(name="one round more than the plan has", seen=PROTOCOL, honest=QUERIES,
           evil=questions(replace(NORMS, round=len(QUERIES)))),
    *(Attack(name=name, seen="code=", evil=evil) for name, evil in steering.questions(PLAN).items()),
)  # fmt: skip


CARD = analyst_card("ada", PLAN.federation).check()
DECIDED = ("analysts", "confirm", "ada", "--fingerprint", CARD.fingerprint, "--by", "Kim")
IMPERSONATIONS = (
    *(Attack(name=name, seen=seen, evil=evil, pins=True, waits=name in impersonation.PUT_OFF,
             settled=DECIDED if "key" in name and IDENTITY not in seen else ())
      for name, (seen, evil) in impersonation.ATTACKS.items()),
    Attack(name="another plan under a used id", seen="code=conflict", pins=True,
           evil=impersonation.under_the_id_of(PLAN)),
    Attack(name="her study again after its end", seen=PROTOCOL, honest=QUERIES, pins=True,
           evil=impersonation.ended_and_replayed(PLAN)),
    Attack(name="her study again after its end and a restart", seen=PROTOCOL, honest=QUERIES, pins=True,
           evil=impersonation.ended_and_replayed(PLAN), restarts=True),
)  # fmt: skip


@dataclass(slots=True)
class Outcome:
    """Outcome of an attack; `faults` is empty if all is well."""

    name: str
    faults: list[str] = field(default_factory=list)
    answered: int = 0


Daemon = Callable[[Stage, Path], AbstractAsyncContextManager[object]]


async def assault(stage: Stage, attack: Attack, daemon: Daemon, log: Path) -> Outcome:
    outcome = Outcome(attack.name)
    coordinator = Coordinator()
    config = written(stage, f'approval = "{attack.approval.value}"\n')
    if attack.pins:
        stage.know_analyst()
    async with stage.serving(coordinator):
        async with daemon(stage, log):
            for query in attack.honest:
                coordinator.work.append(attack.question(stage, query, PLAN))
            await until(lambda: len(coordinator.contributions) == len(attack.honest))
            if attack.before:
                await asyncio.to_thread(site, config, *attack.before)
            if not attack.restarts:
                await _attack(stage, coordinator, config, attack)
        if attack.restarts:
            async with daemon(stage, log):
                await _attack(stage, coordinator, config, attack)
    _judge(stage, coordinator, attack, log, outcome)
    return outcome


async def _attack(stage: Stage, coordinator: Coordinator, config: Path, attack: Attack) -> None:
    coordinator.work.extend(attack.evil(stage))
    await until(lambda: not coordinator.work)
    if attack.settled:
        await until(lambda: coordinator.declines)
        await asyncio.to_thread(site, config, *attack.settled)
    await _control(stage, coordinator, config, attack)
    await until(lambda: len(coordinator.contributions) > len(attack.honest))


async def _control(stage: Stage, coordinator: Coordinator, config: Path, attack: Attack) -> None:
    coordinator.work.append(attack.question(stage, rehearse(CONTROL)[0], CONTROL))
    if attack.approval is Approval.AUTO:
        return
    waiting = bytes.fromhex(CONTROL.digest)
    await until(lambda: any(waiting in one.awaiting_approval for one in coordinator.requests))
    await asyncio.to_thread(site, config, "approve", CONTROL.digest, "--yes")
    coordinator.work.append(work(rehearse(CONTROL)[0]))


def _judge(stage: Stage, coordinator: Coordinator, attack: Attack, log: Path, outcome: Outcome) -> None:
    wanted = [*((PLAN.digest, query.round) for query in attack.honest), (CONTROL.digest, 0)]
    sent = [(one.plan_digest.hex(), one.round) for one in coordinator.contributions]
    store = stage.store()
    rows = [(row.study, row.round) for row in store.egress.verify(store.ledger) if row.query]
    store.close()
    outcome.answered = len(sent)
    if sent != wanted:
        outcome.faults.append(f"{len(sent)} contributions left, {len(wanted)} were asked honestly")
    if rows != wanted:
        outcome.faults.append("the egress ledger has a row of an answer that nobody asked honestly")
    if bool(coordinator.declines) == attack.waits:
        outcome.faults.append("declined" if attack.waits else "not declined")
    if attack.seen not in log.read_text():
        outcome.faults.append(f"the log does not say {attack.seen}")


@asynccontextmanager
async def process(stage: Stage, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """`eigenveil-site serve`, as a process of its own."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"}
    with log.open("ab") as lines:
        started = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "eigenveil_client.site.commands.main",
            "serve", "--config", str(stage.folder / "site.toml"),
            stdout=asyncio.subprocess.DEVNULL, stderr=lines, env=environment,
        )  # fmt: skip
        try:
            yield started
        finally:
            if started.returncode is None:
                started.terminate()
            await started.wait()


async def _all(attacks: tuple[Attack, ...], folder: Path) -> list[Outcome]:
    attempts = asyncio.Semaphore(ATTACKERS)

    async def one(number: int, attack: Attack) -> Outcome:
        async with attempts:
            here = folder / str(number)
            here.mkdir()
            return await assault(a_stage(here, approval=attack.approval), attack, process, here / "log")

    return list(await asyncio.gather(*(one(number, attack) for number, attack in enumerate(attacks))))


async def run(folder: Path, scale: float) -> tuple[list[str], str]:
    most = max(2, round(scale * len(ATTACKS)))
    attacks = (*ATTACKS[:most], *IMPERSONATIONS[:most])
    outcomes = await _all(attacks, folder)
    bad = [f"{one.name}: {'; '.join(one.faults)}" for one in outcomes if one.faults]
    answered = sum(one.answered for one in outcomes)
    return bad if answered else ["no honest question was answered"], (
        f"{len(outcomes)} attacks, {len(outcomes) - len(bad)} refused, logged and unanswered; "
        f"{answered} honest questions answered"
    )
