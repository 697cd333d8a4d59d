"""Records that take up to twenty deadlines to load, in virtual time: no deadline counts it, within the limit
that the study states, whoever dies meanwhile.

While nobody dies no site is queried before its records are loaded, and every study ends with a release. Where
the limit is shorter than a load, and where sites or the coordinator die, sites may be queried earlier or be
absent, but each release is the sum of the answers of its sites, and all ledgers agree with it."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from eigenveil.protocol.plan import plan_from_json
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.fuzz.hunt import memory_folder
from tests.support import signed_by_analyst
from tests.torture.programs.operations import EVERYBODY, template, toml_of
from tests.torture.programs.programs import wrong_sums
from tests.torture.programs.virtual import Stuck, VirtualLoop, play
from tests.torture.programs.world import World, world

PROGRAMS = 40
DEADLINE, LONGEST = 20.0, 400.0  # seconds: of a round, and of a load
LIMIT, SHORT_LIMIT = 500.0, 30.0
END_SECONDS = 3000.0
T = TypeVar("T")


class _Load(Future[T]):
    """A load that ends when its time comes, or when its result is needed at once."""

    def __init__(self, load: Callable[[], T], early: Callable[[], None]) -> None:
        super().__init__()
        self._load, self._early = load, early

    def end(self) -> None:
        if not self.done():
            try:
                self.set_result(self._load())
            except BaseException as problem:  # noqa: BLE001 - it belongs to whoever asks for the result
                self.set_exception(problem)

    def result(self, timeout: float | None = None) -> T:
        if not self.done():
            self._early()
            self.end()
        return super().result(timeout)


@dataclass(slots=True)
class SlowLoader(Executor):
    """Loads for a drawn time. `early` are those whose result was needed before."""

    loop: VirtualLoop
    chance: random.Random
    loads: int = 0
    early: int = 0

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        self.loads += 1
        load = _Load(lambda: fn(*args, **kwargs), self._note)
        self.loop.call_later(self.chance.uniform(0, LONGEST), load.end)
        return load

    def _note(self) -> None:
        self.early += 1


async def _submit(here: World, number: int, limit: float) -> None:
    name = f"study-{number}"
    settings = {"epsilon": 1.0, "deadline_seconds": DEADLINE, "loading_seconds": limit}
    toml = toml_of(name, json.dumps(settings | ({"spares": 2} if number % 2 else {})))
    explained = await here.query("ExplainStudy", pb.ExplainStudyRequest(study_toml=toml, submission=name))
    until = here.clock("coordinator") // 1000 + 86_400
    signed = signed_by_analyst(plan_from_json(explained.plan_json), expires=until).to_proto()
    await here.query(
        "SubmitStudy", pb.SubmitStudyRequest(study_toml=toml, submission=name, authorization=signed)
    )


async def _die(here: World, chance: random.Random) -> None:
    """Let members die, and start them a moment later."""
    for _ in range(3):
        await asyncio.sleep(chance.uniform(0, LONGEST / 3))
        who = chance.choice(EVERYBODY)
        here.kill(who)
        await asyncio.sleep(chance.uniform(0, 2))
        await here.start(who)


async def _end(here: World) -> None:
    try:
        async with asyncio.timeout(END_SECONDS):
            while "running" in here.states().values():
                await asyncio.sleep(1)
    except TimeoutError:
        here.faults.append(f"no end within {END_SECONDS:.0f} s: {here.states()}")
    here.look()


def faults_of(seed: int, made: Path) -> tuple[list[str], Counter[str]]:
    """Run one program: what went wrong, and what happened."""
    logging.getLogger("eigenveil").setLevel(logging.CRITICAL + 1)
    chance, deadly, short = random.Random(seed), seed % 2 == 1, seed % 4 == 2

    async def work(loop: VirtualLoop) -> tuple[list[str], Counter[str]]:
        with world(loop, folder, made, seed) as here:
            here.loader = loader = SlowLoader(loop, chance)
            for who in EVERYBODY:
                await here.start(who)
            try:
                for number in range(2):
                    await _submit(here, number, SHORT_LIMIT if short else LIMIT)
                if deadly:
                    await _die(here, chance)
                await _end(here)
            except Stuck as problem:
                here.faults.append(f"stuck: {problem}")
            states, deaths = Counter(here.states().values()), here.kills
            here.close()
            faults = [*here.faults, *here.network.defects, *here.witness.faults, *wrong_sums(here)]
            if not deadly and not short:
                faults += [f"{loader.early} sites were queried while they loaded"] if loader.early else []
                ended = set(states) == {"released"}
                faults += [] if ended else [f"not every study was released: {dict(states)}"]
            return faults, states + Counter(deaths=deaths, loads=loader.loads, early=loader.early)

    with memory_folder() as folder:
        return play(work, seed)


def run(folder: Path, scale: float) -> tuple[list[str], str]:
    programs = max(8, round(PROGRAMS * scale))
    wrong, result = list[str](), Counter[str]()
    with template() as made:
        for seed in range(programs):
            faults, happened = faults_of(seed, made)
            wrong += [f"program {seed}: {fault}" for fault in faults[:1]]
            result += happened
    missing = [f"no {what}" for what in ("deaths", "early", "released") if not result[what]]
    return [*wrong, *missing], (
        f"{programs} programs: {result['loads']} loads of up to {LONGEST:.0f} s, deadlines of "
        f"{DEADLINE:.0f} s; {result['deaths']} deaths; {result['released']} studies released, "
        f"{result['failed']} failed; {result['early']} queries beyond the limit or after a death"
    )
