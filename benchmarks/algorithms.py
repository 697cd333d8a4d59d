"""Each algorithm's whole run in the simulator against its own passes over the data plus its noise.

A pass is what plain numpy needs for the question at hand on the same records as float64: X.T @ X for a matrix
of products (and numpy's eigh where the mechanism decomposes it), X.T @ (X @ W) for a gradient, row norms for
a histogram. Noise is timed where it is drawn. What is left over is what the algorithm, the clipping, the
exact integers, the ledger and the session cost.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from eigenveil import simulator
from eigenveil.algorithms import ALGORITHMS
from eigenveil.asks import Additive, Ask, Count, Gradient, GradientNorms, part_of
from eigenveil.errors import RequestError
from eigenveil.ints import FloatArray, IntArray
from eigenveil.noise import NoiseSpec, OsNoise
from eigenveil.simulator import simulate
from eigenveil.site import Site
from eigenveil.study import Algorithm, Column, Federation, Neighbours, Study
from eigenveil.traits import TRAITS

RECORDS, COLUMNS, COMPONENTS = 50_000, 60, 3
WIDE_RECORDS, WIDE_COLUMNS = 100_000, 500
LIMIT = 3.0
RUNS = 3


@dataclass(slots=True)
class Ledger:
    """Seconds spent drawing noise, and the questions that were asked, of one run."""

    noise: float = 0.0
    asked: list[Ask] = field(default_factory=list)


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

    def answer(self, ask: Ask, *rest: object) -> IntArray:
        """As any site."""
        TimedNoise.ledger.asked.append(ask)
        return super().answer(ask)


def records(n: int, d: int) -> FloatArray:
    """Correlated records inside the box, with a clear leading subspace. Shape: (n, d)."""
    generator = np.random.default_rng(0)
    return np.clip(generator.normal(size=(n, d)) * 0.2 / np.sqrt(1 + np.arange(d)), -1, 1)


def study(algorithm: Algorithm, n: int, d: int) -> Study:
    """One site, generous epsilon: the speed is of interest, not the error."""
    columns = tuple(Column(name=f"c{i}", unit="", lower=-1.0, upper=1.0) for i in range(d))
    single = algorithm is Algorithm.PRIVATE_OJA_SHUFFLED
    return Study(
        name="speed",
        columns=columns,
        epsilon=4.0,
        delta=1e-6,
        components=1 if TRAITS[algorithm].one_site else COMPONENTS,
        federation=Federation(sites=("here",), minimum_cohort=1),
        algorithm=algorithm,
        neighbours=Neighbours.REPLACE_ONE if single else Neighbours.ADD_REMOVE,
        expected_records=n,
    )


def seconds(work: Callable[[], object]) -> float:
    """Median of RUNS runs after one to warm up."""
    times = []
    for _ in range(RUNS + 1):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def gradient(x: FloatArray, w: FloatArray) -> FloatArray:
    """X^T X W. Shape: (n, d), (d, k) -> (d, k)."""
    return x.T @ (x @ w)


def passes(asked: list[Ask], x: FloatArray) -> float:
    """Seconds that numpy needs for the questions' products on the same records."""
    d = x.shape[1]
    known: dict[tuple[str, int], float] = {}

    def once(name: str, k: int, work: Callable[[], object]) -> float:
        if (name, k) not in known:
            known[name, k] = seconds(work)
        return known[name, k]

    total = 0.0
    for ask in asked:
        part = part_of(ask)
        share = 1.0 if part is None else 1.0 / part.parts
        if isinstance(ask, Count):
            continue
        if isinstance(ask, Gradient | GradientNorms):
            w = np.ones(ask.field.directions.shape)
            total += share * once("gradient", w.shape[1], partial(gradient, x, w))
        elif ask.length == d * (d + 1) // 2:
            total += once("gram", d, lambda: x.T @ x)
            if not isinstance(ask, Additive):
                total += once("eigh", d, lambda: np.linalg.eigh(x[:d].T @ x[:d]))
        else:
            total += share * once("norms", 1, lambda: np.einsum("ij,ij->i", x, x))
    return total


def measured(algorithm: Algorithm, x: FloatArray) -> tuple[float, float, float]:
    """Seconds of the whole run, of numpy's passes and of the noise. Shape: x (n, d)."""
    wanted, runs = study(algorithm, *x.shape), []
    for _ in range(RUNS + 1):
        TimedNoise.ledger = Ledger()
        begin = time.perf_counter()
        simulate(wanted, {"here": x})
        runs.append((time.perf_counter() - begin, TimedNoise.ledger))
    whole, ledger = sorted(runs[1:], key=lambda run: run[0])[RUNS // 2]
    return whole, passes(ledger.asked, x), ledger.noise


def main() -> int:
    """Print one line an algorithm; 1 if one is beyond LIMIT."""
    simulator.OsNoise, simulator.Site = TimedNoise, ListeningSite  # type: ignore[misc]
    x, slow = records(RECORDS, COLUMNS), []
    print(f"whole runs on {RECORDS:,} x {COLUMNS}, in units of numpy's passes plus noise (at most {LIMIT:g})")
    for algorithm in ALGORITHMS:
        if not TRAITS[algorithm].private or algorithm is Algorithm.ZERO:
            continue
        try:
            whole, own, noise = measured(algorithm, x)
        except RequestError as problem:
            print(f"  {algorithm.value:24} not here: {problem}")
            continue
        times = whole / (own + noise)
        slow += [algorithm.value] if times > LIMIT else []
        detail = f"{1e3 * whole:.0f} ms; passes {1e3 * own:.0f}, noise {1e3 * noise:.0f}"
        print(f"  {algorithm.value:24} {times:5.2f} x ({detail})")
    wide()
    if slow:
        print(f"beyond {LIMIT:g}: {', '.join(slow)}")
    return int(bool(slow))


def wide() -> None:
    """gauss-cov on 100,000 x 500 against numpy's Gram matrix and its eigh."""
    x = records(WIDE_RECORDS, WIDE_COLUMNS)
    reference = seconds(lambda: np.linalg.eigh(x.T @ x))
    whole, _, noise = measured(Algorithm.GAUSS_COV, x)
    alone, together = (whole - noise) / reference, whole / reference
    print(
        f"gauss-cov, {WIDE_RECORDS:,} x {WIDE_COLUMNS}, against numpy Gram and eigh ({reference:.3f} s): "
        f"{alone:.2f} x without its noise, {together:.2f} x with it"
    )


if __name__ == "__main__":
    raise SystemExit(main())
