"""Rounds of a small study while the coordinator works on something large: one real coordinator process, three
light sites of a small study here, and what is beside it, with sites of its own, in another process.

`python -m benchmarks.beside [--only study ...]` prints, for each large thing, the median and the 99th
percentile of the small study's rounds beside it, over those without, which alternate with them in the same
run; then what the processor of the coordinator did. A round lasts from the small sites' hearing of its query
to their hearing of the next. The anchors, `one-core` and `all-cores`, are other processes that only compute:
what they cost the rounds is the machine's part."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import ssl
import statistics
import sys
import time
from argparse import ArgumentParser
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPSConnection
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.light_sites import Held, Shared
from benchmarks.many_sites import Asked, Coordinator, at_work, coordinating, federation, run_study, study_toml
from benchmarks.process import free_ports, kept_if_failed
from eigenveil.protocol.query import RoundQuery
from eigenveil_client.connection.channel import call
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc

SPIN_SECONDS = 2.0
SPIN = f"import time; end = time.monotonic() + {SPIN_SECONDS}\nwhile time.monotonic() < end: pass"
SITES, LARGE_SITES, RECORDS, TIMES, LARGE_NICE = 3, 3, 200, 4, 19
SMALL, WIDE = Asked(), Asked(columns=2_000, algorithm="gauss-cov")
PLANNED = Asked(columns=500, algorithm="refined-cov")
GOAL = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Milliseconds of rounds that began, and ended, without or beside the large work, and CPU seconds of the
    coordinator in either time."""

    without: Sequence[float]
    beside: Sequence[float]

    @property
    def ratios(self) -> tuple[float, float]:
        """Median and 99th percentile beside the work, over those without."""
        median = statistics.median(self.beside) / statistics.median(self.without)
        return median, percentile(self.beside) / percentile(self.without)


