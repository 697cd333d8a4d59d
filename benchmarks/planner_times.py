"""Basis of the planner's times, measured on this machine; planning/predict.py holds the assumed ones."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from eigenveil.noise.source import Block, NoiseSpec, OsNoise
from eigenveil.numerics.linalg import eigenpairs
from eigenveil.planning.predict import DECOMPOSE_SECONDS, DRAW_SECONDS, MULTIPLY_SECONDS, TOUCH_SECONDS
from eigenveil.protocol.query import NoiseDistribution
from eigenveil.queries import Gradient, GradientSpec, Gram, Query, RowNorms
from eigenveil.site.site import Site
from eigenveil.study.grid import S

RECORDS, COLUMNS, NUMBERS, RUNS = 50_000, 100, 5000, 5


def median_seconds(work: Callable[[], object]) -> float:
    """Median seconds of a few runs after the first."""
    times = []
    for _ in range(RUNS + 1):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def field(k: int) -> GradientSpec:
    """k directions."""
    directions = np.zeros((COLUMNS, k), dtype=np.int64)
    directions[np.arange(k), np.arange(k)] = 2**18
    return GradientSpec(
        centre=np.zeros(COLUMNS, dtype=np.int64), directions=directions, offset=directions * 0, shift=12
    )


def main() -> None:
    """Print each constant as measured beside the one in use."""
    with threadpool_limits(1):
        rows = np.random.default_rng(0).normal(size=(RECORDS, COLUMNS)) * S / 6
        site = Site(np.clip(np.rint(rows), -S, S).astype(np.int16))
        centre, entries = np.zeros(COLUMNS, dtype=np.int64), RECORDS * COLUMNS
        answers: dict[str, Query] = {
            "norms": RowNorms(centre=centre, edges=np.array([S, 2 * S])),
            "matrix": Gram(centre=centre, radius=8 * S),
            "1 direction": Gradient(spec=field(1), radius=2**28),
            "5 directions": Gradient(spec=field(5), radius=2**28),
        }
        spent = {
            name: median_seconds(partial(site.answer, query)) / entries for name, query in answers.items()
        }
        spec = NoiseSpec(blocks=(Block(count=NUMBERS, scale=1e6, distribution=NoiseDistribution.GAUSSIAN),))
        draw = median_seconds(partial(OsNoise().draw, spec)) / NUMBERS
        matrix = np.cov(rows[:2000].T)
        decompose = median_seconds(partial(eigenpairs, matrix)) / COLUMNS**3
    for name, seconds in spent.items():
        print(f"{name:14} {1e9 * seconds:7.2f} ns an entry of the records")
    slope = (spent["matrix"] - spent["norms"]) / (COLUMNS - 1)
    print(f"MULTIPLY_SECONDS  {slope:.2g} (in use {MULTIPLY_SECONDS:g})")
    print(f"TOUCH_SECONDS     {spent['norms']:.2g} (in use {TOUCH_SECONDS:g})")
    print(f"DRAW_SECONDS      {draw:.2g} (in use {DRAW_SECONDS:g})")
    print(f"DECOMPOSE_SECONDS {decompose:.2g} (in use {DECOMPOSE_SECONDS:g})")
