"""A masked study of twelve sites as processes: killed over and over, and with one that is lost for good.

Passed: the study is released; each of its sums is, number by number, the exact answers of the sites that it
names and a share of noise for each; every attempt has one set, and is paid by all who have a part in it."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from eigenveil.numerics.encoding import FloatArray
from eigenveil.protocol.plan import Plan
from eigenveil.reporting.verify import load_release, verify_release
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Study, Trust
from eigenveil.study.toml import study_to_toml
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.demo.federation import COORDINATOR, DemoFederation
from eigenveil_client.demo.layout import (
    DemoLayout,
    demo_study,
    open_demo_folder,
    public_records,
    write_records,
)
from eigenveil_client.demo.processes import Processes
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.integration.test_kills import select, submit
from tests.torture.masked.known import wrong_round
from tests.torture.model import Witness, read

SITES, KILLS = 12, 24
DEADLINE = 6.0  # seconds: a site that is started again answers within them, unless the machine is very busy
PAUSES = (0.05, 0.8)  # seconds between two kills
SPARES = 7
GLANCE = 0.02


class Known(Processes):
    """Daemons are run by `tests.torture.masked.process`."""

    def command(self, name: str, program: str, *arguments: str | Path) -> list[str]:
        return [sys.executable, "-m", "tests.torture.masked.process", program, *map(str, arguments)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    layout: DemoLayout
    federation: DemoFederation
    study: Study

    @property
    def records(self) -> dict[str, FloatArray]:
        paths = {name: self.layout.records(name) for name in self.study.federation.sites}
        return {name: np.loadtxt(path, delimiter=",", skiprows=1) for name, path in paths.items()}

    def tried(self) -> int:
        ((count,),) = select(self.layout.coordinator / "state.db", "SELECT COUNT(*) FROM attempts")
        return int(count)

    def witness(self) -> Witness:
        found, names = Witness(), self.study.federation.sites
        sites = {name: self.layout.site(name) / "state.db" for name in names}
        found.look(read(self.layout.coordinator / "state.db", sites))
        return found


def a_study(
    sites: int, quorum: int, algorithm: Algorithm, trust: Trust = Trust.SECURE_AGGREGATION, **changes: Any
) -> Study:
    study = demo_study(sites, algorithm, 2, 2.0, trust)
    federation = replace(study.federation, quorum=quorum, deadline_seconds=DEADLINE)
    return replace(study, federation=federation, **changes)


@contextmanager
def running(folder: Path, study: Study) -> Iterator[Running]:
    with open_demo_folder(folder) as layout:
        layout.study.write_text(study_to_toml(study))
        processes = Known(layout.logs)
        try:
            federation = DemoFederation(layout, study, processes)
            write_records(layout, study, public_records().values)
            federation.set_up()
            yield Running(layout=layout, federation=federation, study=study)
        finally:
            processes.stop()


async def followed(here: Running) -> tuple[Plan, str, Mapping[str, Any]]:
    """Submit the study and watch it to its end: how that was, and what was released."""
    me = load_identity(here.layout.analyst)
    async with Analyst(me) as analyst:
        plan = await submit(analyst, study_to_toml(here.study), "masked")
        events = [event async for event in analyst.watch(bytes.fromhex(plan.digest))]
        if events[-1].state != pb.STUDY_STATE_RELEASED:
            return plan, events[-1].failure or pb.StudyState.Name(events[-1].state), {}
        release = load_release(await analyst.release(bytes.fromhex(plan.digest)))
        verify_release(release, me.release_keys.known)
        return plan, "", release.document


async def killed(here: Running, kills: int, seed: int) -> tuple[Plan, str, Mapping[str, Any]]:
    """The same, while daemons are killed and started again, and one site for good in the middle."""
    chance, names = random.Random(seed), here.study.federation.sites
    study = asyncio.create_task(followed(here))
    while not here.tried():
        await asyncio.sleep(GLANCE)
    for number in range(kills):
        await asyncio.sleep(chance.uniform(*PAUSES))
        victim = chance.choice((COORDINATOR, *names[:-1])) if number else names[-1]
        here.federation.kill(victim)
        if number:
            here.federation.restart(victim)
    return await study


def faults(here: Running, kills: int, seed: int) -> tuple[list[str], int]:
    plan, failure, document = asyncio.run(killed(here, kills, seed))
    witness = here.witness()
    found = [*witness.faults, *([f"the study failed: {failure}"] if failure else [])]
    if document and (wrong := wrong_round(plan, document, here.records)):
        found.append(wrong)
    return found, len(witness.sets)


def run(folder: Path, scale: float) -> tuple[list[str], str]:
    sites, kills = max(3, round(scale * SITES)), max(2, round(scale * KILLS))
    study = a_study(sites, max(2, sites // 2), Algorithm.DP_PCA, spare_attempts=SPARES)
    with running(folder / "demo", study) as here:
        found, tried = faults(here, kills, 1)
    detail = f"{sites} sites, one lost, {kills} kills: {tried} attempts, all paid; every sum exact"
    return found, detail
