"""Wide studies in a real federation: three site processes, mutual TLS, records as Parquet.

`python -m benchmarks.wide --study gauss-cov-5000` asks each site for 12.5 million numbers, `--study
dp-pca-20000` for 20,000 columns' directions round by round; `--trust secure-aggregation` has them masked.
Printed are transfers, how long an answer takes from its first byte to the coordinator's word, the most memory
that the coordinator held in each phase beyond what it held when idle, in answers, what sites held, how late
the event loop ever was, and round times."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from benchmarks.federation import Wide, released
from benchmarks.many_sites import LATE
from benchmarks.process import free_ports, kept_if_failed
from eigenveil.study.study import Study, Trust
from eigenveil.study.toml import parse_study
from eigenveil_client.demo.layout import DemoLayout, open_demo_folder
from eigenveil_client.demo.processes import Job, Processes

SITES = ("site-a", "site-b", "site-c")
MIB = 2**20
PHASES = (
    ("transfer and checks", "round-offered", "noise-drawn"),
    ("sum, noise and seal", "noise-drawn", "round-sealed"),
    ("next question or estimate", "round-sealed", "round-followed"),
    ("document", "round-followed", "bundle-built"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A study and how many records each site has; `answer` is the numbers in its longest answer."""

    algorithm: str
    columns: int
    records: int
    epsilon: float
    components: int = 4
    trust: Trust = Trust.CENTRAL

    @property
    def toml(self) -> str:
        head = f"""name = "wide"
algorithm = "{self.algorithm}"
components = {self.components}
[privacy]
epsilon = {self.epsilon}
delta = 1e-6
trust = "{self.trust.value}"
[federation]
sites = {json.dumps(SITES)}
deadline_seconds = 1800
[records]
max_records = 1000000
expected_records = {self.records * len(SITES)}
"""
        column = '[[columns]]\nname = "x{}"\nunit = "1"\nlower = -6\nupper = 6\n'
        return head + "".join(map(column.format, range(self.columns)))

    @property
    def answer(self) -> int:
        d = self.columns
        return d * (d + 1) // 2 if self.algorithm == "gauss-cov" else self.components * d


CASES = {
    "gauss-cov-5000": Case(algorithm="gauss-cov", columns=5_000, records=2_000, epsilon=4.0),
    "dp-pca-20000": Case(algorithm="dp-pca", columns=20_000, records=1_000, epsilon=5.0),
    "gauss-cov-2000": Case(algorithm="gauss-cov", columns=2_000, records=1_000, epsilon=4.0),
}


class ParquetLayout(DemoLayout):
    """Records in a file that is read column by column."""

    def records(self, name: str) -> Path:
        return super().records(name).with_suffix(".parquet")


class Watched(Processes):
    """Daemons that write down what they pass, each into NAME.jsonl beside its log."""

    def command(self, name: str, program: str, *arguments: str | Path) -> list[str]:
        """Command to run as daemon `name`."""
        if arguments[0] != "serve":
            return super().command(name, program, *arguments)
        wrapper = (sys.executable, "-m", "benchmarks.watched", str(self._logs / f"{name}.jsonl"))
        return [*wrapper, program, *map(str, arguments)]


