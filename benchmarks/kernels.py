"""A site's arithmetic on rows of two bytes, beside numpy's float64 products of the same records."""

from __future__ import annotations

import os
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from unittest.mock import patch

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.verdict import judge
from eigenveil.numerics.encoding import FloatArray
from eigenveil.queries import CrossCovariance, CrossSpec, Gradient, GradientSpec, Gram, Query
from eigenveil.site.kernels import record_chunks
from eigenveil.site.site import Site
from eigenveil.study.grid import GridRows, S

RECORDS, COLUMNS, RUNS = 200_000, 100, 15
WIDE_RECORDS, WIDE_COLUMNS = 1000, 20_000
WORKERS = os.cpu_count() or 1
WORKING = 64  # MiB beside the rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """A query, what numpy would do, and how many times as long it may take (None: as long as it does)."""

    name: str
    site: Site
    query: Query
    reference: Callable[[], object]
    target: float | None


def processor_ms(work: Callable[[], object]) -> float:
    """Milliseconds of this thread: what others do on a shared machine does not count."""
    begin = time.thread_time()
    work()
    return 1e3 * (time.thread_time() - begin)


def ratio(ours: Callable[[], object], reference: Callable[[], object]) -> tuple[float, float]:
    """Fastest run of ours over the fastest of the reference, in turns on a thread each, and ours in ms."""
    with threadpool_limits(1):
        pairs = [(processor_ms(ours), processor_ms(reference)) for _ in range(RUNS + 1)][1:]
    fastest = min(mine for mine, _ in pairs)
    return fastest / min(other for _, other in pairs), fastest


def all_cores_ms(site: Site, query: Query) -> float:
    """Median milliseconds with a part of the rows for each core, as a site's daemon asks."""
    times, many = [], Site(site.rows, unit=unit_of(site), workers=WORKERS)
    with threadpool_limits(1), ThreadPoolExecutor(WORKERS) as pool:
        for _ in range(5):
            begin = time.perf_counter()
            many.answer(query, pool.map)
            times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


def unit_of(site: Site) -> int:
    """Genotypes are on the coarsest grid."""
    return S if site.rows.dtype == np.int8 else 1


def peak_mib(work: Callable[[], object]) -> float:
    """Peak memory that `work` allocates through numpy and Python."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def records() -> GridRows:
    """Correlated integer rows."""
    scales = S / 4 / np.sqrt(1 + np.arange(COLUMNS))
    rows = np.random.default_rng(0).normal(size=(RECORDS, COLUMNS)) * scales
    return np.clip(np.rint(rows), -S, S).astype(np.int16)


def genotypes() -> GridRows:
    """0, 1 and 2 about the middle, on the coarsest grid: a byte a value."""
    return np.random.default_rng(0).integers(-1, 2, (WIDE_RECORDS, WIDE_COLUMNS), dtype=np.int8)


def centre(d: int) -> FloatArray:
    return np.random.default_rng(1).integers(-S // 32, S // 32, d).astype(np.float64)


def gradient_ask(pull: bool, d: int = COLUMNS, radius: int = 2**28) -> Gradient:
    """A gradient question whose radius clips about a fifth of the records."""
    direction = np.zeros((d, 1), dtype=np.int64)
    direction[:10] = 2**18
    offset = np.full((d, 1), 2**10 if pull else 0)
    spec = GradientSpec(centre=centre(d).astype(np.int64), directions=direction, offset=offset, shift=12)
    return Gradient(spec=spec, radius=radius)


def cross_query() -> CrossCovariance:
    """Three leading directions and 16 spare ones; the radius clips about a fifth of the records."""
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(COLUMNS, 19)))[0]
    spec = CrossSpec(
        centre=centre(COLUMNS).astype(np.int64),
        directions=np.rint(2**20 * turn).astype(np.int64),
        scales=np.array([700, 900, 1000]),
        retained=np.arange(16) * 60,
        shift=23,
    )
    return CrossCovariance(spec=spec, radius=3 * 2**25)


def gram_ask(radius: int) -> Gram:
    return Gram(centre=centre(COLUMNS).astype(np.int64), radius=radius)


def cases() -> list[Case]:
    """Measured kernels, each beside float64 records as numpy's product wants them."""
    site, w = Site(records()), gradient_ask(False).spec.directions.astype(np.float64)
    x = site.rows[0 : len(site)].astype(np.float64)
    x -= centre(COLUMNS)
    wide = Site(genotypes(), unit=S)
    y, v = wide.rows[0 : len(wide)].astype(np.float64), np.ones((WIDE_COLUMNS, 1))

    def product(x: FloatArray, w: FloatArray) -> FloatArray:
        return np.asarray(x.T @ (x @ w))

    def square() -> FloatArray:
        return np.asarray(x.T @ x)

    isolated = "X.T @ (X @ w)"
    plain, pulled = gradient_ask(False), gradient_ask(True)
    many = gradient_ask(False, WIDE_COLUMNS, 2**29)
    beside = partial(product, x, w)
    return [
        Case(name=f"gradient / {isolated}", site=site, query=plain, reference=beside, target=1.15),
        Case(name=f"gradient with pull / {isolated}", site=site, query=pulled, reference=beside, target=1.3),
        Case(name="gram, clipped / X.T @ X", site=site, query=gram_ask(2600), reference=square, target=1.2),
        Case(name="gram / X.T @ X", site=site, query=gram_ask(2**14), reference=square, target=None),
        Case(name="cross covariance / X.T @ X", site=site, query=cross_query(), reference=square,
             target=None),
        Case(name=f"gradient of genotypes / {isolated}", site=wide, query=many, reference=partial(product, y,
        v),
             target=None),
    ]  # fmt: skip


@contextmanager
def numpy_alone() -> Iterator[None]:
    """As where nothing was compiled."""
    with patch.object(record_chunks, "load_kernels", lambda: None):
        yield


def missed(case: Case) -> bool:
    """Print a case; whether it is beyond its target, or holds more than its rows and WORKING."""
    value, ms = ratio(partial(case.site.answer, case.query), case.reference)
    with numpy_alone():
        plain, _ = ratio(partial(case.site.answer, case.query), case.reference)
    peak = peak_mib(partial(case.site.answer, case.query))
    stored, cores = case.site.rows.dtype.itemsize, all_cores_ms(case.site, case.query)
    word, failed = ("", False) if case.target is None else judge(case.name, value, case.target)
    wanted = "" if case.target is None else f", at most {case.target} {word}"
    print(
        f"{case.name}: {value:.2f}{wanted}, numpy alone {plain:.2f} "
        f"({ms:.0f} ms on one core, {cores:.0f} on {WORKERS}); "
        f"{stored} bytes a value and {peak:.1f} MiB"
    )
    return failed or peak > WORKING


def main() -> int:
    """Print every figure of this page; 1 if a target is missed, and the miss is not on record."""
    print("kernels: numpy's" if record_chunks.load_kernels() is None else "kernels: compiled")
    print(f"kernels: records {RECORDS:,} x {COLUMNS}, genotypes {WIDE_RECORDS:,} x {WIDE_COLUMNS:,}")
    names = [case.name for case in cases() if missed(case)]
    print(f"kernels: missed and not on record, or worse: {', '.join(names) or 'none'}")
    return int(bool(names))


if __name__ == "__main__":
    sys.exit(main())
