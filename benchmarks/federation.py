"""Cost of a round of real daemons: site processes, mutual TLS, ledgers durable on both sides.

`python -m benchmarks.federation` runs a dp-pca study on loopback in each of three settings: 3 sites with 20
columns and with 1,000, and 30 sites with 20. A round lasts from its opening to that of the next, by the
coordinator's own records, and the first round is reported apart. The CPU of a site's process for each
question, and of the coordinator for each site and round, is the system's count between two rounds of the
study. In the same run, on the same disk, the syncs of one round are probed, and an echo of its bytes over the
same TLS, of as many clients.

`--only wide` (`few`, `many`) runs one setting, and `--profile` prints the largest parts of a round's CPU
instead, in the coordinator and in one site. The folder of a run that failed stays, with the logs of all
processes, and is printed."""

from __future__ import annotations

import asyncio
import csv
import json
import sqlite3
import statistics
import sys
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.disk import sync_ms
from benchmarks.echo import Echo, echo
from benchmarks.process import cpu_seconds, kept_if_failed, resident_mib
from eigenveil.numerics.encoding import FloatArray
from eigenveil.queries import Gradient, GradientSpec
from eigenveil.site.record_view import to_grid
from eigenveil.site.site import Site
from eigenveil.study.study import Study
from eigenveil.study.toml import parse_study
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.connection.identity_files import KEY
from eigenveil_client.demo.federation import COORDINATOR, DemoFederation
from eigenveil_client.demo.layout import DemoLayout, open_demo_folder
from eigenveil_client.demo.processes import Job, Processes

LARGEST, TARGET_MS = 10, 6.0
RECORDS, FIRST = 500, 3  # records of a site; the first round that counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Size of a study."""

    columns: int
    sites: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"site-{i:02}" for i in range(self.sites))

    def toml(self) -> str:
        return f"""name = "bench"
algorithm = "dp-pca"
components = 1
[privacy]
epsilon = 4.0
delta = 1e-6
[federation]
sites = {json.dumps(self.names)}
[records]
max_records = 100000
expected_records = {RECORDS * self.sites}
""" + "".join(f'[[columns]]\nname = "x{i}"\nunit = "1"\nlower = -6\nupper = 6\n' for i in range(self.columns))


SETTINGS = {
    "few": Setting(columns=20, sites=3),
    "wide": Setting(columns=1000, sites=3),
    "many": Setting(columns=20, sites=30),
}


