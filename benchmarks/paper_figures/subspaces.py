"""Privately Learning Subspaces (Singhal, Steinke 2021): when a subspace is found, and what it takes.

Exact case: records are integer combinations of k integer vectors, so that they lie in a k-dimensional space
to the last bit. Approximate case: the same and normal noise, of a stated lambda_{k+1} / lambda_k."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.families import box
from benchmarks.paper_figures.cells import Point, Table
from benchmarks.paper_figures.figure import Figure
from benchmarks.paper_figures.simulated import landed, sines
from benchmarks.paper_figures.style import MARKERS, TURNS, Look, Panel, draw
from eigenveil.numerics.encoding import FloatArray
from eigenveil.study.grid import S

FOUND, NEAR = 1e-9, 0.2  # a sine below these counts as success, exact and approximate
K, D, N = 2, 50, 200
NEAR_D, NEAR_N = 10, 30_000
RATIO = 1e-6  # lambda_{k+1} / lambda_k of the approximate case where it is not varied
SIZES = (40.0, 60.0, 80.0, 120.0, 160.0, 240.0)
MANY = (1000.0, 3000.0, 10_000.0, 30_000.0, 100_000.0)
AMBIENT, RANKS, NEAR_AMBIENT = (20, 100, 500), (2, 5, 10), (10, 20, 50)
MOST_REFERENCE = 250  # records that subspace-reference may look at every pair of
Setting = Mapping[str, Any]


def lattice(n: int, d: int, k: int, generator: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """n integer records in the span of k sparse integer vectors, and an orthonormal basis of that span.

    Shape: (n, d) and (k, d)."""
    basis = generator.integers(-2, 3, (k, d)).astype(np.float64)
    most = S // (2 * k * 2)
    records = np.rint(generator.uniform(-most, most, (n, k))) @ basis
    return records, np.linalg.qr(basis.T)[0].T


def near(
    n: int, d: int, k: int, ratio: float, generator: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """n records with k equal variances and d - k that are `ratio` of them, in random directions.

    Rounding to the grid adds a variance of 1 / 12 in each direction, a ratio of 1e-6 or less.
    Shape: (n, d) and (k, d)."""
    turn = np.linalg.qr(generator.standard_normal((d, d)))[0].T
    spread = np.full(d, np.sqrt(ratio))
    spread[:k] = 1.0
    reach = S / (6 * np.abs(turn[:k]).max())  # 6 standard deviations of the widest column
    return reach / np.sqrt(k) * (generator.standard_normal((n, d)) * spread) @ turn, turn[:k]


def found(setting: Setting, seed: int, series: tuple[str, ...]) -> dict[str, float]:
    """1 where the subspace is found, 0 where nothing or another one is released. A series: "method d=.."."""
    out = {}
    for name in series:
        method, _, value = name.partition(" ")
        shape = {"d": D, "k": K} | {value.split("=")[0]: int(value.split("=")[1])}
        generator = np.random.default_rng(seed)
        if method == "subspace-exact":
            records, truth = lattice(setting["n"], shape["d"], shape["k"], generator)
        else:
            records, truth = near(setting["n"], shape["d"], shape["k"], RATIO, generator)
        sine = _sines((method,), records, truth, seed)[method]
        out[name] = float(sine < (FOUND if method == "subspace-exact" else NEAR))
    return out


def _sines(
    series: tuple[str, ...], records: FloatArray, truth: FloatArray, seed: int, epsilon: float = 1.0
) -> dict[str, float]:
    """Each method's sine, for records whose grid is the integers."""
    columns = box(records.shape[1], float(S))
    out: dict[str, float] = {}
    for name in series:
        most = MOST_REFERENCE if name == "subspace-reference" else 2**20
        out |= sines(
            (name,), records, columns, truth, seed, epsilon=epsilon, centring=False, max_records=most
        )
    return out


def turned(setting: Setting, seed: int, series: tuple[str, ...]) -> dict[str, float]:
    """The sine of the largest angle in the approximate case."""
    records, truth = near(setting["n"], NEAR_D, K, setting["ratio"], np.random.default_rng(seed))
    return _sines(series, records, truth, seed, setting.get("epsilon", 1.0))


def exact_page(setting: Setting, seed: int, series: tuple[str, ...]) -> dict[str, float]:
    """The sine of the largest angle in the exact case."""
    records, truth = lattice(setting["n"], D, K, np.random.default_rng(seed))
    return _sines(series, records, truth, seed, setting["epsilon"])


def near_page(setting: Setting, seed: int, series: tuple[str, ...]) -> dict[str, float]:
    """The sine of the largest angle in the approximate case, at RATIO."""
    return turned(dict(setting) | {"ratio": RATIO}, seed, series)


def points(quick: bool) -> tuple[Point, ...]:
    """n for several d and k, and the gap."""
    repeats = 6 if quick else 40
    sizes = (60, 200) if quick else (40, 60, 80, 120, 160, 240, 400, 600)
    ratios = (1e-6, 1e-2) if quick else (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
    many = MANY[1:4:2] if quick else MANY
    exact, approx = bool(landed("subspace-exact")), bool(landed("subspace-approx"))
    out: list[Point] = []
    for x in sizes if exact else ():
        for key, values in (("d", AMBIENT), ("k", RANKS)):
            series = tuple(f"subspace-exact {key}={value}" for value in values)
            out.append(Point(panel=key, x=x, series=series, setting={"n": x}, measure=found, repeats=repeats))
    few = repeats // 4 + 1
    for n in many if approx else ():
        series = tuple(f"subspace-approx d={value}" for value in NEAR_AMBIENT)
        out.append(
            Point(panel="approx", x=n, series=series, setting={"n": int(n)}, measure=found, repeats=few)
        )
    for ratio in ratios if approx else ():
        out.append(
            Point(
                panel="ratio",
                x=ratio,
                series=("subspace-approx", "gauss-cov"),
                setting={"n": NEAR_N, "ratio": ratio},
                measure=turned,
                repeats=few,
            )
        )
    return tuple(out)


def _looks(method: str, key: str, values: tuple[int, ...]) -> dict[str, Look]:
    return {
        f"{method} {key}={value}": Look(colour=colour, marker=marker, band=False)
        for value, colour, marker in zip(values, TURNS, MARKERS, strict=False)
    }


def draw_all(table: Table, path: Path) -> None:
    """Success against n, and error against the gap."""
    every = [
        ("d", f"exact, k = {K}", _looks("subspace-exact", "d", AMBIENT)),
        ("k", f"exact, d = {D}", _looks("subspace-exact", "k", RANKS)),
        ("approx", f"approximate, k = {K}, ratio {RATIO:g}", _looks("subspace-approx", "d", NEAR_AMBIENT)),
    ]
    panels = [
        Panel(
            key=key, title=title, x="records n", y="share of runs that succeed", series=tuple(looks),
            looks=looks, y_scale="linear", y_limits=(-0.04, 1.04), own_legend=True,
        )
        for key, title, looks in every
    ]  # fmt: skip
    gap = Panel(
        key="ratio", title=f"approximate, k = {K}, d = {NEAR_D}, n = {NEAR_N:,}", x="λ(k+1) / λ(k)",
        y="sine of the largest angle", series=("gauss-cov", "subspace-approx"),
        own_legend=True,
    )  # fmt: skip
    draw(table, [*panels, gap], path, columns=2, width=4.2, height=2.9)


def figures(quick: bool) -> Iterator[Figure]:
    """One figure of four panels."""
    yield Figure(name="subspaces", points=points(quick), draw=partial(draw_all))
