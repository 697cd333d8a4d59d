"""Refinement: the error of the first component against epsilon, n, d and the gap, with it and without.

Normal records in random directions, of variances 1, then 1 - gap, falling like a square root: a gap of .5 is
a second direction with half of the first one's variance, and a third with .35 of it."""

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

SERIES = ("exact PCA", "gauss-cov", "dp-pca", "refined-cov", "refined-pca")
HELD: Mapping[str, Any] = {"epsilon": 1.0, "n": 10_000, "d": 50, "gap": 0.5}
VARIED: Mapping[str, tuple[float, ...]] = {
    "epsilon": (0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
    "n": (1000.0, 3000.0, 10_000.0, 30_000.0, 100_000.0),
    "d": (10.0, 20.0, 50.0, 100.0, 200.0),
    "gap": (0.05, 0.1, 0.2, 0.5, 0.9),
}
FAR = 6  # standard deviations of a column from its middle to its bounds


def drawn(n: int, d: int, gap: float, seed: int) -> tuple[FloatArray, FloatArray, float]:
    """Records, the direction of the largest variance, and half of what columns' bounds span.

    Shape: (n, d) and (1, d)."""
    generator = np.random.default_rng(seed)
    turn = np.linalg.qr(generator.standard_normal((d, d)))[0]
    values = np.append(1.0, (1 - gap) * np.arange(1, d) ** -0.5)
    rows = generator.standard_normal((n, d)) * np.sqrt(values) @ turn.T
    return rows, turn.T[:1], FAR * float(np.sqrt(values.mean()))


def error(setting: Mapping[str, Any], seed: int, series: tuple[str, ...]) -> dict[str, float]:
    """The sine of the angle between the first component and the direction that records were drawn with."""
    rows, truth, half = drawn(setting["n"], setting["d"], setting["gap"], seed)
    return sines(series, rows, box(setting["d"], half), truth, seed, epsilon=setting["epsilon"])


def points(quick: bool) -> tuple[Point, ...]:
    """epsilon, n, d and the gap varied in turn, the others held."""
    out = []
    for panel, values in VARIED.items():
        for x in values[1::2] if quick else values:
            changed = int(x) if panel in ("n", "d") else x
            setting = {**HELD, **({"n": 3000} if quick else {}), panel: changed}
            out.append(
                Point(
                    panel=panel,
                    x=x,
                    series=landed(*SERIES),
                    setting=setting,
                    measure=error,
                    repeats=2 if quick else 11,
                )
            )
    return tuple(out)


def draw_all(table: Table, path: Path) -> None:
    """Four panels."""
    y = "sine of the angle, first component"
    stored = {"epsilon": "ε = 1", "n": "n = 10,000", "d": "d = 50", "gap": "gap 0.5"}
    labels = {
        "epsilon": "ε", "n": "records n", "d": "columns d", "gap": "gap, as a share of the first variance",
    }  # fmt: skip
    panels = [
        Panel(
            key=key,
            title=", ".join(words for other, words in stored.items() if other != key),
            x=label,
            y=y if index % 2 == 0 else "",
            series=SERIES,
        )
        for index, (key, label) in enumerate(labels.items())
    ]
    draw(table, panels, path, columns=2, width=3.6, legend_columns=5)


def figures(quick: bool) -> Iterator[Figure]:
    """One figure of four panels."""
    yield Figure(name="refined", points=points(quick), draw=draw_all)
