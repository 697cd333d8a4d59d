"""Processor time of a default fit by its parts, beside numpy's exact one, and of a plan (docs/scale.md).

One thread, the least of a few runs: what others do on a shared machine does not count."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.algorithms import COMPONENTS, records, study
from benchmarks.verdict import judge
from eigenveil import simulation
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.planning.choose import make_plan
from eigenveil.queries import NAMES, Frame, Query
from eigenveil.reporting.explain import explain
from eigenveil.simulation import simulate
from eigenveil.site.record_view import ParallelMap
from eigenveil.site.site import Site
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Study

FITS = {(100_000, 500): 2.0, (20_000, 1000): 2.0, (100_000, 100): 4.0}  # at most, in exact fits
PLANS = {1000: 1.0, 4000: 5.0}  # columns; seconds at most
RUNS = 5


class TimedSite(Site):
    """Site that adds up the processor time of its answers, by the name of their query."""

    spent: dict[str, float]

    def answer(self, query: Query, apply: ParallelMap = map, *, frame: Frame | None = None) -> IntArray:
        """Return the answer of any site."""
        begin = time.process_time()
        found = super().answer(query, apply, frame=frame)
        name = NAMES[type(query)]
        TimedSite.spent[name] = TimedSite.spent.get(name, 0.0) + time.process_time() - begin
        return found


def seconds(work: Callable[[], object]) -> float:
    """Return the least processor time of RUNS runs after one to warm up."""
    times = []
    for _ in range(RUNS + 1):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times[1:])


def exact_components(x: FloatArray) -> None:
    """Compute mean, Gram matrix and eigenvectors by numpy."""
    z = x - x.mean(axis=0)
    np.linalg.eigh(z.T @ z)


def fit(wanted: Study, x: FloatArray) -> None:
    TimedSite.spent = {}
    simulate(wanted, {"here": x})


def within_fit(shape: tuple[int, int], limit: float) -> bool:
    """Print a fit's row; False if it is beyond its limit."""
    x = records(*shape)
    wanted = study(Algorithm.REFINED_COV, x, COMPONENTS)
    ours, reference = seconds(partial(fit, wanted, x)), seconds(partial(exact_components, x))
    word, failed = judge(f"default fit, {shape[0]} x {shape[1]}", ours / reference, limit)
    parts = ", ".join(f"{name} {took:.3f}" for name, took in TimedSite.spent.items() if took >= 5e-3)
    rest = ours - sum(TimedSite.spent.values())
    print(
        f"| {shape[0]:,} x {shape[1]:,} | {reference:.3f} s | {ours:.3f} s | {ours / reference:.2f} "
        f"(at most {limit:g}, {word}) | {parts}; rest {rest:.3f} |",
        flush=True,
    )
    return not failed


def within_plan(columns: int, limit: float) -> bool:
    """Print a plan's row; False if it is beyond its limit."""
    small = study(Algorithm.REFINED_COV, np.zeros((20_000, columns)), COMPONENTS)
    plan = replace(small, max_records=2**15)
    took = seconds(lambda: explain(make_plan(plan)))
    word, failed = judge(f"plan, {columns} columns", took, limit)
    print(f"| {columns:,} | {took:.2f} s (at most {limit:g}, {word}) |", flush=True)
    return not failed


def main() -> int:
    """Print a row for each shape and for each number of columns of a plan; 1 if one is beyond its limit."""
    with threadpool_limits(1), patch.object(simulation, "Site", TimedSite):
        print(
            "| records x columns | numpy | default fit | ratio | of it, in seconds |\n|---|---|---|---|---|"
        )
        fits = [within_fit(shape, limit) for shape, limit in FITS.items()]
        print("\n| columns | plan of refined-cov |\n|---|---|")
        plans = [within_plan(columns, limit) for columns, limit in PLANS.items()]
    return int(not all((*fits, *plans)))


if __name__ == "__main__":
    sys.exit(main())