def percentile(values: Sequence[float], share: float = 0.99) -> float:
    """Return the least value that `share` of all do not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


# ------------------------------------------------------------ what is beside, in a process of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Large:
    """All that the large work needs; `studies` are released studies of 2,000 columns."""

    analyst: Held
    sites: Sequence[str]
    config: Path
    console: int
    studies: list[str]

    async def study(self, number: int) -> None:
        """Run one more such study."""
        self.studies.append(
            await run_study(self.analyst, study_toml(self.sites, WIDE, "large"), f"large-{number}")
        )

    async def plan(self, number: int) -> None:
        """Plan a study, of which nothing is cached."""
        toml = study_toml(self.sites, PLANNED, f"planned-{number}")
        async with self.analyst.channel() as channel:
            request = pb.ExplainStudyRequest(study_toml=toml)
            await call(rpc.CoordinatorStub(channel).ExplainStudy, request, seconds=300, attempts=1)

    async def page(self, number: int) -> None:
        """See the page of a study, and download its release, ten times."""
        for _ in range(10):
            for path in ("", "/release.zip"):
                await asyncio.to_thread(self._get, f"/studies/{self.studies[0]}{path}")

    async def report(self, number: int) -> None:
        """See the report of a study that nobody saw before."""
        await asyncio.to_thread(self._get, f"/studies/{self.studies[number]}/report")

    async def backup(self, number: int) -> None:
        """Back up the coordinator."""
        command = (sys.executable, "-m", "eigenveil_server.cli", "backup", "--config", str(self.config))
        out = self.config.parent.parent / f"backup-{number}"
        process = await asyncio.create_subprocess_exec(*command, "--out", str(out), stdout=DEVNULL)
        if await process.wait():
            raise RuntimeError("there is no backup")

    async def one_core(self, number: int) -> None:
        """Compute on one core, without the coordinator."""
        await spin(1)

    async def all_cores(self, number: int) -> None:
        """Compute on every core, without the coordinator."""
        await spin(os.cpu_count() or 1)

    def _get(self, path: str) -> None:
        pair = self.config.parent / "analyst.pem"
        pair.write_bytes(self.analyst.key + self.analyst.certificate)
        tls = ssl.create_default_context(cadata=self.analyst.ca.decode())
        tls.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        tls.load_cert_chain(pair)
        with closing(HTTPSConnection("127.0.0.1", self.console, context=tls, timeout=120)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            if answer.status != HTTPStatus.OK:
                raise RuntimeError(f"{path}: {answer.status}")


async def spin(processes: int) -> None:
    """Let so many processes compute for SPIN_SECONDS."""
    command = (sys.executable, "-c", SPIN)
    started = [await asyncio.create_subprocess_exec(*command) for _ in range(processes)]
    await asyncio.gather(*(process.wait() for process in started))


Work = Callable[[Large, int], Coroutine[Any, Any, None]]
ANCHORS: dict[str, Work] = {"one-core": Large.one_core, "all-cores": Large.all_cores}
WORKS: dict[str, Work] = {
    **ANCHORS,
    "study": Large.study,
    "plan": Large.plan,
    "page": Large.page,
    "report": Large.report,
    "backup": Large.backup,
}


def beside(ends: Connection, name: str, times: int, large: Large, sites: Sequence[Held]) -> None:
    """Do the work each time that it is requested, and notify when it is done."""
    if name not in ANCHORS:
        os.nice(LARGE_NICE)  # elsewhere, these sites have processors of their own
    asyncio.run(_beside(ends, name, times, large, sites))


async def _beside(ends: Connection, name: str, times: int, large: Large, sites: Sequence[Held]) -> None:
    loop, work = asyncio.get_running_loop(), WORKS[name]
    before = {"page": 1, "backup": 1, "report": times + 1}.get(name, 0)
    async with at_work(sites, Shared(RECORDS, lambda _: None)):
        for number in range(before):
            await large.study(-1 - number)
        ends.send(None)
        while (number := await loop.run_in_executor(None, ends.recv)) is not None:
            await work(large, number)
            ends.send(None)


# ------------------------------------------------------------ rounds, here


@dataclass(slots=True)
class Small:
    """Small studies one after another, and when their sites heard of each query."""

    analyst: Held
    sites: Sequence[Held]
    heard: list[tuple[float, str]]
    number: int = 0

    def seen(self, round_query: RoundQuery) -> None:
        self.heard.append((time.monotonic(), round_query.plan_digest))

    async def run(self) -> None:
        """Run for ever."""
        toml = study_toml([one.name for one in self.sites], SMALL, "small")
        while True:
            self.number += 1
            await run_study(self.analyst, toml, f"small-{self.number}")

    def rounds(self, first: float, last: float) -> list[float]:
        """Milliseconds of the rounds that began and ended in between."""
        within = [one for one in self.heard if first <= one[0] <= last]
        return [1e3 * (b[0] - a[0]) for a, b in pairwise(within) if a[1] == b[1]]


@asynccontextmanager
async def running(small: Small) -> AsyncIterator[None]:
    """Run small studies meanwhile."""
    async with at_work(small.sites, Shared(RECORDS, small.seen)):
        task = asyncio.create_task(small.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def measured(
    coordinator: Coordinator, small: Small, ends: Connection, times: int
) -> tuple[Rounds, float, float]:
    """Rounds without and beside, alternating."""
    loop, without, within = asyncio.get_running_loop(), list[float](), list[float]()
    cpu = {False: 0.0, True: 0.0}
    seconds = {False: 0.0, True: 0.0}
    async with running(small):
        await loop.run_in_executor(None, ends.recv)
        await asyncio.sleep(2)
        for number in range(times + 1):
            begin, used = time.monotonic(), coordinator.cpu()
            ends.send(number)
            await loop.run_in_executor(None, ends.recv)
            middle, used_beside = time.monotonic(), coordinator.cpu()
            await asyncio.sleep(middle - begin)
            end = time.monotonic()
            if number:  # the first warms up
                within += small.rounds(begin, middle)
                without += small.rounds(middle, end)
                seconds[True] += middle - begin
                seconds[False] += end - middle
                cpu[True] += used_beside - used
                cpu[False] += coordinator.cpu() - used_beside
        ends.send(None)
    large = (cpu[True] - cpu[False] / seconds[False] * seconds[True]) / times
    return Rounds(without=without, beside=within), seconds[True] / times, large


def run(name: str, times: int = TIMES) -> tuple[Rounds, float, float]:
    """Measure beside one large thing, done `times` times."""
    (console,) = free_ports(1)
    context = multiprocessing.get_context("spawn")
    with kept_if_failed() as folder:
        made = federation(folder, SITES + LARGE_SITES)
        with made.toml.open("a") as file:
            file.write(f'[console]\nlisten = "127.0.0.1:{console}"\n')
        few, others = made.sites[:SITES], made.sites[SITES:]
        with coordinating(made) as coordinator:
            ends, theirs = context.Pipe()
            names = [one.name for one in others]
            large = Large(analyst=made.analyst, sites=names, config=made.toml, console=console, studies=[])
            process = context.Process(target=beside, args=(theirs, name, times, large, others), daemon=True)
            process.start()
            theirs.close()  # if it fails, nothing more comes
            small = Small(made.analyst, few, [])
            try:
                return asyncio.run(measured(coordinator, small, ends, times))
            finally:
                process.kill()


def main() -> int:
    """Print a line for each large thing; 1 if one disturbs the rounds more than it may."""
    parser = ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=WORKS, default=tuple(WORKS))
    parser.add_argument("--times", type=int, default=TIMES)
    wanted = parser.parse_args()
    missed = 0
    for name in wanted.only:
        rounds, seconds, cpu = run(name, wanted.times)
        median, worst = rounds.ratios
        missed += name not in ANCHORS and worst > GOAL
        print(
            f"beside {name}: {len(rounds.beside)} rounds, median {statistics.median(rounds.beside):.1f} ms "
            f"({median:.2f} times the {statistics.median(rounds.without):.1f} without), p99 "
            f"{percentile(rounds.beside):.1f} ({worst:.2f} times {percentile(rounds.without):.1f}), longest "
            f"{max(rounds.beside):.0f} ({max(rounds.without):.0f}); it took {seconds:.1f} s and "
            f"{cpu:.1f} s of the coordinator's CPU",
            flush=True,
        )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
