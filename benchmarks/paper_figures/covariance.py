"""Covariance Revisited (Dong, Liang, Yi 2022): the error of the matrix in Frobenius norm.

As there: records in the unit ball, not centred, one record replaced, n public, and eigenvalues cut to
[0, 1] whatever the method, which is post-processing. The records are those of the authors' published code."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine

from benchmarks.families import Family, box, breast_study, fixed, present
from benchmarks.paper_figures.cells import Point, Table
from benchmarks.paper_figures.figure import Figure
from benchmarks.paper_figures.simulated import DELTA, landed, run
from benchmarks.paper_figures.style import Panel, draw
from eigenveil.accounting import gaussian, zcdp
from eigenveil.accounting.zcdp import MICRO, Neighbours
from eigenveil.algorithms import Estimate
from eigenveil.algorithms.recommended.gauss_cov import debiased_eigenvalues
from eigenveil.algorithms.shared import preparation
from eigenveil.algorithms.shared.clip_radius import NormGrid
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs
from eigenveil.site.record_view import to_grid
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.grid import S
from eigenveil.study.study import Column, Federation, Scaling, Study

RHO, STEEP, BINS = 0.1, 3, 4
N, D = 16_000, 200  # the authors' n is 50,000, which takes three times as long; panel (c) has it
SERIES = (
    "analyze-gauss", "gauss-cov", "gauss-cov, shrunk", "gauss-cov, clipped", "separate-cov",
    "separate-cov, clipped", "adaptive-cov", "em-cov", "zero",
)  # fmt: skip
SLOW = ("em-cov",)
EM_WIDEST = 200  # beyond, sampling all d directions takes many seconds a run
Setting = Mapping[str, Any]


def zipf_rows(n: int, d: int, bins: int, generator: np.random.Generator) -> FloatArray:
    """Normal rows times a random matrix, centred, with lengths 2^-(bins-1), ..., 1/2, 1.

    A length 2^-(bins-1-j) has probability proportional to 1 / (j + 1)^3 (Zipf): most records are short. With
    one bin every record has length 1. Shape: (n, d)."""
    rows = generator.standard_normal((n, d)) @ generator.uniform(size=(d, d))
    rows -= rows.mean(axis=0)
    shares = np.arange(1, bins + 1, dtype=np.float64) ** -STEEP
    cuts = (n * np.cumsum(shares) / shares.sum()).astype(int)
    cuts[-1] = n
    lengths = np.repeat(2.0 ** (np.arange(bins) + 1 - bins), np.diff(cuts, prepend=0))
    rows *= (lengths / np.linalg.norm(rows, axis=1))[:, None]
    return rows


def epsilon_for(algorithm: Algorithm, rho: float) -> float:
    """The epsilon at which a study of the algorithm with delta = 1e-6 may spend rho."""
    if algorithm.properties.basic:
        return math.sqrt(2 * rho)
    if algorithm.properties.gaussian:
        return gaussian.epsilon_at(round(rho * MICRO), DELTA)
    return zcdp.epsilon_at(rho, DELTA)


@contextlib.contextmanager
def unit_ball(radius: float) -> Iterator[None]:
    """Make `radius`, in analysis units, the public bound of a record's length; a study states a box."""

    def bound(*_: Any) -> int:
        return math.ceil(radius * S)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(preparation, "_reach", return_value=NormGrid(top=radius)))
        for name, module in list(sys.modules.items()):
            if name.startswith("eigenveil.algorithms.") and hasattr(module, "public_radius"):
                stack.enter_context(mock.patch.object(module, "public_radius", bound))
        yield


def estimate(name: str, rows: FloatArray, reach: float, rho: float, seed: int) -> Estimate:
    """A method's estimate for rows in [-1, 1]^d of length up to `reach`."""
    algorithm, _, variant = name.partition(", ")
    d = rows.shape[1]
    pure = algorithm == "em-cov"
    wide = variant == "clipped" or algorithm == "adaptive-cov"
    with unit_ball(reach):
        return run(
            algorithm,
            rows,
            box(d, 1.0),
            seed,
            epsilon=epsilon_for(Algorithm(algorithm), rho),
            delta=DELTA,
            components=d if pure else 1,
            neighbours=Neighbours.REPLACE_ONE,
            centring=False,
            scaling=Scaling.NONE,
            radius=None if wide else 1.0,
        )


