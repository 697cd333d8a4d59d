"""Random programs of faults against the whole federation, in virtual time: nothing is counted twice.

A program is up to 60 operations on a coordinator, three sites and an analyst: requests and answers lost,
requests repeated (some much later), lines cut, clocks that jump, deaths at a moment or at a failpoint,
certificates renewed, studies submitted and cancelled. Then the faults stop. Nothing is added to the sums, and
each site's records stand in a column of their own, so a release must be, number by number, the sum of the
answers of the sites that it names. The books are held against `tests.torture.model` after every death."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from eigenveil.errors import EigenveilError
from eigenveil.mechanisms import apply_mechanism
from eigenveil.numerics.encoding import frozen
from eigenveil.protocol.plan import plan_from_json
from eigenveil.protocol.wire import query_from_proto
from eigenveil.reporting.release_file import Data
from eigenveil.reporting.verify import load_release
from eigenveil.site.record_view import to_grid
from eigenveil.site.site import Site
from eigenveil_common.files import disarm
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.storage.database import open_store
from eigenveil_server.storage.study_reads import Studies
from tests.fuzz.hunt import memory_folder
from tests.support import signed_by_analyst
from tests.torture.masked.known import SHARE
from tests.torture.programs.lossy import LOSE_ANSWER, LOSE_REQUEST, REPEAT
from tests.torture.programs.operations import (
    EVERYBODY,
    NoNoise,
    Op,
    Program,
    drawn,
    one_hot,
    template,
    toml_of,
)
from tests.torture.programs.virtual import Stuck, VirtualLoop, play
from tests.torture.programs.world import World, world

PROGRAMS = 300
RARE = 100  # programs in which some round is tried again: about one in thirty has such a round
END_SECONDS = 60.0  # virtual, after the faults
FOUND = Path(__file__).parent / "found"


@dataclass(slots=True)
class Runner:
    here: World
    submitting: list[asyncio.Task[str]]
    others: list[asyncio.Task[None]]

    async def run(self, program: Program) -> None:
        for who in EVERYBODY:
            await self.here.start(who)
        for operation in program:
            await self._do(operation)
        await self._calm()

    async def _do(self, op: Op) -> None:
        here, network = self.here, self.here.network
        match op.kind:
            case "wait":
                await asyncio.sleep(op.amount)
            case "submit":
                self.submitting.append(here.loop.create_task(self._submit(len(self.submitting), op.name)))
            case "cancel":
                self.others.append(here.loop.create_task(self._cancel(int(op.amount))))
            case "cut":
                network.cut.add(op.who)
            case "mend":
                network.mend(op.who)
            case "renew":
                here.due.add(op.who)
                network.drop(op.who)
            case "jump":
                here.jump[op.who] += int(op.amount)
            case "kill":
                here.kill(op.who)
            case "kill-at":
                here.doom(op.who, op.name, int(op.amount))
            case "start":
                await here.start(op.who)
            case fault:
                network.due[op.who].append(fault)

    async def _submit(self, number: int, settings: str) -> str:
        name = f"study-{number}"
        toml = toml_of(name, settings)
        round_query = pb.ExplainStudyRequest(study_toml=toml, submission=name)
        plan = plan_from_json((await self.here.query("ExplainStudy", round_query)).plan_json)
        until = self.here.clock("coordinator") // 1000 + 15 * 86_400  # clocks jump
        signed = signed_by_analyst(plan, expires=until).to_proto()
        request = pb.SubmitStudyRequest(study_toml=toml, submission=name, authorization=signed)
        answer = await self.here.query("SubmitStudy", request)
        return str(answer.plan_digest.hex())

    async def _cancel(self, number: int) -> None:
        if number < len(self.submitting):
            digest = bytes.fromhex(await self.submitting[number])
            try:
                await self.here.query("CancelStudy", pb.CancelStudyRequest(plan_digest=digest))
            except EigenveilError as problem:
                if "has ended already" not in str(problem):
                    raise

    async def _calm(self) -> None:
        here = self.here
        here.network.heal()
        disarm()
        for who in EVERYBODY:
            await here.start(who)
        try:
            async with asyncio.timeout(END_SECONDS):
                await asyncio.gather(*self.submitting, *self.others)
                while "running" in here.states().values():
                    await asyncio.sleep(0.5)
        except TimeoutError:
            here.faults.append(f"no end within {END_SECONDS:.0f} s: {here.states()}")
        here.look()


def wrong_sums(here: World) -> Iterator[str]:
    """Every release that is not the sum of the answers of the sites that it names."""
    store = open_store(here.config.files.database)
    try:
        studies = Studies(store.reader)
        for stored in studies.all():
            plan = plan_from_json(stored.plan_json)
            sites = {name: Site(to_grid(one_hot(name, here.sites), plan.study)) for name in here.sites}
            for release in (one.release for one in studies.sealed_rounds(stored.digest)):
                round_query = store.reader.rows(
                    "SELECT query FROM rounds WHERE (study, round) = (?, ?)", (stored.digest, release.round)
                )
                query = query_from_proto(pb.Query.FromString(round_query[0]["query"]))
                answers = [sites[name].answer(query.query) for name in release.present]
                total = frozen(np.sum(answers, axis=0, dtype=np.int64))
                due = apply_mechanism(query.priced, total, plan.study, NoNoise(), release.present).values
                due = due + SHARE * len(release.present) * plan.masked
                if not np.array_equal(due, release.values):
                    yield f"round {release.round} is not the sum of {', '.join(release.present)}"
            yield from _wrong_words(studies.release(stored.digest), here.sites)
    finally:
        store.close()


def _wrong_words(release: Data | None, invited: Sequence[str]) -> Iterator[str]:
    """A signed release names every invited site once a round: as present, or as absent with a reason."""
    for one in load_release(release).document["rounds"] if release else ():
        if sorted([*one["present"], *one["absent"]]) != sorted(invited):
            yield f"round {one['round']} names {one['present']} and {sorted(one['absent'])}"


def faults_of(program: Program, seed: int, made: Path) -> tuple[list[str], Counter[str]]:
    logging.getLogger("eigenveil").setLevel(logging.CRITICAL + 1)
    with memory_folder() as folder:

        async def work(loop: VirtualLoop) -> tuple[list[str], Counter[str]]:
            with world(loop, folder, made, seed) as here:
                runner = Runner(here, [], [])
                try:
                    await runner.run(program)
                except Stuck as problem:
                    here.faults.append(f"stuck: {problem}")
                states, deaths = Counter(here.states().values()), here.kills
                here.close()
                faults = [*here.faults, *here.network.defects, *here.witness.faults, *wrong_sums(here)]
                stored_program, tried = (
                    len(here.witness.digests),
                    Counter(place for place, _ in here.witness.sets),
                )
                result = Counter(
                    {"deaths": deaths, "releases": stored_program, **states, **here.network.done}
                )
                result += Counter(masked=len(tried), again=tried.total() - len(tried))
            return faults, result

        return play(work, seed)


def shrunk(program: Program, seed: int, made: Path) -> Program:
    """A shorter program that still goes wrong: leave out runs of operations while it does."""
    size = len(program) // 2
    while size:
        start = 0
        while start < len(program):
            shorter = program[:start] + program[start + size :]
            if shorter and faults_of(shorter, seed, made)[0]:
                program = shorter
            else:
                start += size
        size //= 2
    return program


def store(program: Program, seed: int, faults: list[str], folder: Path = FOUND) -> Path:
    """Write a reproduction; `test_programs.py` runs every one of them."""
    folder.mkdir(exist_ok=True)
    path = folder / f"program-{seed}.json"
    lines = ",\n".join(json.dumps(asdict(op)) for op in program)
    path.write_text(f'{{"seed": {seed}, "faults": {json.dumps(faults)}, "program": [\n{lines}]}}\n')
    return path


def stored_program(path: Path) -> tuple[Program, int]:
    message = json.loads(path.read_text())
    return tuple(Op(**op) for op in message["program"]), message["seed"]


def hunt(programs: int, first: int = 0, found: Path = FOUND) -> tuple[list[str], Counter[str]]:
    """Run `programs` programs; each failure is shrunk and kept. What was wrong, and what happened."""
    wrong: list[str] = []
    result: Counter[str] = Counter()
    with template() as made:
        for seed in range(first, first + programs):
            faults, happened = faults_of(drawn(seed), seed, made)
            result += happened
            if faults:
                small = shrunk(drawn(seed), seed, made)
                store(small, seed, faults_of(small, seed, made)[0], found)
                wrong.append(f"program {seed}: {faults[0]}")
    return wrong, result


def verdict(programs: int, wrong: list[str], result: Counter[str]) -> tuple[list[str], str]:
    happened = (
        "deaths", "releases", "masked", *(("again",) if programs >= RARE else ()), LOSE_REQUEST, LOSE_ANSWER,
        REPEAT, "Renew", "released",
    )  # fmt: skip
    missing = [f"no {what}" for what in happened if not result[what]]
    detail = (
        f"{programs} programs: {result['deaths']} deaths, {result[LOSE_REQUEST]} requests and "
        f"{result[LOSE_ANSWER]} answers lost, {result[REPEAT]} repeated, {result['Renew']} renewals; "
        f"{result['released']} studies released, {result['failed']} failed, {result['cancelled']} cancelled; "
        f"{result['releases']} sums exact, every one charged; {result['masked']} masked rounds, tried "
        f"{result['again']} times again"
    )
    return [*wrong, *missing], detail


def run(folder: Path, scale: float) -> tuple[list[str], str]:
    programs = max(10, round(PROGRAMS * scale))
    return verdict(programs, *hunt(programs))
