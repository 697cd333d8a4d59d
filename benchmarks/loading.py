"""Loading a site's records, beside pyarrow's own reader of the same file: wall time and peak memory.

    python -m benchmarks.loading --records 10000000 --columns 20 --folder /somewhere/with/space

The files are made if they are not there, and stay. Each is read by pyarrow into a table, then loaded by a
site's engine with its isolated reader, for one study and then for another. Each has a process of its own, and
the system holds the file in memory. Memory is the largest proportional set size of all processes together,
sampled."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet

from eigenveil.planning.choose import make_plan
from eigenveil.protocol.plan import Plan
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Column, Federation, Scaling, Study
from eigenveil_client.records.isolated import reader
from eigenveil_client.records.tables.source import RecordsConfig
from eigenveil_client.site.config import EngineConfig, SiteConfig
from eigenveil_client.site.engine.engine import make_engine
from eigenveil_client.site.policy import Policy

BLOCK = 2**20  # rows
SAMPLE_SECONDS = 0.02
KINDS = ("parquet", "csv")


def write_parquet(path: Path, records: int, columns: int) -> None:
    """Write values of two decimals, of which a block is drawn once and repeated."""
    rows, rng = min(records, BLOCK), np.random.default_rng(0)
    values = np.round(100 + 20 * rng.standard_normal((columns, rows)), 2)
    table = pa.table(list(values), names=[f"c{number}" for number in range(columns)])
    with parquet.ParquetWriter(path, table.schema) as writer:
        for start in range(0, records, rows):
            writer.write_table(table.slice(0, records - start))


def make(folder: Path, records: int, columns: int) -> dict[str, Path]:
    """Write the same values, of two decimals, as Parquet and as text; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {kind: folder / f"records-{records}-{columns}.{kind}" for kind in KINDS}
    if all(path.exists() for path in paths.values()):
        return paths
    names, rng = [f"c{number}" for number in range(columns)], np.random.default_rng(0)
    schema = pa.schema([(name, pa.float64()) for name in names])
    with (
        parquet.ParquetWriter(paths["parquet"], schema) as one,
        arrow_csv.CSVWriter(paths["csv"], schema) as two,
    ):
        for start in range(0, records, BLOCK):
            rows = min(BLOCK, records - start)
            values = np.round(100 + 20 * rng.standard_normal((columns, rows)), 2)
            table = pa.table(list(values), names=names)
            one.write_table(table)
            two.write_table(table)
    return paths


def plan(columns: int, records: int) -> Plan:
    """Return a plan over these columns."""
    study = Study(
        name="loading", epsilon=1.0, delta=1e-6, components=2, federation=Federation(sites=("here",)),
        columns=tuple(Column(name=f"c{number}", unit="1", lower=0, upper=200) for number in range(columns)),
        algorithm=Algorithm.GAUSS_COV, scaling=Scaling.BOUNDS,
        max_records=2 * records, expected_records=records,
    )  # fmt: skip
    return make_plan(study, federation="loading", submission="1")


def read_by_pyarrow(kind: str, path: Path, columns: int, records: int) -> list[float]:
    """Return the seconds in which pyarrow makes a table of the file."""
    began = time.monotonic()
    found = parquet.read_table(path) if kind == "parquet" else arrow_csv.read_csv(path)
    assert found.num_rows == records
    return [time.monotonic() - began]


def load_twice(kind: str, path: Path, columns: int, records: int) -> list[float]:
    """Return the seconds in which a site loads the records of one study, keeps their grid, and takes that for
    another."""
    folder = path.parent / "site"
    config = SiteConfig(
        name="here", records=RecordsConfig(source=path),
        identity=folder / "identity", state=folder / "state.db", policy=Policy(maximum_records=2 * records),
        engine=EngineConfig(keep_hours=1.0, keep_mib=2**20),
    )  # fmt: skip
    engine, seconds, studied = make_engine(config), list[float](), plan(columns, records)
    reader.columns(config.records)  # a daemon's reader has its libraries from an earlier request
    for _ in range(2):
        began = time.monotonic()
        loaded = engine.load(studied)
        seconds.append(time.monotonic() - began)
        assert loaded.persons == records
        loaded.close()
    return seconds


MEASURES: dict[str, Callable[[str, Path, int, int], list[float]]] = {
    "pyarrow": read_by_pyarrow,
    "site": load_twice,
}


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of each pass of a process, the peak memory of it and its descendants in MiB, and their
    processor seconds from the start of the process to its end."""

    seconds: list[float]
    mib: float
    processor: float


def measured(name: str, kind: str, path: Path, columns: int, records: int) -> Measured:
    """Run one measure in a process of its own."""
    measure = [name, kind, str(path), str(columns), str(records)]
    command = [sys.executable, "-m", "benchmarks.loading", "--measure", *measure]
    before = processor_seconds()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        peak, ended = [0.0], threading.Event()
        sampler = threading.Thread(target=sample, args=(process.pid, peak, ended))
        sampler.start()
        assert process.stdout is not None
        out = process.stdout.read()
        ended.set()
        sampler.join()
    return Measured(json.loads(out), peak[0], processor_seconds() - before)


def processor_seconds() -> float:
    """Return the processor time of all descendants that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def sample(pid: int, peak: list[float], ended: threading.Event) -> None:
    while not ended.wait(SAMPLE_SECONDS):
        peak[0] = max(peak[0], sum(map(proportional_mib, family(pid))))


def family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    found = [pid]
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += family(int(child))
    return found


def proportional_mib(pid: int) -> float:
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--measure", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        name, kind, path, columns, records = given.measure
        print(json.dumps(MEASURES[name](kind, Path(path), int(columns), int(records))))
        return 0
    for kind, path in make(given.folder, given.records, given.columns).items():
        if given.only in (None, kind):
            compare(kind, path, given.columns, given.records)
    return 0


def compare(kind: str, path: Path, columns: int, records: int) -> None:
    arrow = measured("pyarrow", kind, path, columns, records)
    site = measured("site", kind, path, columns, records)
    first, second = site.seconds
    print(
        f"{kind:8} pyarrow {arrow.seconds[0]:6.2f} s, {arrow.mib:5.0f} MiB; first study {first:6.2f} s "
        f"({first / arrow.seconds[0]:5.2f} times), {site.mib:5.0f} MiB; second {second:6.3f} s "
        f"({second / arrow.seconds[0]:6.3f} times)",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
