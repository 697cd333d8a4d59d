"""The sites' arithmetic against plain numpy on the same array, in ratios; and noise draws per second."""

from __future__ import annotations

import os
import statistics
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from threadpoolctl import threadpool_limits

from eigenveil.ints import FloatArray, IntArray
from eigenveil.noise import Block, NoiseSpec, OsNoise
from eigenveil.query import Ask, Field, Gradient, Gram, S
from eigenveil.site import Site

RECORDS, COLUMNS, REPEATS = 200_000, 100, 9
WORKERS = os.cpu_count() or 1


def ratio(ours: Callable[[], object], reference: Callable[[], object]) -> tuple[float, float]:
    """Median over pairs run in turn of ours / reference, and ours in milliseconds."""
    ours(), reference()
    ratios, times = [], []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        ours()
        middle = time.perf_counter()
        reference()
        end = time.perf_counter()
        ratios.append((middle - begin) / (end - middle))
        times.append(1e3 * (middle - begin))
    return statistics.median(ratios), statistics.median(times)


def records() -> Site:
    """200,000 x 100 correlated integer rows."""
    generator = np.random.default_rng(0)
    scales = S / 4 / np.sqrt(1 + np.arange(COLUMNS))
    rows = generator.normal(size=(RECORDS, COLUMNS)) * scales
    return Site(np.clip(np.rint(rows), -S, S).astype(np.int16), parts=WORKERS)


def gradient_ask(pull: bool) -> Gradient:
    """A gradient question whose radius clips about a fifth of the records."""
    direction = np.zeros((COLUMNS, 1), dtype=np.int64)
    direction[:10] = 2**18
    pulls = np.full((COLUMNS, 1), 2**10 if pull else 0)
    field = Field(centre=np.zeros(COLUMNS, dtype=np.int64), directions=direction, pull=pulls, shift=12)
    return Gradient(field=field, radius=2**28)


def peak_megabytes(work: Callable[[], object]) -> float:
    """Peak memory that `work` allocates through numpy and Python."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def main() -> None:
    """Print every figure of this page."""
    site, pool = records(), ThreadPoolExecutor(WORKERS)

    def answer(ask: Ask) -> IntArray:
        with threadpool_limits(1):  # the parts are the threads, as in a site's daemon
            return site.answer(ask, pool.map)

    x: FloatArray = site.rows.astype(np.float64)
    w = gradient_ask(False).field.directions.astype(np.float64)
    print(f"records {RECORDS:,} x {COLUMNS}, {x.nbytes / 2**20:.0f} MiB as float64")
    for name, pull in (("gradient", False), ("gradient with pull", True)):
        ask = gradient_ask(pull)
        value, ms = ratio(lambda ask=ask: answer(ask), lambda: x.T @ (x @ w))
        peak = peak_megabytes(lambda ask=ask: answer(ask))
        print(f"{name}: {value:.2f} x numpy X.T @ (X @ w) ({ms:.0f} ms), allocates {peak:.1f} MiB")
    whole = Gram(centre=np.zeros(COLUMNS, dtype=np.int64), radius=2**13)
    value, ms = ratio(lambda: answer(whole), lambda: x.T @ x)
    print(f"gram: {value:.2f} x numpy X.T @ X ({ms:.0f} ms)")
    tight = Gram(centre=np.zeros(COLUMNS, dtype=np.int64), radius=2600)
    value, ms = ratio(lambda: answer(tight), lambda: x.T @ x)
    print(f"gram, {clipped_share(site, tight.radius):.0%} of rows clipped: {value:.2f} x ({ms:.0f} ms)")
    draw_rate()


def clipped_share(site: Site, radius: int) -> float:
    """Share of the records longer than `radius`."""
    return float((np.linalg.norm(site.rows.astype(np.float64), axis=1) > radius).mean())


def draw_rate() -> None:
    """Exact discrete Gaussian draws per second."""
    spec = NoiseSpec(blocks=(Block(count=20_000, sigma=2.0**30),))
    begin = time.perf_counter()
    OsNoise().draw(spec)
    print(f"noise: {spec.length / (time.perf_counter() - begin):,.0f} draws a second on one core")


if __name__ == "__main__":
    main()
