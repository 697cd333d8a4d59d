"""Records of random studies, drawn by a fixed seed: n, d, k, epsilon, a kind of spectrum and of records.

Of numpy alone, so that every version of the product can be given the same records."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from eigenveil.numerics.encoding import FloatArray

SIZES = 6.0  # bounds, in standard deviations of a wide column

Draw = Callable[[np.random.Generator, int], FloatArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomRecords:
    """Settings of a random study; `draw` gives that many of its records, within +-`half` but for a few.

    Shape: values (d,), the variances."""

    n: int
    d: int
    k: int
    epsilon: float
    shape: str
    kind: str
    values: FloatArray
    half: float
    draw: Draw

    @property
    def name(self) -> str:
        return f"n={self.n:<6}d={self.d:<4}k={self.k} eps={self.epsilon:<4}{self.shape:6}{self.kind:6}"


def spectrum(generator: np.random.Generator, d: int, k: int) -> tuple[str, FloatArray]:
    """A falling spectrum of one of four kinds. Shape: (d,)."""
    kind = str(generator.choice(["power", "spike", "decay", "steps"]))
    i = np.arange(d)
    match kind:
        case "power":
            values = (1.0 + i) ** -generator.uniform(0.4, 2.0)
        case "spike":
            values = 1.0 + (i < k) * generator.uniform(0.6, 8.0) * (1 + (k - i) / k)
        case "decay":
            values = np.exp(-i * generator.uniform(0.1, 0.8)) + 0.02
        case _:
            values = 0.1 ** np.floor(i / (k + generator.integers(0, 4))) + 0.01 + 0.05 / (1 + i)
    return kind, np.sort(values)[::-1]


def records(axes: np.random.Generator, kind: str, values: FloatArray) -> Draw:
    """Records of that spectrum along random axes; signs of such records where they are binary, whose spectrum
    depends on the axes: these stay.

    Shape: values (d,) -> draws of (n, d)."""
    fixed = np.linalg.qr(axes.standard_normal((len(values), len(values))))[0]

    def draw(generator: np.random.Generator, n: int) -> FloatArray:
        shape, basis = (n, len(values)), fixed
        if kind != "binary":
            basis = np.linalg.qr(generator.standard_normal((len(values), len(values))))[0]
        match kind:
            case "normal":
                scores = generator.standard_normal(shape)
            case "heavy":
                scores = generator.standard_t(5, shape) * math.sqrt(3 / 5)
            case "even":
                scores = generator.uniform(-math.sqrt(3), math.sqrt(3), shape)
            case "groups":  # two of them along the first component
                scores = generator.standard_normal(shape)
                scores[:, 0] = generator.choice([-1.0, 1.0], n)
            case _:  # yes or no in every column, the one seldom in some
                scores = generator.standard_normal(shape)
        rows = (scores * np.sqrt(values)) @ basis.T
        if kind == "binary":
            limits = np.linspace(0.0, 2.0, len(values)) * np.sqrt((basis**2) @ values)
            rows = np.where(rows > limits, 1.0, -1.0) * math.sqrt(float(values.mean()))
        return np.asarray(rows)

    return draw


def random_records(generator: np.random.Generator) -> RandomRecords:
    """Return the next random study's settings."""
    d = round(math.exp(generator.uniform(math.log(8), math.log(200))))
    k = min(int(generator.choice([1, 1, 2, 3, 5])), d // 3)
    n = round(math.exp(generator.uniform(math.log(500), math.log(30_000))))
    epsilon = float(generator.choice([0.5, 1.0, 2.0, 4.0]))
    shape, values = spectrum(generator, d, k)
    kind = str(generator.choice(["normal", "heavy", "even", "groups", "binary"]))
    return RandomRecords(
        n=n, d=d, k=k, epsilon=epsilon, shape=shape, kind=kind, values=values,
        draw=records(generator, kind, values),
        half=SIZES * math.sqrt(min(values[0], 9 * values.mean())),
    )  # fmt: skip
