"""Tables on which no rule of an algorithm was tuned, in groups: each is a corner where accuracy was bad.

All but the real ones are generated, with the seed of the run; what is fixed about a table has a seed of its
own, or is in its name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from scipy.fft import dct

from benchmarks.families import Family, box
from benchmarks.generated import RandomRecords
from eigenveil.numerics.encoding import FloatArray
from eigenveil.study.study import Column

Sample = Callable[[np.random.Generator], FloatArray]


def generated(name: str, columns: tuple[Column, ...], sample: Sample) -> Family:
    """Return a family of such records, whose own exact components are the truth."""
    return Family(name=name, columns=columns, draw=lambda generator: (sample(generator), None))


def within(limits: Iterable[tuple[float, float]]) -> tuple[Column, ...]:
    """Return a column for each pair of bounds."""
    return tuple(
        Column(name=f"x{i}", unit="1", lower=low, upper=high) for i, (low, high) in enumerate(limits)
    )


def turned(rows: FloatArray, generator: np.random.Generator) -> FloatArray:
    """Return rows along other axes: signs and an orthonormal cosine transform, as fast as it is wide."""
    signs = generator.choice([-1.0, 1.0], rows.shape[1])
    return np.asarray(dct(rows * signs, norm="ortho", axis=1, overwrite_x=True))


def normal(n: int, variances: FloatArray, generator: np.random.Generator) -> FloatArray:
    """Return normal records of these variances along other axes. Shape: (d,) -> (n, d)."""
    rows = generator.standard_normal((n, variances.size))
    rows *= np.sqrt(variances)
    return turned(rows, generator)


def spectra(name: str, n: int, variances: FloatArray) -> Family:
    """Return a family of `normal` records. Bounds: 6 standard deviations of a column."""
    columns = box(variances.size, 6 * math.sqrt(variances.mean()))
    return generated(f"{name}, {n} x {variances.size}", columns, partial(normal, n, variances))


def powers(n: int, d: int, exponent: float) -> Family:
    """Return normal records with variances i^-exponent."""
    return spectra(f"i^-{exponent:g}", n, np.arange(1.0, d + 1) ** -exponent)


def spikes(n: int, d: int, heights: tuple[float, ...]) -> Family:
    """Return normal records with variances 1 + heights, then 1."""
    variances = np.ones(d)
    variances[: len(heights)] += heights
    return spectra("spikes " + " ".join(f"{height:g}" for height in heights), n, variances)


def blocks(n: int, d: int, width: int) -> Family:
    """Return groups of `width` columns with a factor each, the first strongest; noise of variance 1."""
    strengths = 1.5 / np.sqrt(np.arange(1.0, d // width + 1))

    def sample(generator: np.random.Generator) -> FloatArray:
        factors = generator.standard_normal((n, strengths.size)) * strengths
        return np.repeat(factors, width, axis=1) + generator.standard_normal((n, d))

    return generated(f"blocks of {width}, {n} x {d}", box(d, 9.0), sample)


def pixels(n: int, height: int, width: int) -> Family:
    """Return images of 0 to 255: a few strokes of one of ten classes, blurred shades and noise."""
    fixed, d = np.random.default_rng(32), height * width
    y, x = np.mgrid[0:height, 0:width] / max(height, width)

    def spot(radius: float) -> FloatArray:
        across, down = fixed.uniform(0.15, 0.85) * x.max(), fixed.uniform(0.15, 0.85) * y.max()
        return np.asarray(np.exp(-((x - across) ** 2 + (y - down) ** 2) / (2 * radius**2)).ravel())

    strokes = np.array([[spot(0.07) for _ in range(6)] for _ in range(10)])  # (10, 6, d)
    shades = np.array([spot(0.2) for _ in range(20)]) / np.sqrt(np.arange(1.0, 21))[:, None]

    def sample(generator: np.random.Generator) -> FloatArray:
        weights = generator.gamma(2.0, 0.5, (n, 6)) * 0.6
        classes = generator.integers(10, size=n)
        rows = generator.standard_normal((n, 20)) @ (0.15 * shades) - 0.1
        for which in range(10):
            rows[classes == which] += weights[classes == which] @ strokes[which]
        rows += 0.05 * generator.standard_normal((n, d))
        return np.asarray(np.rint(255 * np.clip(rows, 0, 1)))

    return generated(f"pixels, {n} x {d}", within([(0, 255)] * d), sample)


def student(n: int, d: int) -> Family:
    """Return records of t with 2 degrees of freedom, variances falling: most are clipped. Bounds +-10."""

    def sample(generator: np.random.Generator) -> FloatArray:
        rows = normal(n, 8 / np.arange(1.0, d + 1), generator)
        return rows / np.sqrt(generator.chisquare(2, (n, 1)) / 2)

    return generated(f"t2, {n} x {d}", box(d, 10.0), sample)


def outliers(n: int, d: int, times: float) -> Family:
    """Return normal records, 1 in 100 of them `times` as far, along axes of their own. Bounds +-10."""

    def sample(generator: np.random.Generator) -> FloatArray:
        rows = normal(n, 8 / np.arange(1.0, d + 1), generator)
        far = generator.random(n) < 0.01
        rows[far] = times * normal(int(far.sum()), 8 / np.arange(1.0, d + 1), generator)
        return rows

    return generated(f"outliers x {times:g}, {n} x {d}", box(d, 10.0), sample)


def rare(n: int, d: int) -> Family:
    """Return yes/no columns of 1 in 1,000; half of them come together in 1 record of 200."""

    def sample(generator: np.random.Generator) -> FloatArray:
        chance = np.full((n, d), 0.001)
        together = generator.random(n) < 0.005
        chance[np.ix_(together, np.arange(d) < d // 2)] = 0.2
        return np.asarray((generator.random((n, d)) < chance).astype(np.float64))

    return generated(f"1 in 1000, {n} x {d}", within([(0, 1)] * d), sample)


def patients(n: int) -> Family:
    """Return patients like those of a breast cancer trial: an age, a size, skewed counts of nodes, receptors
    over three decades, a grade, two common yes/no columns and three rare ones. Bounds as of the assays."""
    limits = [(20, 90), (0, 150), (0, 60), (0, 3000), (0, 1500), (1, 3), *[(0, 1)] * 5]

    def sample(generator: np.random.Generator) -> FloatArray:
        normals = generator.standard_normal((n, 7))
        age, shared = 53 + 10 * normals[:, 0], normals[:, 1]
        nodes = np.ceil(np.exp(1.0 + 0.95 * normals[:, 2]))
        size = np.exp(3.3 + 0.15 * np.log(nodes) + 0.45 * normals[:, 3])
        receptors = [np.floor(np.exp(3.3 + 1.3 * shared + 1.2 * normals[:, i])) for i in (4, 5)]
        grade = 1 + (generator.random(n) < 0.88) + (generator.random(n) < 0.24)
        answers = [age + 4 * normals[:, 6] > 51]
        answers += [generator.random(n) < share for share in (0.36, 0.02, 0.05, 0.1)]
        return np.column_stack([age, size, nodes, *receptors, grade, *answers]).astype(np.float64)

    return generated(f"trial patients, {n} x {len(limits)}", within(limits), sample)


def cells_of_images(n: int, d: int, size: float) -> Family:
    """Return measurements of cells in images: areas and intensities, lognormal with three factors; `size` is
    the standard deviation of a logarithm, and bounds leave 1 in 10,000 beyond."""
    loadings = np.random.default_rng(33).standard_normal((3, d))
    loadings /= np.linalg.norm(loadings, axis=0)

    def sample(generator: np.random.Generator) -> FloatArray:
        latent = 0.8 * generator.standard_normal((n, 3)) @ loadings + 0.6 * generator.standard_normal((n, d))
        return np.asarray(np.exp(size * latent))

    limits = [(0, math.ceil(math.exp(3.7 * size)))] * d
    return generated(f"image cells of {size:g}, {n} x {d}", within(limits), sample)


def lognormal(n: int, d: int) -> Family:
    """Return lognormal columns of three common factors, bounded at 50 times their median."""
    loadings = np.random.default_rng(34).standard_normal((3, d)) * np.array([[0.7], [0.5], [0.3]])

    def sample(generator: np.random.Generator) -> FloatArray:
        latent = generator.standard_normal((n, 3)) @ loadings
        return np.asarray(np.exp(latent + 0.5 * generator.standard_normal((n, d))))

    return generated(f"lognormal, {n} x {d}", within([(0, 50)] * d), sample)


def sampled(family: Family, n: int) -> Family:
    """Return n records of a table, chosen by the seed of the run."""

    def draw(generator: np.random.Generator) -> tuple[FloatArray, None]:
        records, _ = family.draw(generator)
        return records[generator.choice(len(records), n, replace=False)], None

    return Family(name=f"{n} of {family.name}", columns=family.columns, draw=draw)


def loosened(family: Family, times: float) -> Family:
    """Return the same records with bounds that many times as wide, about the same middle."""
    columns = tuple(
        Column(
            name=one.name, unit=one.unit,
            lower=(one.lower + one.upper) / 2 - times * one.half_range,
            upper=(one.lower + one.upper) / 2 + times * one.half_range,
        )
        for one in family.columns
    )  # fmt: skip
    return Family(name=f"{family.name}, bounds x {times:g}", columns=columns, draw=family.draw)


def random_table(one: RandomRecords, number: int) -> Family:
    """Return the records of a random study."""
    name = " ".join(f"random {number}: n={one.n} d={one.d} {one.shape} {one.kind}".split())
    return generated(name, box(one.d, one.half), lambda generator: one.draw(generator, one.n))
