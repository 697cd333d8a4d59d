"""Each algorithm's whole run in the simulator against its own passes over the data plus its noise.

A pass is what a library needs for the question at hand on the same records: numpy's X.T @ X for a matrix of
products (and its eigh where the mechanism decomposes it), X.T @ (X @ W) for a gradient, row norms for a
histogram, python-flint's elimination modulo p for the span of a block of records, numpy's SVD of a block for
its leading directions. Noise is timed where it is drawn. What is left over is the algorithm, the clipping,
the exact integers, the ledger and the session."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from unittest.mock import patch

import numpy as np
from flint import nmod_mat

from benchmarks.verdict import judge
from eigenveil import simulation
from eigenveil.accounting.zcdp import Neighbours
from eigenveil.algorithms import ALGORITHMS
from eigenveil.noise.source import NoiseSpec, OsNoise
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.queries import (
    AdditiveQuery,
    CoordinateClippedSum,
    CoordinateHistograms,
    Count,
    CrossCovariance,
    CrossNorms,
    EigenvalueVotes,
    Frame,
    Gradient,
    GradientNorms,
    Preimage,
    Query,
    ShuffledRecord,
    batch_of,
)
from eigenveil.queries.papers.fingerprints import PRIME, Cells, Pool, Subsamples
from eigenveil.simulation import simulate
from eigenveil.site.record_view import ParallelMap
from eigenveil.site.site import Site
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.grid import whole_bounds
from eigenveil.study.study import Column, Federation, Study
from eigenveil_common.concurrency import map_in_threads

RECORDS, COLUMNS, COMPONENTS = 50_000, 60, 3
SINGLE_RECORDS = 2000  # where every record is a round of its own
FLAT_RECORDS, FLAT_COLUMNS, FEW_RECORDS = 4000, 200, 40
WIDE_RECORDS, WIDE_COLUMNS = 100_000, 500
EXACT_RECORDS, EXACT_COLUMNS, EXACT_RANK = 2000, 1000, 10
LIMIT, WIDE_LIMIT, QUIET_LIMIT, EXACT_LIMIT = 3.0, 1.5, 1.25, 5.0
RUNS = 9
ON_DIRECTIONS = (
    Gradient, GradientNorms, CrossCovariance, CrossNorms,
    CoordinateClippedSum, ShuffledRecord, EigenvalueVotes, CoordinateHistograms,
)  # fmt: skip


@dataclass(slots=True)
class Ledger:
    """Seconds spent drawing noise, and the questions that were asked, of one run."""

    noise: float = 0.0
    asked: list[Query] = field(default_factory=list)


class TimedNoise(OsNoise):
    """The real noise, timed."""

    ledger = Ledger()

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Shape: (spec.length,)."""
        begin = time.perf_counter()
        drawn = super().draw(spec)
        TimedNoise.ledger.noise += time.perf_counter() - begin
        return drawn

    def uniform(self, count: int) -> FloatArray:
        """Shape: (count,)."""
        begin = time.perf_counter()
        drawn = super().uniform(count)
        TimedNoise.ledger.noise += time.perf_counter() - begin
        return drawn


class ListeningSite(Site):
    """A site that remembers what it was asked."""

    def answer(self, query: Query, apply: ParallelMap = map, *, frame: Frame | None = None) -> IntArray:
        """As any site."""
        TimedNoise.ledger.asked.append(query)
        return super().answer(query, apply, frame=frame)


def records(n: int, d: int) -> FloatArray:
    """Correlated records inside the box, with a clear leading subspace. Shape: (n, d)."""
    generator = np.random.default_rng(0)
    return np.clip(generator.normal(size=(n, d)) * 0.2 / np.sqrt(1 + np.arange(d)), -1, 1)


def flat(n: int, d: int, rank: int) -> FloatArray:
    """Whole numbers that lie in a subspace. Shape: (n, d)."""
    generator = np.random.default_rng(0)
    factors = generator.integers(-9, 10, size=(n, rank)), generator.integers(-3, 4, size=(rank, d))
    return np.asarray(factors[0] @ factors[1], dtype=np.float64)


