"""Cost of a round with 3 to 500 sites: one real coordinator process behind its front door with mutual TLS,
and that many light sites (`benchmarks.light_sites`) in this process.

`python -m benchmarks.many_sites [--columns D] [--trust TRUST] [--database URL] [SITES ...]` prints, for each
number of sites, a round's time by the coordinator's own records, CPU a round of either process, the
coordinator's peak memory, and how often its event loop was late; with `--restart`, how long it takes to come
back from a kill. All of it runs on one machine, so the sites' CPU is part of the time."""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from argparse import ArgumentParser
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.light_sites import FEDERATION, Held, LightSite, Shared, enrolled
from benchmarks.process import cpu_seconds, free_ports, kept_if_failed, resident_mib
from eigenveil.identity import Role
from eigenveil.protocol.plan import plan_from_json
from eigenveil.protocol.query import RoundQuery
from eigenveil.study.study import Trust
from eigenveil_client.connection.channel import call
from eigenveil_common.config import load
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc
from eigenveil_server.admin.setup import create
from eigenveil_server.config import Config
from eigenveil_server.pki.keys import load_keys
from eigenveil_server.pki.registry import Registry
from eigenveil_server.process import unix_ms
from eigenveil_server.storage.database import existing_store
from tests.support import signed_by_analyst

