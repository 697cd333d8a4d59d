"""Cost of making a site's records by a SELECT of its own: wall time, and peak memory of a process.

    python -m benchmarks.sources --folder /somewhere/with/space --parquet 100000000

One hospital's measurements (omop.py) in PostgreSQL, as a text and as a workbook; then
many more in a folder of Parquet files, averaged per person. These are made if they are not there, and stay.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from benchmarks import omop
from eigenveil.study.study import Column, Missing, Study
from eigenveil_client.records.records import stream
from eigenveil_client.records.summary import gathered
from eigenveil_client.records.tables.source import RecordsConfig
from tests.client.site.support import a_study
from tests.common.storage import cluster

FILE_ROWS = 5_000_000
ROWS_A_PERSON = 50
NAMES = ("height", "weight", "pressure", "glucose")
SELECT = "SELECT person_id, {} FROM records GROUP BY person_id".format(
    ", ".join(f"avg(value) FILTER (WHERE concept = {number}) AS {name}" for number, name in enumerate(NAMES))
)


def make(folder: Path, rows: int) -> None:
    """`rows` measurements, one person for every fifty."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, rows, FILE_ROWS)):
        path, count = folder / f"part-{number:04}.parquet", min(FILE_ROWS, rows - start)
        if path.exists():
            continue
        rng = np.random.default_rng(number)
        concept = rng.integers(len(NAMES), size=count, dtype=np.int8)
        cents = np.rint(100 * (100 + 20 * concept + 10 * rng.standard_normal(count))).astype(np.int64)
        words = np.column_stack([cents, np.zeros_like(cents)])  # 128 bits each, little-endian
        value = pa.Array.from_buffers(pa.decimal128(12, 2), count, [None, pa.py_buffer(words.tobytes())])
        person = rng.integers(rows // ROWS_A_PERSON, size=count)
        parquet.write_table(pa.table({"person_id": person, "concept": concept, "value": value}), path)


def averages() -> Study:
    columns = tuple(Column(name=name, unit="1", lower=50, upper=250, fill=100) for name in NAMES)
    return a_study(columns=columns, person_column="person_id", missing=Missing.FILL)


def measure(name: str, message: RecordsConfig, study: Study) -> None:
    """Read the records as a site does, in a process of its own, and say what that took."""
    process = multiprocessing.get_context("spawn").Process(target=_measured, args=(name, message, study))
    process.start()
    process.join()


def _measured(name: str, message: RecordsConfig, study: Study) -> None:
    began = time.monotonic()
    found = gathered(study, lambda sink: stream(message, study, sink))
    seconds = time.monotonic() - began
    # Not getrusage: what it says began with the process that started this one.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    mib = int(status["VmHWM"].split()[0]) / 1024
    print(f"{name:8} {found.persons:9,} persons {seconds:6.1f} s {mib:6.0f} MiB at most", flush=True)


def hospital(folder: Path) -> None:
    """A million measurements of 50,000 persons, from each place."""
    one = omop.Hospital(persons=50_000, rows=1_000_000)
    with cluster.running() as server:
        url = server.database()
        one.database(url)
        for name, message in one.positions(folder, url).items():
            measure(name, message, omop.study())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--parquet", type=int, default=10_000_000, help="rows of Parquet")
    query = parser.parse_args()
    parts = query.folder / f"parquet-{query.parquet}"
    make(parts, query.parquet)
    hospital(query.folder)
    measure("parquet", RecordsConfig(source=parts, sql=SELECT, one_row_per="person_id"), averages())


if __name__ == "__main__":
    main()