class Wide(DemoFederation):
    """Sites that allow more columns than a careful one would for so few records."""

    def serve_site(self, name: str) -> Job:
        """Start a site's daemon."""
        config = self._layout.site_config(name)
        wide = config.with_suffix(".wide")  # put in its place at once: another command may be reading it
        wide.write_text(
            config.read_text().replace("max_columns_per_record = 2.0", "max_columns_per_record = inf")
        )
        wide.replace(config)
        return super().serve_site(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Of all sites' daemons, median: CPU milliseconds a question, MiB at rest before and after the study.
    Of the coordinator: CPU milliseconds a round, MiB after the study."""

    site_cpu: float
    site_rest: float
    site_after: float
    coordinator_cpu: float
    coordinator_after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Milliseconds: of the first round, of each gradient round, of a sync at the coordinator and at the
    sites; and an echo of a round's bytes."""

    first: float
    rounds: list[float]
    coordinator: float
    site: float
    echo: Echo
    costs: Costs


class Profiled(Processes):
    """Daemons under a profiler of their CPU; each writes NAME.json into `out`."""

    def __init__(self, logs: Path, out: Path) -> None:
        super().__init__(logs)
        self._out = out

    def command(self, name: str, program: str, *arguments: str | Path) -> list[str]:
        if arguments[0] != "serve":
            return super().command(name, program, *arguments)
        wrapper = (sys.executable, "-m", "benchmarks.profiled", str(self._out / f"{name}.json"))
        return [*wrapper, program, *map(str, arguments)]


def run(setting: Setting, profiles: Path | None = None) -> Measured:
    """Run the study in a temporary folder, and the probes beside it. Profiles go into `profiles`."""
    study = parse_study(setting.toml())
    with kept_if_failed() as folder, open_demo_folder(folder / "bench") as layout:
        layout.study.write_text(setting.toml())
        processes = Processes(layout.logs) if profiles is None else Profiled(layout.logs, profiles)
        try:
            federation = Wide(layout, study, processes)
            generator = np.random.default_rng(0)
            for name in setting.names:
                write(layout, study, name, generator.normal(size=(RECORDS, setting.columns)))
            federation.set_up()
            costs = watched(layout, federation)
            return probed(layout, setting, costs)
        finally:
            processes.stop()


def watched(layout: DemoLayout, federation: DemoFederation) -> Costs:
    """Submit the study, watch it to its end, and return what it cost the daemons meanwhile."""
    pids = {name: job.process.pid for name, job in federation.daemons.items()}
    rest = {name: resident_mib(pid) for name, pid in pids.items()}
    marks: list[tuple[int, dict[str, float]]] = []  # of rounds from FIRST on: CPU seconds when it was open

    def seen(round: int) -> None:
        if round >= FIRST and (not marks or round > marks[-1][0]):
            marks.append((round, {name: cpu_seconds(pid) for name, pid in pids.items()}))

    digest = bytes.fromhex(federation.submit())
    asyncio.run(released(layout, digest, seen))
    (first, before), (last, after) = marks[0], marks[-1]
    each = {name: 1e3 * (after[name] - before[name]) / (last - first) for name in pids}
    coordinator = each.pop(COORDINATOR)
    end = {name: resident_mib(pid) for name, pid in pids.items()}
    return Costs(
        site_cpu=statistics.median(each.values()),
        site_rest=statistics.median(rest[name] for name in each),
        site_after=statistics.median(end[name] for name in each),
        coordinator_cpu=coordinator,
        coordinator_after=end[COORDINATOR],
    )


def probed(layout: DemoLayout, setting: Setting, costs: Costs) -> Measured:
    """The rounds that were run, and what their bytes cost the disk and gRPC alone."""
    (question, release), periods = sizes(layout), opened(layout)
    keys = [load_identity(layout.site(name) / "identity").folder / KEY for name in setting.names]
    return Measured(
        first=periods[0][1],
        rounds=[each for kind, each in periods if kind == "gradient"],
        coordinator=sync_ms(layout.logs, "coordinator", question + release, 1),
        site=sync_ms(layout.logs, "site", question + release, setting.sites),
        echo=echo(layout.coordinator, keys, release, question + release),
        costs=costs,
    )


def sizes(layout: DemoLayout) -> tuple[int, int]:
    """Bytes of a gradient round's question and of its release: either side stores both."""
    with closing(sqlite3.connect(layout.coordinator / "state.db")) as database:
        (found,) = database.execute(
            'SELECT AVG(LENGTH(a.query)), AVG(LENGTH(r."values")) FROM rounds a '
            "JOIN releases r USING (study, round) WHERE a.kind = 'gradient'"
        )
    return int(found[0]), int(found[1])


def opened(layout: DemoLayout) -> list[tuple[str, float]]:
    """Kind of each round but the last, and milliseconds from its opening to that of the next: sites, network,
    both ledgers, noise, seal, tick and the next question."""
    with closing(sqlite3.connect(layout.coordinator / "state.db")) as database:
        rows = database.execute("SELECT kind, opened_at FROM rounds ORDER BY round").fetchall()
    return [(row[0], after[1] - row[1]) for row, after in pairwise(rows)]


def write(layout: DemoLayout, study: Study, name: str, values: FloatArray) -> None:
    """One site's records."""
    with layout.records(name).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([column.name for column in study.columns])
        writer.writerows(np.round(values, 4).tolist())


async def released(
    layout: DemoLayout, digest: bytes, seen: Callable[[int], None] = lambda round: None
) -> None:
    """Wait until the study has ended, and insist that it was released; `seen` hears of each round."""
    async with Analyst(load_identity(layout.analyst)) as analyst:
        async for event in analyst.watch(digest):
            if event.query_kind:
                seen(event.round)
        await analyst.release(digest)


def arithmetic_ms(columns: int) -> float:
    """Median time of one site's gradient answer, in this process."""
    values = np.random.default_rng(0).normal(size=(RECORDS, columns))
    site = Site(to_grid(values, parse_study(Setting(columns=columns, sites=1).toml())))
    ones = np.ones((columns, 1), dtype=np.int64)
    field = GradientSpec(
        centre=np.zeros(columns, dtype=np.int64), directions=2**14 * ones, offset=2**10 * ones, shift=10
    )
    times = []
    for _ in range(30):
        begin = time.perf_counter()
        site.answer(Gradient(spec=field, radius=2**28))
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


def report(setting: Setting, found: Measured) -> str:
    """The median round, what it costs beyond its syncs, and what it costs each process."""
    rounds, syncs, costs = sorted(found.rounds), found.coordinator + found.site, found.costs
    median = statistics.median(rounds)
    beyond = median - syncs
    return (
        f"federation, {setting.sites} sites, d = {setting.columns:,}: {len(rounds)} gradient rounds, median "
        f"{median:.1f} ms (quartiles {rounds[len(rounds) // 4]:.0f} to {rounds[3 * len(rounds) // 4]:.0f}), "
        f"the first round {found.first:.0f} ms; a site's arithmetic {arithmetic_ms(setting.columns):.1f} ms\n"
        f"  a sync at the coordinator {found.coordinator:.1f} ms, at the sites {found.site:.1f} ms, beyond "
        f"them {beyond:.1f} ms (target {TARGET_MS:.0f}); an echo of the bytes {found.echo.ms:.1f} ms: "
        f"{beyond / found.echo.ms:.1f} times that\n"
        f"  CPU of a site {costs.site_cpu:.2f} ms a question ({costs.site_cpu / found.echo.cpu:.1f} times an "
        f"echo's {found.echo.cpu:.2f}; by a blocking stub {found.echo.blocking_cpu:.2f}), of the coordinator "
        f"{costs.coordinator_cpu:.1f} ms a round, "
        f"{costs.coordinator_cpu / setting.sites:.2f} a site\n"
        f"  memory of a site {costs.site_rest:.0f} MiB at rest, {costs.site_after:.0f} after the study, of "
        f"the coordinator {costs.coordinator_after:.0f}"
    )


def profile(setting: Setting) -> str:
    """The largest parts of a round's CPU."""
    lines = []
    with kept_if_failed() as folder:
        run(setting, folder)
        for name in (COORDINATOR, setting.names[0]):
            spent = Counter(json.loads((folder / f"{name}.json").read_text()))
            lines.append(f"{name}: {spent.total():.1f} ms of CPU a round, slowed down by the profiler")
            lines += [f"  {each / spent.total():6.1%}  {part}" for part, each in spent.most_common(LARGEST)]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print each setting's figures, or its profile."""
    parser = ArgumentParser()
    parser.add_argument("--only", choices=SETTINGS, action="append")
    parser.add_argument("--profile", action="store_true")
    wanted = parser.parse_args(arguments)
    for name in wanted.only or SETTINGS:
        setting = SETTINGS[name]
        print(profile(setting) if wanted.profile else report(setting, run(setting)), flush=True)


if __name__ == "__main__":
    main()
