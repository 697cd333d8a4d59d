"""The records on which stated errors are judged, in seven groups: generated spectra, flat spectra, t2 tails,
1 % outliers, columns of 1 in 1,000, fewer records than columns, pixels. Nothing was tuned on seeds from 5000
on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from sklearn.datasets import load_digits

from eigenveil.numerics.encoding import FloatArray
from eigenveil.study.study import Column

Draw = Callable[[np.random.Generator, int], FloatArray]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cell:
    """A study of `records` records by `draw(generator, records)`, clipped to the bounds of all columns."""

    group: str
    name: str
    draw: Draw
    records: int
    bounds: tuple[float, float]
    components: int
    epsilon: float

    def rows(self, seed: int) -> FloatArray:
        """Return the records of a seed. Shape: (records, d)."""
        return np.clip(self.draw(np.random.default_rng(seed), self.records), *self.bounds)

    def columns(self, d: int) -> tuple[Column, ...]:
        """Return the study's columns."""
        lower, upper = self.bounds
        return tuple(Column(name=f"x{i}", unit="1", lower=lower, upper=upper) for i in range(d))


def falling(d: int, power: float) -> list[float]:
    """Return variances i^-power."""
    return [i**-power for i in range(1, d + 1)]


def rotated(variances: list[float]) -> Draw:
    """Return normal records of these variances along fixed random axes."""
    d = len(variances)
    axes = np.linalg.qr(np.random.default_rng(d).normal(size=(d, d)))[0]
    return lambda generator, n: (generator.normal(size=(n, d)) * np.sqrt(variances)) @ axes.T


