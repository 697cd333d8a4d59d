"""Two-sided statistical checks with a stated false-alarm rate, and the laws they check against.

Each check answers True for a sample that is plausible. Its false-alarm rate is `ALARM` by
construction; the tests beside it show that it answers False for a scale 2 % too low and 2 % too
high, so that it cannot pass by being blind."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from eigenveil.numerics.encoding import FloatArray, IntArray

ALARM = 1e-6


def rounded_normal(sigma: float, reach: int) -> FloatArray:
    """The probabilities of -reach..reach under a normal law of scale `sigma`, rounded."""
    x = np.abs(np.arange(-reach, reach + 1))
    return np.asarray(stats.norm.sf((x - 0.5) / sigma) - stats.norm.sf((x + 0.5) / sigma))


def discrete_normal(sigma: float, reach: int) -> FloatArray:
    """Another law, which nothing here draws: proportional to exp(-x^2 / (2 sigma^2))."""
    weight = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    return np.asarray(weight / weight.sum())


def discrete_laplace(scale: float, reach: int) -> FloatArray:
    """The probabilities of -reach..reach, in proportion to exp(-|x| / scale) on all integers."""
    return np.asarray(math.tanh(1 / (2 * scale)) * np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale))


def distribution_variance(sigma: float) -> float:
    """Of the rounded normal law: sigma^2 + 1 / 12 up to 1e-12 from sigma = 1.5 on."""
    if sigma >= 1.5:
        return sigma**2 + 1 / 12
    return float((np.arange(-40, 41) ** 2) @ rounded_normal(sigma, 40))


def variance_fits(sample: IntArray, sigma: float) -> bool:
    """True if the mean square is that of scale `sigma` (chi-square; sigma from 1 on)."""
    n = len(sample)
    ratio = float((sample.astype(np.float64) ** 2).sum() / distribution_variance(sigma))
    return bool(stats.chi2.ppf(ALARM / 2, n) <= ratio <= stats.chi2.isf(ALARM / 2, n))


def mean_fits(sample: IntArray, sigma: float) -> bool:
    z = float(sample.mean()) / math.sqrt(distribution_variance(sigma) / len(sample))
    return abs(z) <= float(stats.norm.isf(ALARM / 2))


def shape_fits(sample: IntArray, distribution: FloatArray) -> bool:
    """Pearson's goodness of fit to the probabilities of -reach..reach, tails joined so that each cell
    expects 10."""
    reach = len(distribution) // 2
    expected = distribution * len(sample)
    found = np.bincount(np.clip(sample, -reach, reach) + reach, minlength=2 * reach + 1)
    cells = np.flatnonzero(expected >= 10)
    first, last = int(cells[0]), int(cells[-1])
    expected = _join(expected, first, last)
    statistic = float(((_join(found.astype(np.float64), first, last) - expected) ** 2 / expected).sum())
    return bool(stats.chi2.sf(statistic, len(expected) - 1) >= ALARM)


def _join(cells: FloatArray, first: int, last: int) -> FloatArray:
    out = cells[first : last + 1].copy()
    out[0] += cells[:first].sum()
    out[-1] += cells[last + 1 :].sum()
    return out


def uniform(levels: FloatArray) -> bool:
    """True if levels in (0, 1) are spread evenly (Kolmogorov and Smirnov)."""
    n, ordered = len(levels), np.sort(levels)
    steps = np.arange(n + 1) / n
    furthest = max(float((steps[1:] - ordered).max()), float((ordered - steps[:-1]).max()))
    return furthest <= float(stats.kstwo.isf(ALARM, n))


def alike(left: IntArray, right: IntArray) -> bool:
    """True if two samples are of one law: by ranks, and by how often values occur that both have often."""
    by_rank = stats.ks_2samp(left, right).pvalue
    table = np.array([[(side == x).sum() for x in range(-5, 6)] for side in (left, right)])
    rest = np.array([[len(left)], [len(right)]]) - table.sum(axis=1, keepdims=True)
    table = np.hstack([table, rest])
    by_count = stats.chi2_contingency(table[:, table.sum(axis=0) >= 20]).pvalue
    return bool(min(by_rank, by_count) >= ALARM / 2)


def balanced(sample: IntArray) -> bool:
    """True if both signs are equally likely."""
    negative, signed = int((sample < 0).sum()), int((sample != 0).sum())
    return bool(stats.binomtest(negative, signed).pvalue >= ALARM)


def independent(left: IntArray, right: IntArray) -> bool:
    """True if two samples are uncorrelated, and their squares as well."""
    limit = float(stats.norm.isf(ALARM / 4)) / math.sqrt(len(left))
    x, y = left.astype(np.float64), right.astype(np.float64)
    return all(abs(float(np.corrcoef(a, b)[0, 1])) <= limit for a, b in ((x, y), (x**2, y**2)))