def matrix(name: str, found: Estimate, reach: float) -> FloatArray:
    """The estimate's matrix, eigenvalues cut to what records of that length can have. Shape: (d, d)."""
    assert found.covariance is not None
    values, vectors = eigenpairs(found.covariance)
    if name.endswith("shrunk"):
        values = debiased_eigenvalues(values, found.noise_scale)
    return np.asarray((vectors * np.clip(values, 0.0, reach**2)) @ vectors.T)


def errors(
    series: tuple[str, ...], rows: FloatArray, reach: float, rho: float, seed: int
) -> dict[str, float]:
    """Frobenius error of each method, for records divided by `reach` (so that they fill the unit ball)."""
    exact = rows.T @ rows / len(rows)
    done: dict[str, Estimate] = {}
    out = {}
    for name in series:
        same = name.removesuffix(", shrunk")
        if same not in done:
            # `zero` never looks at a record.
            done[same] = estimate(same, rows[:1] if same == "zero" else rows, reach, rho, seed)
        out[name] = float(np.linalg.norm(matrix(name, done[same], reach) - exact)) / reach**2
    return out


def synthetic(setting: Setting, seed: int, series: tuple[str, ...]) -> dict[str, float]:
    """Errors on the generator's records."""
    rows = zipf_rows(setting["n"], setting["d"], setting["bins"], np.random.default_rng(seed))
    return errors(series, rows, 1.0, setting["rho"], seed)


def point(panel: str, x: float, repeats: int, **setting: Any) -> Point:
    """One place of a synthetic panel."""
    filled = {"n": N, "d": D, "bins": BINS, "rho": RHO} | setting
    names = tuple(name for name in landed(*SERIES) if name != "em-cov" or filled["d"] <= EM_WIDEST)
    return Point(
        panel=panel, x=x, series=names, setting=filled, measure=synthetic, repeats=repeats, slow=SLOW
    )


UNIT_SIZES = (1000, 4000, 16_000)


def unit_points(quick: bool) -> tuple[Point, ...]:
    """Figure 1 of the authors' list: every record of length 1, d varied, three n."""
    ds = (10, 50, 200) if quick else (10, 20, 50, 100, 200, 400)
    sizes = UNIT_SIZES[:2] if quick else UNIT_SIZES
    repeats = 5 if quick else 50
    return tuple(point(f"n={n}", d, repeats, n=n, d=d, bins=1) for n in sizes for d in ds)


def zipf_points(quick: bool) -> tuple[Point, ...]:
    """Figure 2 of the authors' list: number of length bins (hence the trace), d, n and rho varied."""
    repeats = 5 if quick else 50
    n = 5000 if quick else N
    bins = (1, 4, 16) if quick else (1, 2, 4, 8)
    ds = (10, 50, 200) if quick else (10, 20, 50, 100, 200, 400)
    ns = (1000, 10_000) if quick else (1000, 4000, 16_000, 50_000)
    rhos = (0.01, 1) if quick else (0.01, 0.1, 1, 10)
    return (
        *(point("bins", b, repeats, bins=b, n=n) for b in bins),
        *(point("d", d, repeats, d=d, n=n) for d in ds),
        *(point("n", size, repeats, n=size) for size in ns),
        *(point("rho", rho, repeats, rho=rho, n=n) for rho in rhos),
    )


def draw_unit(table: Table, path: Path) -> None:
    """Error against d."""
    panels = [
        Panel(
            key=f"n={n}",
            title=f"n = {n:,}, all of length 1",
            x="columns d",
            y="Frobenius error" if n == UNIT_SIZES[0] else "",
            series=SERIES,
        )
        for n in UNIT_SIZES
    ]
    draw(table, panels, path, columns=3, legend_columns=5, share_y=True)