def blocks(d: int, groups: int, shared: float) -> Draw:
    """Return normal records whose columns share a factor with those of their block."""
    sizes = np.sqrt(np.linspace(1.5, 0.5, groups))

    def draw(generator: np.random.Generator, n: int) -> FloatArray:
        factors = np.repeat(generator.normal(size=(n, groups)) * sizes, -(-d // groups), axis=1)[:, :d]
        return np.asarray(np.sqrt(shared) * factors + np.sqrt(1 - shared) * generator.normal(size=(n, d)))

    return draw


def t2(variances: list[float], *, rows: bool) -> Draw:
    """Return records of Student's t with 2 degrees of freedom, column by column or row by row."""

    def draw(generator: np.random.Generator, n: int) -> FloatArray:
        normal = generator.normal(size=(n, len(variances))) * np.sqrt(variances)
        scale = generator.chisquare(2, size=(n, 1 if rows else len(variances))) / 2
        return np.asarray(normal / np.sqrt(scale))

    return draw


def outliers(variances: list[float], factor: float) -> Draw:
    """Return normal records, of which 1 % are `factor` times as far out."""

    def draw(generator: np.random.Generator, n: int) -> FloatArray:
        far = np.where(generator.random((n, 1)) < 0.01, factor, 1.0)
        return np.asarray(far * generator.normal(size=(n, len(variances))) * np.sqrt(variances))

    return draw


def rare(d: int, measured: int) -> Draw:
    """Return some measured columns, and yes/no columns that are 1 in one record of 1,000."""
    sd = 0.3 * np.sqrt(falling(measured, 1)) if measured else np.empty(0)

    def draw(generator: np.random.Generator, n: int) -> FloatArray:
        values = generator.normal(size=(n, measured)) * sd
        return np.hstack([values, (generator.random((n, d - measured)) < 0.001).astype(np.float64)])

    return draw


@cache
def _digits() -> FloatArray:
    return np.asarray(load_digits().data, dtype=np.float64)


def digits(generator: np.random.Generator, n: int) -> FloatArray:
    """Return n of scikit-learn's digits. Shape: (n, 64)."""
    return _digits()[generator.choice(len(_digits()), n, replace=n > len(_digits()))]


def images(side: int) -> Draw:
    """Return images of four spots with noise, of side by side pixels."""
    down, across = (axis.ravel() for axis in np.mgrid[:side, :side] / side)

    def draw(generator: np.random.Generator, n: int) -> FloatArray:
        values = generator.normal(0, 8, (n, side * side))
        for _ in range(4):
            x, y = generator.normal(0.5, 0.15, (2, n, 1))
            width, height = generator.uniform(0.08, 0.25, (n, 1)), generator.uniform(24, 80, (n, 1))
            values += height * np.exp(-((across - x) ** 2 + (down - y) ** 2) / (2 * width**2))
        return values

    return draw


Records = dict[str, tuple[Draw, float]]  # and the upper bound of a column; the lower is minus that
SIZES = ((500, 1, 1.0), (500, 3, 4.0), (2000, 1, 0.5), (2000, 3, 1.0), (5000, 1, 1.0), (5000, 3, 4.0))
SMALL = ((200, 1, 1.0), (200, 3, 4.0), (300, 1, 0.5), (300, 1, 4.0))
PIXELS = ((500, 1, 1.0), (500, 3, 4.0), (1797, 1, 0.5), (1797, 3, 1.0), (1797, 3, 4.0))
GROUPS: dict[str, tuple[Records, tuple[tuple[int, int, float], ...]]] = {
    "generated": (
        {
            "4, 3, 2.2, 1, ..., 1 (20)": (rotated([4.0, 3.0, 2.2] + [1.0] * 17), 10.0),
            "1 / i (30)": (rotated(falling(30, 1)), 5.0),
            "i^-.5 (60)": (rotated(falling(60, 0.5)), 5.0),
            "10, 6, 3, .05, ..., .05 (100)": (rotated([10.0, 6.0, 3.0] + [0.05] * 97), 12.0),
            "four blocks (40)": (blocks(40, 4, 0.6), 6.0),
        },
        SIZES,
    ),
    "flat": (
        {
            "1, ..., 1 (10)": (rotated([1.0] * 10), 5.0),
            "1.2, 1.1, 1.05, 1, ..., 1 (10)": (rotated([1.2, 1.1, 1.05] + [1.0] * 7), 5.0),
            "1, ..., 1 (50)": (rotated([1.0] * 50), 5.0),
            "3, 2, 1, 1, .2, ..., .2 (30)": (rotated([3.0, 2.0, 1.0, 1.0] + [0.2] * 26), 8.0),
        },
        (*SIZES, (5000, 3, 30.0)),
    ),
    "t2": (
        {
            "columns, 1 / i (20)": (t2(falling(20, 1), rows=False), 20.0),
            "columns, 2, 1, ..., 1 (20)": (t2([2.0] + [1.0] * 19, rows=False), 20.0),
            "rows, 1 / i (30)": (t2(falling(30, 1), rows=True), 20.0),
        },
        SIZES,
    ),
    "outliers": (
        {
            "3 times, 1 / i (20)": (outliers(falling(20, 1), 3.0), 10.0),
            "10 times, 1 / i (20)": (outliers(falling(20, 1), 10.0), 30.0),
            "10 times, 3, 2, 1.5, 1, ..., 1 (50)": (outliers([3.0, 2.0, 1.5] + [1.0] * 47, 10.0), 30.0),
        },
        SIZES,
    ),
    "rare": (
        {
            "20 rare": (rare(20, 0), 1.0),
            "26 rare, 4 measured": (rare(30, 4), 2.0),
            "20 rare, 20 measured": (rare(40, 20), 2.0),
        },
        SIZES,
    ),
    "n << d": (
        {
            "1 / i (400)": (rotated(falling(400, 1)), 5.0),
            "40, 20, 10, 1, ..., 1 (300)": (rotated([40.0, 20.0, 10.0] + [1.0] * 297), 20.0),
            "1, ..., 1 (300)": (rotated([1.0] * 300), 5.0),
        },
        SMALL,
    ),
    "pixels": ({"digits (64)": (digits, 16.0), "images (100)": (images(10), 255.0)}, PIXELS),
}


def cells() -> Iterator[Cell]:
    """Yield the cells, group by group."""
    for group, (records, sizes) in GROUPS.items():
        for name, (draw, upper) in records.items():
            lower = 0.0 if group == "pixels" else -upper
            for n, k, epsilon in sizes:
                yield Cell(
                    group=group, name=f"{name}, n = {n:,}, k = {k}, epsilon {epsilon:g}",
                    draw=draw, records=n, bounds=(lower, upper), components=k, epsilon=epsilon,
                )  # fmt: skip