class WideFederation(Wide):
    """A coordinator that allows as many columns as a study can have, and shows its metrics."""

    def start_setup(self) -> list[Job]:
        """Start making what every party needs."""
        begun = super().start_setup()
        self._processes.finish(begun)
        config, (self.metrics,) = self._layout.coordinator_config, free_ports(1)
        more = f'\nmax_columns = 20000\nmetrics = "127.0.0.1:{self.metrics}"\n'
        config.write_text(config.read_text() + more)
        return begun

    def delay(self) -> float:
        """The least of the metric's bounds (seconds) that no turn of the event loop was later than."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics") as page:
            told = page.read().decode()
        found = {float(bound): float(many) for bound, many in LATE.findall(told)}
        return min(bound for bound, many in found.items() if many == found[math.inf])


def write(layout: DemoLayout, study: Study, name: str, records: int, seed: int) -> None:
    """One site's records: a few directions that all columns share, and noise."""
    generator = np.random.default_rng(seed)
    shared = np.random.default_rng(0).normal(size=(4, study.dimension)) / 2
    values = generator.normal(size=(records, 4)) @ shared + generator.normal(size=(records, study.dimension))
    columns = [pa.array(column) for column in np.round(values, 3).astype(np.float32).T]
    names = [column.name for column in study.columns]
    parquet.write_table(pa.table(columns, names=names), layout.records(name), compression="none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A place that a process passed, when, processor time until then, and bytes resident then and at most
    since the place before."""

    place: str
    at: float
    processor: float
    VmRSS: int
    VmHWM: int


def passages(layout: DemoLayout, name: str) -> list[Passage]:
    """Passages of a daemon, in order."""
    lines = (layout.logs / f"{name}.jsonl").read_text().splitlines()
    return [Passage(**json.loads(line)) for line in lines]


def last_round(seen: Sequence[Passage]) -> list[Passage]:
    """Of the coordinator's passages, those from the last question that was uploaded to, or the last one."""
    last = max((i for i, one in enumerate(seen) if one.place == "upload-opened"), default=len(seen) - 1)
    first = max(i for i, one in enumerate(seen[:last]) if one.place == "noise-drawn")
    return list(seen[first + 1 :])


def run(case: Case, folder: Path) -> None:
    """Run the study and print what was measured."""
    study = parse_study(case.toml)
    with open_demo_folder(folder / "bench") as made:
        layout = ParquetLayout(made.root)
        layout.study.write_text(case.toml)
        processes = Watched(layout.logs)
        try:
            federation = WideFederation(layout, study, processes)
            for seed, name in enumerate(SITES):
                write(layout, study, name, case.records, seed + 1)
            federation.set_up()
            start = time.monotonic()
            digest = bytes.fromhex(federation.submit())
            print(f"submitted: {time.monotonic() - start:.1f} s", flush=True)
            asyncio.run(released(layout, digest))
            print(
                f"released: {time.monotonic() - start:.1f} s, event loop late by at most "
                f"{1e3 * federation.delay():.0f} ms"
            )
            told(layout, case)
        finally:
            processes.stop()


def told(layout: DemoLayout, case: Case) -> None:
    """Print transfers, memory by phase, rounds."""
    seen, size = passages(layout, "coordinator"), 8 * case.answer
    idle = next(one.VmRSS for one in seen if one.place == "round-offered")
    most = max(one.VmHWM for one in seen)
    print(
        f"an answer: {case.answer:,} numbers, {size / 1e6:.1f} MB; coordinator idle {idle / MIB:.0f} MiB, "
        f"at most {most / MIB:.0f} MiB"
    )
    last = last_round(seen)
    for line in (*transfers(last, size), *words(layout, size), *phases(last, idle, size)):
        print(line)
    for name in SITES:
        own = passages(layout, name)
        loaded = [one.VmRSS for one in own if one.place == "records-loaded"]
        most = max(one.VmHWM for one in own)
        after = max(
            one.VmHWM
            for one in own[1 + next(i for i, one in enumerate(own) if one.place == "records-loaded") :]
        )
        print(
            f"{name}: {loaded[0] / MIB:.0f} MiB with its records, at most {most / MIB:.0f} MiB; answering "
            f"{(after - loaded[0]) / size:.1f} answers ({(after - loaded[0]) / MIB:.0f} MiB) above that"
        )
    opened = [one.at for one in seen if one.place == "round-sealed"]
    gaps = [b - a for a, b in pairwise(opened)]
    print(f"{len(opened)} rounds, median {1e3 * median(gaps):.0f} ms, longest {max(gaps):.1f} s")


def phases(seen: Sequence[Passage], idle: int, size: int) -> Iterator[str]:
    """The most that the coordinator held in each phase of the round, beyond what it held when idle."""
    for name, first, last in PHASES:
        positions = [one.place for one in seen]
        begin = max((i for i, place in enumerate(positions) if place == first), default=-1)
        end = max((i for i, place in enumerate(positions) if place == last), default=begin)
        if end <= begin:
            continue
        most = max(one.VmHWM for one in seen[begin + 1 : end + 1])
        yield f"coordinator, {name}: {(most - idle) / size:.2f} answers above idle ({most / MIB:.0f} MiB)"


def transfers(seen: Sequence[Passage], size: int) -> Iterator[str]:
    """Each upload from its opening to its last chunk, one after the other where one place is for all."""
    begun, spans = 0.0, []
    for one, after in pairwise(seen):
        if one.place == "upload-opened":
            begun = one.at
        elif one.place == "chunk-taken" and after.place != "chunk-taken":
            spans.append(one.at - begun)
    if spans:
        rates = ", ".join(f"{size / 1e6 / span:.0f}" for span in spans)
        yield f"transfers: {rates} MB/s, all {size * len(spans) / 1e6 / sum(spans):.0f} MB/s"


def words(layout: DemoLayout, size: int) -> Iterator[str]:
    """From the answer's first byte to the coordinator's word, turns and checks included: the longest."""
    for name in SITES:
        own = passages(layout, name)
        sent = [b.at - a.at for a, b in pairwise(p for p in own if p.place.startswith("reply-"))][::2]
        yield f"{name}: {max(sent):.2f} s to the coordinator's word"


def main() -> None:
    """Run one case."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    words.add_argument("--study", choices=sorted(CASES), required=True)
    words.add_argument("--trust", choices=[one.value for one in Trust], default=Trust.CENTRAL.value)
    chosen = words.parse_args()
    with kept_if_failed() as folder:
        run(replace(CASES[chosen.study], trust=Trust(chosen.trust)), folder)


if __name__ == "__main__":
    main()
