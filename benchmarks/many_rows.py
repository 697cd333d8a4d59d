"""Measurements in a folder of Parquet files, aggregated per person by a site's SELECT: time and peak memory.

    python -m benchmarks.many_rows --rows 100000000 --folder /somewhere/with/space

The files are made first, if they are not there, and stay. Memory is that of a process of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Column, Federation, Missing, Study
from eigenveil_client.records.records import read
from eigenveil_client.records.tables.config import RecordsConfig

FILE_ROWS = 5_000_000
ROWS_A_PERSON = 50
CONCEPTS = ("height", "weight", "pressure", "glucose")
SELECT = "SELECT person_id, {} FROM records GROUP BY person_id".format(
    ", ".join(
        f"avg(value) FILTER (WHERE concept = {number}) AS {name}" for number, name in enumerate(CONCEPTS)
    )
)


def make(folder: Path, rows: int) -> None:
    """`rows` measurements in the order of a clock, of one person for every fifty."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, rows, FILE_ROWS)):
        path, count = folder / f"part-{number:04}.parquet", min(FILE_ROWS, rows - start)
        if path.exists():
            continue
        rng = np.random.default_rng(number)
        concept = rng.integers(len(CONCEPTS), size=count, dtype=np.int8)
        cents = np.rint(100 * (100 + 20 * concept + 10 * rng.standard_normal(count))).astype(np.int64)
        words = np.column_stack([cents, np.zeros_like(cents)])  # 128 bits each, little-endian
        value = pa.Array.from_buffers(pa.decimal128(12, 2), count, [None, pa.py_buffer(words.tobytes())])
        person = rng.integers(rows // ROWS_A_PERSON, size=count)
        parquet.write_table(pa.table({"person_id": person, "concept": concept, "value": value}), path)


def study() -> Study:
    columns = tuple(Column(name=name, unit="1", lower=50, upper=250, fill=100) for name in CONCEPTS)
    return Study(
        name="many-rows", columns=columns, person_column="person_id", missing=Missing.FILL, components=1,
        algorithm=Algorithm.GAUSS_COV, max_records=100_000, epsilon=1.0, delta=1e-6,
        federation=Federation(sites=("here", "there")),
    )  # fmt: skip


def measured(folder: Path) -> None:
    """Read the records as a site does, and say what that took."""
    began = time.monotonic()
    found = read(RecordsConfig(source=folder, sql=SELECT, one_row_per="person_id"), study())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{found.persons} persons, {time.monotonic() - began:.0f} s, peak {peak:.0f} MiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, required=True)
    asked = parser.parse_args()
    make(asked.folder, asked.rows)
    process = multiprocessing.get_context("spawn").Process(target=measured, args=(asked.folder,))
    process.start()
    process.join()


if __name__ == "__main__":
    main()
