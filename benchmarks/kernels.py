"""The sites' arithmetic against plain numpy on the same array, in ratios."""

from __future__ import annotations

import os
import statistics
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.queries import CrossCovariance, CrossSpec, Gradient, GradientSpec, Gram, Query
from eigenveil.site.site import Site
from eigenveil.study.grid import S

RECORDS, COLUMNS = 200_000, 100
BLOCKS, RUNS = 5, 9
WORKERS = os.cpu_count() or 1


def ratio(ours: Callable[[], object], reference: Callable[[], object]) -> tuple[float, float]:
    """Median over blocks of ours / reference, and ours in milliseconds.

    Runs go in blocks, the first of each left out: BLAS threads spin for a while after their last product,
    and would slow down whatever runs next.
    """
    pairs = [(block(ours), block(reference)) for _ in range(BLOCKS)]
    return statistics.median(a / b for a, b in pairs), statistics.median(a for a, _ in pairs)


def block(work: Callable[[], object]) -> float:
    """Median milliseconds of RUNS runs in a row after the first."""
    times = []
    for _ in range(RUNS + 1):
        begin = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times[1:])


def records() -> Site:
    """200,000 x 100 correlated integer rows."""
    generator = np.random.default_rng(0)
    scales = S / 4 / np.sqrt(1 + np.arange(COLUMNS))
    rows = generator.normal(size=(RECORDS, COLUMNS)) * scales
    return Site(np.clip(np.rint(rows), -S, S).astype(np.int16), workers=WORKERS)


def gradient_ask(pull: bool) -> Gradient:
    """A gradient question whose radius clips about a fifth of the records."""
    direction = np.zeros((COLUMNS, 1), dtype=np.int64)
    direction[:10] = 2**18
    offset = np.full((COLUMNS, 1), 2**10 if pull else 0)
    field = GradientSpec(
        centre=np.zeros(COLUMNS, dtype=np.int64), directions=direction, offset=offset, shift=12
    )
    return Gradient(spec=field, radius=2**28)


def cross_query() -> CrossCovariance:
    """Three leading directions and 16 spare ones; the radius clips about a fifth of the records."""
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(COLUMNS, 19)))[0]
    spec = CrossSpec(
        centre=np.zeros(COLUMNS, dtype=np.int64),
        directions=np.rint(2**20 * turn).astype(np.int64),
        scales=np.array([700, 900, 1000]),
        kept=np.arange(16) * 60,
        shift=23,
    )
    return CrossCovariance(spec=spec, radius=3 * 2**25)


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

    def answer(query: Query) -> IntArray:
        with threadpool_limits(1):  # the parts are the threads, as in a site's daemon
            return site.answer(query, pool.map)

    x: FloatArray = site.about(np.zeros(COLUMNS, dtype=np.int64)).z  # the very array that the site works on
    w = gradient_ask(False).spec.directions.astype(np.float64)
    print(f"records {RECORDS:,} x {COLUMNS}, {x.nbytes / 2**20:.0f} MiB as float64")
    for name, pull in (("gradient", False), ("gradient with pull", True)):
        query = gradient_ask(pull)
        work = partial(answer, query)
        value, ms = ratio(work, lambda: x.T @ (x @ w))
        peak = peak_megabytes(work)
        print(f"{name}: {value:.2f} x numpy X.T @ (X @ w) ({ms:.0f} ms), allocates {peak:.1f} MiB")
    whole = Gram(centre=np.zeros(COLUMNS, dtype=np.int64), radius=2**13)
    value, ms = ratio(partial(answer, whole), lambda: x.T @ x)
    print(f"gram: {value:.2f} x numpy X.T @ X ({ms:.0f} ms)")
    cross = partial(answer, cross_query())
    value, ms = ratio(cross, partial(answer, whole))
    print(f"cross covariance: {value:.2f} x gram ({ms:.0f} ms), allocates {peak_megabytes(cross):.1f} MiB")
    tight = Gram(centre=np.zeros(COLUMNS, dtype=np.int64), radius=2600)
    value, ms = ratio(partial(answer, tight), lambda: x.T @ x)
    print(f"gram, {clipped_share(site, tight.radius):.0%} of rows clipped: {value:.2f} x ({ms:.0f} ms)")


def clipped_share(site: Site, radius: int) -> float:
    """Share of the records longer than `radius`."""
    return float((np.linalg.norm(site.rows.astype(np.float64), axis=1) > radius).mean())


if __name__ == "__main__":
    main()
