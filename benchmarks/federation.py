"""Cost of a round beyond its two syncs: three site processes, mutual TLS, ledgers durable on both sides.

A dp-pca study of 1,000 columns runs on loopback. A round lasts from its opening to that of the next, by the
coordinator's own records; a site's arithmetic is the same gradient answered in this process. In the same
run, on the same disk, the syncs of one round are probed, and an echo of its bytes over the same TLS.

`python -m benchmarks.federation --profile` prints the largest parts of a round's CPU instead, in the
coordinator and in one site."""

from __future__ import annotations

import asyncio
import csv
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.disk import sync_ms
from benchmarks.echo import echo_ms
from eigenveil.numerics.encoding import FloatArray
from eigenveil.queries import Gradient, GradientSpec
from eigenveil.site.record_view import to_grid
from eigenveil.site.site import Site
from eigenveil.study.study import Study
from eigenveil.study.toml import parse_study
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.connection.identity_files import KEY
from eigenveil_client.demo.federation import DemoFederation
from eigenveil_client.demo.layout import DemoLayout, open_demo_folder
from eigenveil_client.demo.processes import Job, Processes

LARGEST, TARGET_MS = 10, 6.0
COLUMNS, RECORDS, SITES = 1000, 500, ("site-a", "site-b", "site-c")

STUDY = f"""name = "bench"
algorithm = "dp-pca"
components = 1
[privacy]
epsilon = 4.0
delta = 1e-6
[federation]
sites = {json.dumps(SITES)}
[records]
max_records = 100000
expected_records = {RECORDS * len(SITES)}
""" + "".join(f'[[columns]]\nname = "x{i}"\nunit = "1"\nlower = -6\nupper = 6\n' for i in range(COLUMNS))


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
class Measured:
    """Milliseconds: of each gradient round, of a sync at the coordinator and at the sites, of an echo."""

    rounds: list[float]
    coordinator: float
    site: float
    echo: float


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


def run(profiles: Path | None = None) -> Measured:
    """Run the study in a temporary folder, and the probes beside it. Profiles go into `profiles`."""
    study = parse_study(STUDY)
    with tempfile.TemporaryDirectory() as folder, open_demo_folder(Path(folder) / "bench") as layout:
        layout.study.write_text(STUDY)
        processes = Processes(layout.logs) if profiles is None else Profiled(layout.logs, profiles)
        try:
            federation = Wide(layout, study, processes)
            generator = np.random.default_rng(0)
            for name in SITES:
                write(layout, study, name, generator.normal(size=(RECORDS, COLUMNS)))
            federation.set_up()
            digest = bytes.fromhex(federation.submit())
            asyncio.run(released(layout, digest))
            return probed(layout)
        finally:
            processes.stop()


def probed(layout: DemoLayout) -> Measured:
    """The rounds that were run, and what their bytes cost the disk and gRPC alone."""
    question, release = sizes(layout)
    keys = [load_identity(layout.site(name) / "identity").folder / KEY for name in SITES]
    return Measured(
        rounds=periods(layout),
        coordinator=sync_ms(layout.logs, "coordinator", question + release, 1),
        site=sync_ms(layout.logs, "site", question + release, len(SITES)),
        echo=echo_ms(layout.coordinator, keys, release, question + release),
    )


def sizes(layout: DemoLayout) -> tuple[int, int]:
    """Bytes of a gradient round's question and of its release: either side stores both."""
    with closing(sqlite3.connect(layout.coordinator / "state.db")) as database:
        (found,) = database.execute(
            'SELECT AVG(LENGTH(a.query)), AVG(LENGTH(r."values")) FROM rounds a '
            "JOIN releases r USING (study, round) WHERE a.kind = 'gradient'"
        )
    return int(found[0]), int(found[1])


def periods(layout: DemoLayout) -> list[float]:
    """Whole gradient rounds: sites, network, both ledgers, noise, seal, tick and the next question."""
    with closing(sqlite3.connect(layout.coordinator / "state.db")) as database:
        rows = database.execute("SELECT kind, opened_at FROM rounds ORDER BY round").fetchall()
    return [after[1] - row[1] for row, after in pairwise(rows) if row[0] == "gradient"]


def write(layout: DemoLayout, study: Study, name: str, values: FloatArray) -> None:
    """One site's records."""
    with layout.records(name).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([column.name for column in study.columns])
        writer.writerows(np.round(values, 4).tolist())


async def released(layout: DemoLayout, digest: bytes) -> None:
    """Wait until the study has ended, and insist that it was released."""
    async with Analyst(load_identity(layout.analyst)) as analyst:
        async for _ in analyst.watch(digest):
            pass
        await analyst.release(digest)


def arithmetic_ms() -> float:
    """Median time of one site's gradient answer, in this process."""
    values = np.random.default_rng(0).normal(size=(RECORDS, COLUMNS))
    site = Site(to_grid(values, parse_study(STUDY)))
    ones = np.ones((COLUMNS, 1), dtype=np.int64)
    field = GradientSpec(
        centre=np.zeros(COLUMNS, dtype=np.int64), directions=2**14 * ones, offset=2**10 * ones, shift=10
    )
    times = []
    for _ in range(30):
        begin = time.perf_counter()
        site.answer(Gradient(spec=field, radius=2**28))
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


def main() -> None:
    """Print the median round, and what it costs beyond its syncs."""
    found, own = run(), arithmetic_ms()
    rounds, syncs = sorted(found.rounds), found.coordinator + found.site
    median = statistics.median(rounds)
    print(
        f"federation: {len(rounds)} gradient rounds, d = {COLUMNS:,}, {len(SITES)} sites: "
        f"median {median:.1f} ms (quartiles {rounds[len(rounds) // 4]:.0f} to "
        f"{rounds[3 * len(rounds) // 4]:.0f}), a site's arithmetic {own:.1f} ms\n"
        f"  a sync at the coordinator {found.coordinator:.1f} ms, at the sites {found.site:.1f} ms, beyond "
        f"them {median - syncs:.1f} ms (target {TARGET_MS:.0f}); an echo of the bytes {found.echo:.1f} ms: "
        f"{(median - syncs) / found.echo:.1f} times that"
    )


def profile() -> None:
    """Print the largest parts of a round's CPU."""
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder))
        for name in ("coordinator", SITES[0]):
            spent = Counter(json.loads((Path(folder) / f"{name}.json").read_text()))
            print(f"{name}: {spent.total():.1f} ms of CPU a round, slowed down by the profiler")
            for part, each in spent.most_common(LARGEST):
                print(f"  {each / spent.total():6.1%}  {part}")


if __name__ == "__main__":
    profile() if "--profile" in sys.argv else main()