def draw_zipf(table: Table, path: Path) -> None:
    """Error against bins, d, n and rho."""
    labels = (
        ("bins", "bins of lengths"),
        ("d", "columns d"),
        ("n", "records n"),
        ("rho", "budget rho (zCDP)"),
    )
    panels = [
        Panel(
            key=key,
            title=f"({letter})",
            x=x,
            y="Frobenius error" if key in ("bins", "n") else "",
            series=SERIES,
        )
        for letter, (key, x) in zip("abcd", labels, strict=True)
    ]
    draw(table, panels, path, columns=2, width=4.2, legend_columns=5)


@lru_cache(maxsize=1)
def real_families() -> tuple[Family, ...]:
    """scikit-learn's tables and, where they are, the larger ones; each with public bounds."""
    ball = box(64, 16.0)  # a pixel of 0 is the origin, as in the paper's MNIST
    return (
        fixed("digits", ball, lambda: np.asarray(load_digits().data)),
        fixed("breast cancer", breast_study().columns, lambda: np.asarray(load_breast_cancer().data)),
        fixed("wine", wine_columns(), lambda: np.asarray(load_wine().data)),
        fixed("diabetes", box(10, 0.2), lambda: np.asarray(load_diabetes().data)),
        *present(),
    )


WINE = (
    (10, 16), (0, 8), (1, 4), (5, 35), (60, 180), (0, 5), (0, 6), (0, 1), (0, 5), (0, 15), (0, 2), (1, 5),
    (200, 2000),
)  # fmt: skip


def wine_columns() -> tuple[Column, ...]:
    """Round ranges of what such analyses report, not read off the table."""
    return tuple(Column(name=f"x{i}", unit="1", lower=lo, upper=hi) for i, (lo, hi) in enumerate(WINE))


@lru_cache(maxsize=8)
def real_rows(name: str) -> FloatArray:
    """A table's records on the scale of their public bounds, [-1, 1]^d."""
    family = next(family for family in real_families() if family.name == name)
    records, _ = family.draw(np.random.default_rng(0))
    study = Study(
        name="scale",
        columns=family.columns,
        epsilon=1.0,
        delta=DELTA,
        components=1,
        federation=Federation(sites=("all",)),
        algorithm=Algorithm.ZERO,
    )
    return to_grid(records, study) / float(S)


def tabular(setting: Setting, seed: int, series: tuple[str, ...]) -> dict[str, float]:
    """Errors on a real table, its records divided by sqrt d."""
    rows = real_rows(setting["table"])
    return errors(series, rows, math.sqrt(rows.shape[1]), setting["rho"], seed)


def real_points(families: tuple[Family, ...], quick: bool) -> tuple[Point, ...]:
    """Figure 3 of the authors' list, with other tables than MNIST: rho varied."""
    rhos = (0.01, 1) if quick else (0.01, 0.1, 1, 10)
    return tuple(
        Point(
            panel=family.name,
            x=rho,
            series=landed(*SERIES),
            setting={"table": family.name, "rho": rho},
            measure=tabular,
            repeats=5 if quick or family.name in ("BRFSS", "Diabetes-130") else 50,
            slow=SLOW,
        )
        for family in families
        for rho in rhos
        if not (quick and family.name in ("BRFSS", "Diabetes-130"))
    )


def figures(quick: bool) -> Iterator[Figure]:
    """The three figures of the paper."""
    families = real_families()
    names = [family.name for family in families]

    def draw_real(table: Table, path: Path) -> None:
        found = [name for name in names if any(cell.panel == name for cell in table.cells.values())]
        panels = [
            Panel(
                key=name,
                title=name,
                x="budget rho (zCDP)",
                y="Frobenius error" if i % 4 == 0 else "",
                series=SERIES,
            )
            for i, name in enumerate(found)
        ]
        draw(table, panels, path, columns=4, width=2.7, height=2.7, legend_columns=5)

    yield Figure(name="covariance-unit", points=unit_points(quick), draw=draw_unit)
    yield Figure(name="covariance-zipf", points=zipf_points(quick), draw=draw_zipf)
    yield Figure(name="covariance-real", points=real_points(families, quick), draw=draw_real)
