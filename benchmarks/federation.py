"""What a round costs beyond arithmetic: three site processes, mutual TLS, ledgers durable on both sides.

A dp-pca study of 1,000 columns runs on loopback. A round lasts from its opening to that of the next, by the
coordinator's own records; a site's arithmetic is the same gradient answered in this process.
"""

from __future__ import annotations

import asyncio
import csv
import json
import sqlite3
import statistics
import tempfile
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np

from eigenveil.numerics.encoding import FloatArray
from eigenveil.queries import Gradient, GradientSpec
from eigenveil.site.quantize import to_grid
from eigenveil.site.site import Site
from eigenveil.study.study import Study
from eigenveil.study.toml import parse_study
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.demo.federation import DemoFederation
from eigenveil_client.demo.layout import Layout, prepared
from eigenveil_client.demo.processes import Job, Processes

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
        config.write_text(
            config.read_text().replace("max_columns_per_record = 2.0", "max_columns_per_record = inf")
        )
        return super().serve_site(name)


def run() -> list[float]:
    """Run the study in a temporary folder; the milliseconds of each gradient round."""
    study = parse_study(STUDY)
    with tempfile.TemporaryDirectory() as folder, prepared(Path(folder) / "bench") as layout:
        layout.study.write_text(STUDY)
        processes = Processes(layout.logs)
        try:
            federation = Wide(layout, study, processes)
            begun = federation.begin()
            generator = np.random.default_rng(0)
            for name in SITES:
                write(layout, study, name, generator.normal(size=(RECORDS, COLUMNS)))
            federation.set_up(begun)
            digest = bytes.fromhex(federation.submit())
            asyncio.run(released(layout, digest))
        finally:
            processes.stop()
        return periods(layout)


def periods(layout: Layout) -> list[float]:
    """Whole gradient rounds: sites, network, both ledgers, noise, seal, tick and the next question."""
    with closing(sqlite3.connect(layout.coordinator / "state.db")) as database:
        rows = database.execute("SELECT kind, opened_at FROM rounds ORDER BY round").fetchall()
    return [after[1] - row[1] for row, after in pairwise(rows) if row[0] == "gradient"]


def write(layout: Layout, study: Study, name: str, values: FloatArray) -> None:
    """One site's records."""
    with layout.records(name).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([column.name for column in study.columns])
        writer.writerows(np.round(values, 4).tolist())


async def released(layout: Layout, digest: bytes) -> None:
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
    """Print the median round and what it costs beyond arithmetic."""
    gradients = sorted(run())
    median, own = statistics.median(gradients), arithmetic_ms()
    print(
        f"federation: {len(gradients)} gradient rounds, d = {COLUMNS:,}, {len(SITES)} sites: "
        f"median {median:.1f} ms (quartiles {gradients[len(gradients) // 4]:.0f} to "
        f"{gradients[3 * len(gradients) // 4]:.0f}), a site's arithmetic {own:.1f} ms, "
        f"beyond it {median - own:.1f} ms"
    )


if __name__ == "__main__":
    main()
