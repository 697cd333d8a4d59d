"""DP-PCA (Liu, Kong, Jain, Oh 2022): the error of the first component against sigma, n and d.

Two models of the paper: signal plus noise, x = +-v + sigma z, whose gradients x (x . v) spread less and less
as sigma falls; and normal records with lambda_1 = 2 lambda_2, for which its lower bound is stated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from benchmarks.families import box, plus_minus, spiked
from benchmarks.paper_figures.cells import Point, Table
from benchmarks.paper_figures.figure import Figure
from benchmarks.paper_figures.simulated import DELTA, landed, sines
from benchmarks.paper_figures.style import LOOKS, Panel, draw

EPSILON = 1.0
SERIES = ("gauss-cov", "dp-pca", "dp-pca-single-pass", "private-oja", "exact PCA")
N_SIGMA, D_SIGMA = 100_000, 20
N, D = 30_000, 50
Setting = Mapping[str, Any]


def signal_noise(setting: Setting, seed: int, series: tuple[str, ...]) -> dict[str, float]:
    """Errors on x = +-v + sigma z, v a random direction."""
    family = plus_minus(setting["n"], setting["d"], setting["sigma"])
    records, v = family.draw(np.random.default_rng(seed))
    assert v is not None
    return sines(series, records, family.columns, v[None, :], seed, epsilon=EPSILON)


def normal(setting: Setting, seed: int, series: tuple[str, ...]) -> dict[str, float]:
    """Errors on normal records with variances 2, 1, ..., 1."""
    family = spiked(setting["n"], setting["d"])
    records, v = family.draw(np.random.default_rng(seed))
    assert v is not None
    return sines(series, records, box(setting["d"], 6.0), v[None, :], seed, epsilon=EPSILON)


def lower_bound(first: float, second: float, n: float, d: float) -> float:
    """Theorem 5.3 with constant 1: kappa sqrt(l2 / l1) (sqrt(d / n) + d / (epsilon n)), at most 1."""
    kappa = first / (first - second)
    return min(1.0, kappa * math.sqrt(second / first) * (math.sqrt(d / n) + d / (EPSILON * n)))


def upper_bound(first: float, second: float, n: float, d: float) -> float:
    """Theorem 5.1 for normal records with constant 1 and without its logarithms of n and d:
    kappa sqrt(l2 / l1) (sqrt(d / n) + d sqrt(ln(1 / delta)) / (epsilon n)), at most 1."""
    kappa, private = first / (first - second), d * math.sqrt(math.log(1 / DELTA)) / (EPSILON * n)
    return min(1.0, kappa * math.sqrt(second / first) * (math.sqrt(d / n) + private))


def points(quick: bool) -> tuple[Point, ...]:
    """sigma, n and d varied in turn."""
    sigmas = (0.01, 0.1, 1) if quick else (0.003, 0.01, 0.03, 0.1, 0.3, 1)
    ns = (3000, 30_000) if quick else (3000, 10_000, 30_000, 100_000, 300_000)
    ds = (10, 100) if quick else (10, 20, 50, 100, 200, 400)
    every = partial(Point, series=landed(*SERIES), repeats=3 if quick else 20)
    n = N_SIGMA // 5 if quick else N_SIGMA
    return (
        *(
            every(panel="sigma", x=s, setting={"n": n, "d": D_SIGMA, "sigma": s}, measure=signal_noise)
            for s in sigmas
        ),
        *(every(panel="n", x=size, setting={"n": size, "d": D}, measure=normal) for size in ns),
        *(every(panel="d", x=d, setting={"n": N, "d": d}, measure=normal) for d in ds),
    )


def bounds(panel: Panel, axes: Axes, n_sigma: int) -> None:
    """The two bounds as lines."""
    low, high = axes.get_xlim()
    for name, bound in (("upper bound", upper_bound), ("lower bound", lower_bound)):
        x = np.geomspace(low, high, 60)
        if panel.key == "sigma":
            y = [bound(1 + s**2, s**2, n_sigma, D_SIGMA) for s in x]
        elif panel.key == "n":
            y = [bound(2.0, 1.0, size, D) for size in x]
        else:
            y = [bound(2.0, 1.0, N, d) for d in x]
        axes.plot(x, y, LOOKS[name].line, color=LOOKS[name].colour, linewidth=1.1, label=name)
    axes.set_xlim(low, high)


def draw_all(table: Table, path: Path, n_sigma: int) -> None:
    """Error against sigma, n and d."""
    y = "sine of the angle to v"
    titles = (
        ("sigma", f"±v + σ z,  n = {n_sigma:,}, d = {D_SIGMA}", "σ", y),
        ("n", f"normal, κ = 2, d = {D}", "records n", ""),
        ("d", f"normal, κ = 2, n = {N:,}", "columns d", ""),
    )
    panels = [Panel(key=key, title=title, x=x, y=label, series=SERIES) for key, title, x, label in titles]
    draw(
        table,
        panels,
        path,
        columns=3,
        legend_columns=4,
        also=lambda panel, axes: bounds(panel, axes, n_sigma),
    )


def figures(quick: bool) -> Iterator[Figure]:
    """One figure of three panels."""
    n = N_SIGMA // 5 if quick else N_SIGMA
    yield Figure(name="dp-pca-bounds", points=points(quick), draw=partial(draw_all, n_sigma=n))