def study(algorithm: Algorithm, x: FloatArray, components: int) -> Study:
    """One site, generous epsilon: the speed is of interest, not the error."""
    lower, upper = (-1.0, 1.0) if np.abs(x).max() <= 1 else whole_bounds(int(np.abs(x).max()))
    columns = tuple(Column(name=f"c{i}", unit="", lower=lower, upper=upper) for i in range(x.shape[1]))
    single = algorithm.properties.single_records
    return Study(
        name="speed",
        columns=columns,
        epsilon=0.5 if single else 4.0,
        delta=1e-6,
        components=1 if single else components,
        federation=Federation(sites=("here",), minimum_cohort=1),
        algorithm=algorithm,
        neighbours=Neighbours.REPLACE_ONE if single else Neighbours.ADD_REMOVE,
        expected_records=len(x),
    )


def data_for(algorithm: Algorithm) -> FloatArray:
    """Records that the algorithm is for. Shape: (n, d)."""
    if algorithm is Algorithm.SUBSPACE_REFERENCE:
        return flat(FEW_RECORDS, COLUMNS, COMPONENTS)
    if algorithm.value.startswith("subspace-"):
        return flat(FLAT_RECORDS, FLAT_COLUMNS, COMPONENTS)
    return records(SINGLE_RECORDS if algorithm.properties.single_records else RECORDS, COLUMNS)


def seconds(work: Callable[[], object]) -> float:
    """The fastest of RUNS runs after one to warm up: what others do on a shared machine does not count."""
    times = []
    for _ in range(RUNS + 1):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times[1:])


def gradient(x: FloatArray, w: FloatArray) -> FloatArray:
    """X^T X W. Shape: (n, d), (d, k) -> (d, k)."""
    return x.T @ (x @ w)


