"""Check 2, second half: the N-th sync or write of a process fails, or its disk is full.

A coordinator process serves study after study until its disk fails. It must end by itself with a code that
is not 0, and whatever it said to a site or an analyst until then must be on the disk: charged and sealed.
A site's process must end likewise, and whatever the coordinator got of it must be charged and in its egress
ledger."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import NamedTuple

import grpc

from eigenveil.identity import Role
from eigenveil.planning.choose import rehearse
from eigenveil_common.config import load
from eigenveil_common.rpc import OPTIONS
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.config import Config
from eigenveil_server.storage.database import open_store
from eigenveil_server.storage.study_reads import Studies
from tests.client.site import support as sites
from tests.client.site.command_line import written
from tests.server.rig import SITES, Client, Credentials, answering, made, serving, study_toml
from tests.torture.crashes.armed import Command
from tests.torture.crashes.vfs_faulty import Fault, Kind, Stricken
from tests.torture.front.besieged import client_of

MOST = 150
AT_ONCE = 3
STUDIES = 60
END_SECONDS = 60.0  # for a process to meet its fault, and to end
AFTER_SECONDS = 20.0  # to end after its fault; it leaves at once, and other processes share the machine
GLANCE = 0.01  # seconds
STUDY = study_toml(algorithm="dp-pca", epsilon=0.5, deadline_seconds=60.0)
CONFIG = "coordinator.toml"


class Choice(NamedTuple):
    who: str
    kind: Kind
    at: int


@dataclass(slots=True)
class Published:
    """Statements of the coordinator: the rounds it showed as sealed, the releases it handed out."""

    sealed: set[tuple[str, int]] = field(default_factory=set)
    bundles: dict[str, bytes] = field(default_factory=dict)

    def lost(self, config: Config) -> list[str]:
        store = open_store(config.store)
        try:
            studies, ledger = Studies(store.reader), LedgerStore(store.writer, config.budget, lambda: 0)
            charged = ledger.charges()
            found = [
                f"round {round} was published and is not {word}"
                for study, round in sorted(self.sealed)
                for word, there in (
                    ("charged", (study, round) in charged),
                    ("sealed", studies.sealed(study, round) is not None),
                )
                if not there
            ]
            released = {row[0]: row[1] for row in store.reader.rows("SELECT digest, release FROM studies")}
            found += [
                "a release that was handed out is not there"
                for study, data in self.bundles.items()
                if released.get(study) != data
            ]
            return found
        finally:
            store.close()


@dataclass(frozen=True, slots=True)
class Template:
    folder: Path
    sites: Mapping[str, Credentials]
    analyst: Credentials


async def template(folder: Path) -> Template:
    config = made(folder, budget_epsilon=1e4)
    async with serving(config) as rig:
        sites = {name: await rig.credentials(Role.SITE, name) for name in SITES}
        return Template(folder, sites, await rig.credentials(Role.ANALYST, "ada"))


async def _ended(process: ForkServerProcess, fault: Fault) -> None:
    """Wait for the end of a process, which comes soon after its fault.

    Raises:
        TimeoutError: it met its fault and goes on."""
    while process.is_alive() and not fault.marker.exists():
        await asyncio.sleep(GLANCE)
    async with asyncio.timeout(AFTER_SECONDS):
        while process.is_alive():
            await asyncio.sleep(GLANCE)


def _went_on(process: ForkServerProcess, fault: Fault, who: str) -> list[str]:
    process.kill()
    process.join()
    seen = "the process went on" if fault.marker.exists() else "the fault was not met"
    return [f"{who}, {fault.kind.name} {fault.at}: {seen}"]


async def _studies(analyst: Client, result: Published) -> None:
    """Submit and watch, one study after the other, until the coordinator is gone."""
    with suppress(grpc.aio.AioRpcError):
        for number in range(1000):
            study = await analyst.submit(STUDY, f"study-{number}")
            watch = pb.WatchStudyRequest(plan_digest=bytes.fromhex(study))
            async for event in analyst.stub.WatchStudy(watch):
                if event.round_state == "released":
                    result.sealed.add((study, event.round))
            result.bundles[study] = await analyst.release(study)


async def _calls(command: Command, ended: asyncio.Task[None], made: Template, result: Published) -> None:
    while command.result() is None and not ended.done():
        await asyncio.sleep(GLANCE)
    serving = command.result()
    if serving is None:
        return await ended
    sites = {name: client_of(serving["port"], stored, OPTIONS) for name, stored in made.sites.items()}
    analyst = client_of(serving["port"], made.analyst, OPTIONS)
    studies = asyncio.create_task(_studies(analyst, result))
    try:
        async with answering(sites):
            await ended
            await studies
    finally:
        studies.cancel()
        for client in (analyst, *sites.values()):
            await client.channel.close()


async def coordinator(made: Template, folder: Path, fault: Fault) -> list[str]:
    shutil.copytree(made.folder, folder)
    out, log = folder / "out", folder / "log"
    arguments = ("serve", "--config", str(folder / CONFIG))
    command = Command(program="eigenveil-coordinator", arguments=arguments, out=out, log=log)
    process, result = Stricken(command=command, fault=fault).start(), Published()
    ended = asyncio.create_task(_ended(process, fault))
    try:
        async with asyncio.timeout(END_SECONDS):
            await _calls(command, ended, made, result)
    except TimeoutError:
        return _went_on(process, fault, "coordinator")
    finally:
        ended.cancel()
    process.join()
    return _judged(fault, process, result.lost(load(folder / CONFIG, Config)), "coordinator")


class Sink(sites.Coordinator):
    """A coordinator that hands out study after study, and keeps what it gets."""

    def __init__(self, stage: sites.Stage) -> None:
        super().__init__()
        for number in range(STUDIES):
            plan = sites.a_plan(submission=f"study-{number}")
            first, *others = rehearse(plan)
            ended = pb.StudyEnd(plan_digest=bytes.fromhex(plan.digest), state=pb.STUDY_STATE_RELEASED)
            self.work += [sites.work(first, stage.signed(plan)), *map(sites.work, others)]
            self.work.append(pb.NextWorkResponse(ended=[ended]))

    def unpaid(self, stage: sites.Stage) -> list[str]:
        store = stage.store()
        try:
            entries = store.ledger.entries()
            charged = {(one.study, one.round): one.query for one in entries if one.kind.spends}
            rows = {(row.study, row.round) for row in store.egress.rows()}
        finally:
            store.close()
        got = {(one.plan_digest.hex(), one.round): one.query_digest.hex() for one in self.contributions}
        return [
            f"an answer to round {place[1]} left and is not {'charged' if place in rows else 'written down'}"
            for place, query in got.items()
            if charged.get(place) != query or place not in rows
        ]


async def site(folder: Path, fault: Fault) -> list[str]:
    """Let a site's disk fail; what is wrong with how it ended. Its database is there already: what fails
    while tables are made fails before anything is sent."""
    folder.mkdir()
    stage = sites.a_stage(folder, budget_epsilon=1e5)
    stage.store().close()
    sink = Sink(stage)
    config = str(written(stage, "budget_epsilon = 1e5\n"))
    command = Command(
        program="eigenveil-site", arguments=("serve", "--config", config), out=folder / "out",
        log=folder / "log",
    )  # fmt: skip
    async with stage.serving(sink):
        process = Stricken(command=command, fault=fault).start()
        try:
            async with asyncio.timeout(END_SECONDS):
                await _ended(process, fault)
        except TimeoutError:
            return _went_on(process, fault, "site")
    process.join()
    return _judged(fault, process, sink.unpaid(stage), "site")


def _judged(fault: Fault, process: ForkServerProcess, found: list[str], who: str) -> list[str]:
    if not fault.marker.exists() or not process.exitcode:
        met = "met" if fault.marker.exists() else "not met"
        found.append(f"exit code {process.exitcode}, fault {met}")
    return [f"{who}, {fault.kind.name} {fault.at}: {one}" for one in found]


async def faults(root: Path, chosen: Sequence[Choice]) -> list[str]:
    attempts = asyncio.Semaphore(AT_ONCE)
    made = await template(root / "template")

    async def one(number: int, choice: Choice) -> list[str]:
        folder = root / str(number)
        fault = Fault(choice.kind, choice.at, folder.with_suffix(".met"))
        async with attempts:
            if choice.who == "site":
                found = await site(folder, fault)
            else:
                found = await coordinator(made, folder, fault)
            shutil.rmtree(folder)
            return found

    found = await asyncio.gather(*(one(*numbered) for numbered in enumerate(chosen)))
    return [line for lines in found for line in lines]


def planned(scale: float) -> list[Choice]:
    """Calls that fail. At the coordinator every N-th sync, and as many writes, half of them because the
    disk is full; at a site a third as many, of each kind in turn."""
    step = max(1, round(1 / scale))
    calls = range(1, MOST + 1, step)
    write = {0: Kind.FULL, 1: Kind.WRITE}
    return [
        *(Choice("coordinator", Kind.SYNC, at) for at in calls),
        *(Choice("coordinator", write[place % 2], at) for place, at in enumerate(calls)),
        *(
            Choice("site", (Kind.SYNC, *write.values())[place % 3], at)
            for place, at in enumerate(range(1, MOST + 1, 3 * step))
        ),
    ]


async def run(folder: Path, scale: float) -> tuple[list[str], str]:
    """Every fault; none may leave a process that goes on, or a charge that is lost."""
    chosen = planned(scale)
    detail = f"{len(chosen)} failing calls, each ended its process, nothing released or sent after"
    return await faults(folder, chosen), detail
