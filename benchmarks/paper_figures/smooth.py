"""Smooth sensitivity (Gonen, Gilad-Bachrach 2018): error against the gap, counted in records.

Records of length 1 lie on d axes in random directions, a on each of the first k and b on each other one:
then the Gram matrix has the eigenvalues a and b, and the gap is a - b exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.families import box
from benchmarks.paper_figures.cells import Point, Table
from benchmarks.paper_figures.figure import Figure
from benchmarks.paper_figures.simulated import landed, sines
from benchmarks.paper_figures.style import Panel, draw
from eigenveil.numerics.encoding import FloatArray

SERIES = ("gauss-cov", "smooth-gaussian", "smooth-cauchy", "propose-test-release")
K, D, N = 2, 8, 30_000
BASE = 500  # records on each axis beyond the first k
SIZES = (300.0, 1000.0, 3000.0, 10_000.0, 30_000.0, 100_000.0)
Setting = Mapping[str, Any]


def axes(a: int, b: int, d: int, generator: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Records on axes, signs at random; and the first K axes. Shape: (K a + (d - K) b, d) and (K, d)."""
    turn = np.linalg.qr(generator.standard_normal((d, d)))[0].T
    counts = np.array([a] * K + [b] * (d - K))
    records = np.repeat(turn, counts, axis=0)
    return records * generator.choice([-1.0, 1.0], len(records))[:, None], turn[:K]


def measure(setting: Setting, seed: int, series: tuple[str, ...]) -> dict[str, float]:
    """The sine of the largest angle to the first K axes."""
    records, truth = axes(setting["gap"] + BASE, BASE, setting["d"], np.random.default_rng(seed))
    columns = box(setting["d"], 1.0)
    return sines(series, records, columns, truth, seed, epsilon=setting["epsilon"], centring=False)


def page(setting: Setting, seed: int, series: tuple[str, ...]) -> dict[str, float]:
    """The same with n records and a gap of n / 4."""
    b = setting["n"] // (4 * D) * 2
    a = (setting["n"] - (D - K) * b) // K
    records, truth = axes(a, b, D, np.random.default_rng(seed))
    return sines(series, records, box(D, 1.0), truth, seed, epsilon=setting["epsilon"], centring=False)


def points(quick: bool) -> tuple[Point, ...]:
    """The gap, at two d and two epsilons."""
    gaps = (100, 10_000) if quick else (30, 100, 300, 1000, 3000, 10_000, 30_000)
    repeats = 3 if quick else 30
    panels = (("d=8", 8, 1.0), ("d=30", 30, 1.0), ("epsilon=4", 8, 4.0))
    return tuple(
        Point(
            panel=panel,
            x=gap,
            series=landed(*SERIES),
            setting={"gap": gap, "d": d, "epsilon": epsilon},
            measure=measure,
            repeats=repeats,
        )
        for panel, d, epsilon in panels
        for gap in gaps
        if len(landed(*SERIES)) > 1
    )


def draw_all(table: Table, path: Path) -> None:
    """Error against the gap."""
    titles = (("d=8", "ε = 1, d = 8"), ("d=30", "ε = 1, d = 30"), ("epsilon=4", "ε = 4, d = 8"))
    panels = [
        Panel(
            key=key,
            title=f"{title}, k = {K}",
            x="gap, in records",
            y="sine of the largest angle" if key == "d=8" else "",
            series=SERIES,
        )
        for key, title in titles
    ]
    draw(table, panels, path, columns=3)


def figures(quick: bool) -> Iterator[Figure]:
    """One figure of three panels."""
    yield Figure(name="smooth-gap", points=points(quick), draw=draw_all)