def spans(blocks: Subsamples, rows: IntArray) -> None:
    """Eliminate the first rank + 1 records of every block, and multiply all of them by what is found."""
    size = max(1, len(rows) // blocks.count)
    flat = np.ones((blocks.rank, rows.shape[1]))
    for start in range(0, len(rows), size):
        block = rows[start : start + size]
        first = block[: blocks.rank + 1]
        nmod_mat(len(first), first.shape[1], first.ravel().tolist(), PRIME).rref()
        block[:, : blocks.rank].astype(np.float64) @ flat


def directions(blocks: int, x: FloatArray) -> None:
    """The singular vectors of every block."""
    for block in np.array_split(x, blocks):
        np.linalg.svd(block, full_matrices=False)


def subsets(pool: Pool, rows: IntArray) -> None:
    """The span of every few of the records, and which records lie in it."""
    for chosen in combinations(range(min(len(rows), pool.max_records)), pool.rank):
        few = rows[list(chosen)]
        nmod_mat(len(few), few.shape[1], few.ravel().tolist(), PRIME).rref()
        rows[:, : pool.rank].astype(np.float64) @ few.astype(np.float64)


def source_of(query: Query) -> object:
    """Return the blocks, cells or pool of records that a query about subspaces looks at, else None."""
    if isinstance(query, Preimage):
        return query.source
    return next(
        (found for name in ("subsamples", "cells", "pool") if (found := getattr(query, name, None))), None
    )


def pass_of(query: Query, x: FloatArray) -> tuple[str, Callable[[], object]]:
    """A pass that answers the question, and its name. Shape: x (n, d)."""
    d = x.shape[1]
    if isinstance(query, ON_DIRECTIONS):
        w: FloatArray = np.ones(query.spec.directions.shape)
        return f"gradient {w.shape[-1]}", partial(gradient, x, w)
    match source_of(query):
        case Subsamples() as blocks:
            return f"spans {blocks.count}", partial(spans, blocks, x.astype(np.int64))
        case Cells() as cells:
            return f"directions {cells.count}", partial(directions, cells.count, x)
        case Pool() as pool:
            return "subsets", partial(subsets, pool, x.astype(np.int64))
        case _:
            pass
    if query.length != d * (d + 1) // 2:
        return "norms", lambda: np.einsum("ij,ij->i", x, x)
    if isinstance(query, AdditiveQuery):
        return "gram", lambda: x.T @ x
    return "gram and eigh", lambda: np.linalg.eigh(x.T @ x)


def passes(asked: list[Query], x: FloatArray) -> float:
    """Seconds that the questions' passes take on the same records."""
    known: dict[str, float] = {}
    total = 0.0
    for query in asked:
        if isinstance(query, Count):
            continue
        name, work = pass_of(query, x)
        if name not in known:
            known[name] = seconds(work)
        part = batch_of(query)
        total += known[name] / (1 if part is None else part.batches)
    return total


def measured(algorithm: Algorithm, x: FloatArray, components: int) -> tuple[float, float, float, str]:
    """Seconds of the whole run, of its passes and of its noise, and why nothing was released, if so."""
    wanted, runs = study(algorithm, x, components), []
    for _ in range(RUNS + 1):
        TimedNoise.ledger = Ledger()
        begin = time.perf_counter()
        done = simulate(wanted, {"here": x}, apply=map_in_threads)
        runs.append((time.perf_counter() - begin, TimedNoise.ledger))
    whole, ledger = min(runs[1:], key=lambda run: run[0])
    return whole, passes(ledger.asked, x), ledger.noise, done.estimate.declined or ""


def main() -> int:
    """Print one line an algorithm; 1 if one is beyond its limit."""
    print(f"whole runs, in units of their passes plus noise (at most {LIMIT:g})")
    with patch.multiple(simulation, OsNoise=TimedNoise, Site=ListeningSite):
        beyond = [name.value for name in ALGORITHMS if asks_anything(name) and not compared(name)]
        for name, check in (("gauss-cov, wide", wide), ("subspace-exact, wide", exact)):
            beyond += [] if check() else [name]
    print(f"missed and not on record, or worse: {', '.join(beyond) or 'none'}")
    return int(bool(beyond))


def asks_anything(algorithm: Algorithm) -> bool:
    """The zero matrix does not."""
    return algorithm.properties.private and algorithm is not Algorithm.ZERO


def compared(algorithm: Algorithm) -> bool:
    """Print an algorithm's line; whether it is within the limit."""
    x = data_for(algorithm)
    whole, own, noise, declined = measured(algorithm, x, COMPONENTS)
    times = whole / (own + noise)
    word, failed = judge(f"{algorithm.value}, whole run", times, LIMIT)
    print(
        f"  {algorithm.value:22} {x.shape[0]:>6} x {x.shape[1]:<4} {times:5.2f} x ({1e3 * whole:.0f} ms; "
        f"passes {1e3 * own:.0f}, noise {1e3 * noise:.0f}){'; no release' if declined else ''} {word}",
        flush=True,
    )
    return not failed


def wide() -> bool:
    """gauss-cov on 100,000 x 500 against numpy's Gram matrix and its eigh."""
    x = records(WIDE_RECORDS, WIDE_COLUMNS)
    reference = seconds(lambda: np.linalg.eigh(x.T @ x))
    whole, _, noise, _ = measured(Algorithm.GAUSS_COV, x, COMPONENTS)
    weak, quiet_failed = judge("gauss-cov, wide, without noise", (whole - noise) / reference, QUIET_LIMIT)
    word, failed = judge("gauss-cov, wide", whole / reference, WIDE_LIMIT)
    print(
        f"gauss-cov, {WIDE_RECORDS:,} x {WIDE_COLUMNS}, against numpy's Gram and eigh ({reference:.3f} s): "
        f"{(whole - noise) / reference:.2f} x without its noise (at most {QUIET_LIMIT:g}) {weak}, "
        f"{whole / reference:.2f} x with it (at most {WIDE_LIMIT:g}) {word}"
    )
    return not (failed or quiet_failed)


def exact() -> bool:
    """subspace-exact with d = 1,000, k = 10 and 2,000 records."""
    x = flat(EXACT_RECORDS, EXACT_COLUMNS, EXACT_RANK)
    whole, _, _, declined = measured(Algorithm.SUBSPACE_EXACT, x, EXACT_RANK)
    print(
        f"subspace-exact, {EXACT_RECORDS:,} x {EXACT_COLUMNS:,}, k = {EXACT_RANK}: {whole:.2f} s "
        f"(at most {EXACT_LIMIT:g}){'; no release' if declined else ''}"
    )
    return whole <= EXACT_LIMIT


if __name__ == "__main__":
    raise SystemExit(main())
