"""Two-sided statistical checks with a stated false-alarm rate, and the law they check against.

Each check answers True for a sample that is plausible. Its false-alarm rate is `ALARM` by
construction; the tests beside it show that it answers False for a sigma 10 % too low and 10 % too
high, so that it cannot pass by being blind.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from eigenveil.numerics.encoding import FloatArray, IntArray

ALARM = 1e-6


def pmf(sigma: float, reach: int) -> FloatArray:
    """The discrete Gaussian on -reach..reach: proportional to exp(-x^2 / (2 sigma^2))."""
    x = np.arange(-reach, reach + 1)
    weight = np.exp(-(x**2) / (2 * sigma**2))
    return weight / weight.sum()


def law_variance(sigma: float) -> float:
    """Its variance: sigma^2 up to 1e-8 from sigma = 1 on, and less below."""
    if sigma >= 1.5:
        return sigma**2
    reach = 40
    return float((np.arange(-reach, reach + 1) ** 2) @ pmf(sigma, reach))


def variance_fits(sample: IntArray, sigma: float) -> bool:
    """Whether the mean square is that of scale `sigma` (chi-square; sigma from 1 on)."""
    n = len(sample)
    ratio = float((sample.astype(np.float64) ** 2).sum() / law_variance(sigma))
    return bool(stats.chi2.ppf(ALARM / 2, n) <= ratio <= stats.chi2.isf(ALARM / 2, n))


def mean_fits(sample: IntArray, sigma: float) -> bool:
    """Whether the mean is 0."""
    z = float(sample.mean()) / math.sqrt(law_variance(sigma) / len(sample))
    return abs(z) <= float(stats.norm.isf(ALARM / 2))


def shape_fits(sample: IntArray, sigma: float) -> bool:
    """Pearson's goodness of fit against the exact law, tails joined so that every cell expects 10."""
    reach = int(12 * sigma) + 3
    expected = pmf(sigma, reach) * len(sample)
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


def independent(left: IntArray, right: IntArray) -> bool:
    """Whether two samples are uncorrelated, and their squares as well."""
    limit = float(stats.norm.isf(ALARM / 4)) / math.sqrt(len(left))
    x, y = left.astype(np.float64), right.astype(np.float64)
    return all(abs(float(np.corrcoef(a, b)[0, 1])) <= limit for a, b in ((x, y), (x**2, y**2)))