NUMBERS = (3, 10, 50, 100, 200, 500)
RECORDS, FIRST = 200, 3  # of each site; and the first round that counts
FEW = 50  # sites of which a study is told: the records of more would make it one of more rounds
KILLED_AT = 10  # the round of a restart
LATE = re.compile(r'eigenveil_event_loop_delay_seconds_bucket\{le="([^"]+)"\} (\S+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Of one study: milliseconds of each round, and of the first and the last until their release; CPU
    milliseconds a round of the coordinator and of all sites together; the coordinator's peak in MiB, seconds
    until the first question, and how many turns of its event loop began later than each bound (seconds)."""

    sites: int
    columns: int
    rounds: tuple[float, ...]
    first: float
    last: float
    coordinator_cpu: float
    sites_cpu: float
    peak_mib: float
    consent_seconds: float
    late: dict[str, float]

    @property
    def median(self) -> float:
        """Of the rounds' times."""
        return statistics.median(self.rounds)

    @property
    def p90(self) -> float:
        """Nine of ten rounds took no longer."""
        return sorted(self.rounds)[len(self.rounds) * 9 // 10]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Form of a study; by default gradient rounds, at which a site computes little and the coordinator
    adds."""

    columns: int = 20
    algorithm: str = "dp-pca"
    components: int = 1
    trust: Trust = Trust.CENTRAL


def study_toml(sites: Sequence[str], round_query: Asked, name: str) -> str:
    """A study of these sites."""
    column = '[[columns]]\nname = "x{}"\nunit = "1"\nlower = -1\nupper = 1\n'
    head = f"""name = "{name}"
algorithm = "{round_query.algorithm}"
components = {round_query.components}
[privacy]
epsilon = 1.0
delta = 1e-6
trust = "{round_query.trust.value}"
[federation]
sites = {json.dumps(sites)}
minimum_cohort = 5
deadline_seconds = 600
[records]
max_records = 100000
expected_records = {RECORDS * min(len(sites), FEW)}
"""
    return head + "".join(map(column.format, range(round_query.columns)))


USUAL = Asked()


def names(sites: int) -> list[str]:
    """The sites' names."""
    return [f"site-{i:04}" for i in range(sites)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Federation:
    """A coordinator's folder, the port of its metrics, and all who may call it."""

    config: Config
    metrics: int
    toml: Path
    analyst: Held
    sites: tuple[Held, ...]


def federation(folder: Path, sites: int, database: str = "") -> Federation:
    """A new federation with `sites` enrolled sites."""
    port, enrol_port, metrics = free_ports(3)
    toml = create(
        folder / "coordinator", federation=FEDERATION, host="127.0.0.1", port=port,
        enrol_port=enrol_port, budget_epsilon=1e6, budget_delta=1e-3, database=database,
    )  # fmt: skip
    extra = f'metrics = "127.0.0.1:{metrics}"\nstart_minutes = 0\nmax_studies_per_analyst = 1000000\n'
    extra += "max_columns = 20000\nmax_share_per_analyst = 1.0\n"
    config = load(toml, Config)
    toml.write_text(toml.read_text() + extra)
    with closing(existing_store(config)) as store:
        registry, keys = Registry(store, FEDERATION, unix_ms), load_keys(config.files)
        ca, to = config.files.ca.read_bytes(), f"127.0.0.1:{port}"

        def one(role: Role, name: str) -> Held:
            return enrolled(registry, keys.authority, role, name, ca, to)

        stored = tuple(one(Role.SITE, name) for name in names(sites))
        return Federation(
            config=config, metrics=metrics, toml=toml, analyst=one(Role.ANALYST, "alice"), sites=stored
        )


class Coordinator:
    """The process, and what the system says of it."""

    def __init__(self, federation: Federation) -> None:
        command = (sys.executable, "-m", "eigenveil_server.cli", "serve", "--config", str(federation.toml))
        self._log = (federation.toml.parent.parent / "coordinator.log").open("ab")
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log)
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError(f"the coordinator did not start; see {self._log.name}")
        self._metrics = f"http://127.0.0.1:{federation.metrics}/metrics"

    def cpu(self) -> float:
        """CPU seconds so far, with those of subprocesses that have ended."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return cpu_seconds(self._process.pid) + sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")

    def peak(self) -> float:
        """Largest resident memory so far, in MiB."""
        return resident_mib(self._process.pid, "VmHWM")

    def late(self) -> dict[str, float]:
        """Turns of its event loop that began later than so many seconds, since the start."""
        with urllib.request.urlopen(self._metrics, timeout=30) as answer:
            found = {bound: float(many) for bound, many in LATE.findall(answer.read().decode())}
        return {bound: found["+Inf"] - many for bound, many in found.items() if bound != "+Inf"}

    def end(self, *, kill: bool = False) -> None:
        """Stop it."""
        self._process.kill() if kill else self._process.terminate()
        self._process.wait()
        self._log.close()


@contextmanager
def coordinating(federation: Federation) -> Iterator[Coordinator]:
    """Serve it."""
    coordinator = Coordinator(federation)
    try:
        yield coordinator
    finally:
        coordinator.end()


@asynccontextmanager
async def at_work(stored: Sequence[Held], shared: Shared) -> AsyncIterator[list[LightSite]]:
    """All these sites, connected."""
    sites = [LightSite(one, shared) for one in stored]
    tasks = [asyncio.create_task(site.run()) for site in sites]
    try:
        while not all(site.connections for site in sites):
            await asyncio.sleep(0.05)
        yield sites
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class Marks:
    """Time, CPU of the coordinator and CPU of this process when each round was first heard of."""

    coordinator: Coordinator
    at: list[tuple[float, float, float]]

    def seen(self, round_query: RoundQuery) -> None:
        """A question came."""
        self.at.append((time.monotonic(), self.coordinator.cpu(), time.process_time()))


async def run_study(analyst: Held, toml: str, submission: str) -> str:
    """Submit a study and watch it to its end; its digest."""
    async with analyst.channel() as channel:
        stub = rpc.CoordinatorStub(channel)
        round_query = pb.ExplainStudyRequest(study_toml=toml, submission=submission)
        plan = plan_from_json((await call(stub.ExplainStudy, round_query, seconds=300, attempts=1)).plan_json)
        signed = signed_by_analyst(plan).to_proto()
        wish = pb.SubmitStudyRequest(study_toml=toml, submission=submission, authorization=signed)
        digest = (await call(stub.SubmitStudy, wish, seconds=300, attempts=1)).plan_digest
        last = None
        async for event in stub.WatchStudy(pb.WatchStudyRequest(plan_digest=digest)):
            last = event
        if last is None or last.state != pb.STUDY_STATE_RELEASED:
            raise RuntimeError(f"the study was not released: {last.failure if last else 'no event'}")
        return str(digest.hex())


def periods(config: Config, digest: str) -> tuple[float, ...]:
    """From the opening of each round to that of the next, in milliseconds, of those that count."""
    with closing(existing_store(config)) as store:
        rows = store.reader.rows("SELECT opened_at FROM rounds WHERE study = ? ORDER BY round", (digest,))
    return tuple(after[0] - row[0] for row, after in pairwise(rows))[FIRST:]


def first_and_last(config: Config, digest: str) -> tuple[float, float]:
    """From the opening of the first round to its release, and of the last one, in milliseconds."""
    statement = "SELECT released_at - opened_at FROM rounds WHERE study = ? ORDER BY round"
    with closing(existing_store(config)) as store:
        times = [float(row[0]) for row in store.reader.rows(statement, (digest,))]
    return times[0], times[-1]


def measured(sites: int, round_query: Asked = USUAL, database: str = "") -> Measured:
    """One study over so many sites."""
    with kept_if_failed() as folder:
        made = federation(folder, sites, database)
        with coordinating(made) as coordinator:
            return asyncio.run(_measured(made, coordinator, round_query))


async def _measured(made: Federation, coordinator: Coordinator, round_query: Asked) -> Measured:
    marks = Marks(coordinator, [])
    async with at_work(made.sites, Shared(RECORDS, marks.seen)):
        toml = study_toml([one.name for one in made.sites], round_query, "rounds")
        before, begun = coordinator.late(), time.monotonic()
        digest = await run_study(made.analyst, toml, "one")
        late = {bound: many - before[bound] for bound, many in coordinator.late().items()}
    begun_counting, end = marks.at[FIRST], marks.at[-1]
    first, last = first_and_last(made.config, digest)
    counted = len(marks.at) - 1 - FIRST
    return Measured(
        sites=len(made.sites),
        columns=round_query.columns,
        rounds=periods(made.config, digest),
        first=first,
        last=last,
        coordinator_cpu=1e3 * (end[1] - begun_counting[1]) / counted,
        sites_cpu=1e3 * (end[2] - begun_counting[2]) / counted,
        peak_mib=coordinator.peak(),
        consent_seconds=marks.at[0][0] - begun,
        late=late,
    )


def restarted(sites: int, round_query: Asked = USUAL) -> tuple[float, float]:
    """Kill the coordinator in the middle of a study: seconds until it asks again, and until that is over.

    Its sites come back by themselves, all from one address."""
    with kept_if_failed() as folder:
        return asyncio.run(_restarted(federation(folder, sites), round_query))


async def _restarted(made: Federation, round_query: Asked) -> tuple[float, float]:
    first = Coordinator(made)
    toml = study_toml([one.name for one in made.sites], round_query, "rounds")
    received: list[float] = []
    async with at_work(made.sites, Shared(RECORDS, lambda question: received.append(time.monotonic()))):
        running = asyncio.create_task(run_study(made.analyst, toml, "one"))
        while len(received) < KILLED_AT:
            await asyncio.sleep(0.01)
        first.end(kill=True)
        killed, before = time.monotonic(), len(received)
        await asyncio.gather(running, return_exceptions=True)
        with coordinating(made):
            await run_study(made.analyst, toml, "one")
        return received[before] - killed, time.monotonic() - killed


def said(one: Measured) -> str:
    """One line of it."""
    late = one.late.get("0.1", 0.0)
    return (
        f"{one.sites:4} sites: round {one.median:7.1f} ms (p90 {one.p90:7.1f}, {len(one.rounds)} rounds), "
        f"{one.median / one.sites:6.2f} a site, the first {one.first:.0f}, the last {one.last:.0f}; CPU of "
        f"the coordinator {one.coordinator_cpu:7.1f} ms, "
        f"{one.coordinator_cpu / one.sites:5.2f} a site; of the sites {one.sites_cpu:7.1f}; "
        f"peak {one.peak_mib:.0f} MiB; until the first question {one.consent_seconds:.1f} s; "
        f"loop late by over 100 ms {late:.0f} times"
    )


def main() -> None:
    """Print a line for each number of sites."""
    parser = ArgumentParser()
    parser.add_argument("sites", nargs="*", type=int, default=NUMBERS)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--components", type=int, default=1)
    parser.add_argument("--algorithm", default="dp-pca")
    parser.add_argument("--trust", choices=[one.value for one in Trust], default=Trust.CENTRAL.value)
    parser.add_argument("--database", default="")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--restart", action="store_true")
    wanted = parser.parse_args()
    round_query = Asked(
        columns=wanted.columns, algorithm=wanted.algorithm, components=wanted.components,
        trust=Trust(wanted.trust),
    )  # fmt: skip
    if wanted.restart:
        for sites in wanted.sites:
            again, over = restarted(sites, round_query)
            print(
                f"{sites:4} sites: asked again {again:.1f} s after a kill, the study over after {over:.1f} s"
            )
        return
    for sites in wanted.sites:
        one = measured(sites, round_query, wanted.database)
        print(json.dumps(asdict(one)) if wanted.json else said(one), flush=True)


if __name__ == "__main__":
    main()
