"""Stated error of an algorithm: rotation by noise, the centre's error and clipping.

To first order direction i tilts towards each j outside at random. The sine of the largest principal angle
is then the norm of the k-by-(d - k) matrix of tilt angles. All of it follows from releases [P7].
"""

from __future__ import annotations

import math

import numpy as np

from eigenveil.algorithms.shared.clip_radius import NormHistogram
from eigenveil.algorithms.shared.preparation import LocationEstimate
from eigenveil.numerics.encoding import FloatArray

# Share of a gap above which the centre's error, up to 3 times its stated norm, may be the found component.
NEAR = 1 / 3
# Factor for thin tails that histograms miss; skewness of skewed records (measured).
TAILS, SKEWNESS = 3.0, 0.2


def gaps_of(values: FloatArray, k: int) -> FloatArray:
    """Return gaps between the first k and all others. Shape: values (d,), falling -> (k, d - k)."""
    return np.asarray(np.maximum(values[:k, None] - values[None, k:], 1e-12))


def even_gaps(variances: FloatArray, total: float, d: int) -> FloatArray:
    """Return gaps if only k variances and the total are known: the rest is assumed to be even.

    Shape: variances (k,) -> (k, d - k).
    """
    k = len(variances)
    level = max(total - float(variances.sum()), 0.0) / max(d - k, 1)
    return np.repeat(variances[:, None] - level, d - k, axis=1)


def typical_sine(variances: FloatArray) -> float:
    """Return about the median norm of a matrix of independent normal tilts of these variances.

    By the largest row and column, sqrt(m) + sqrt(k) for equal entries, at most the norm of all entries; times
    the median of chi^2 with the effective number of entries as degrees of freedom (Wilson & Hilferty).
    Shape: (k, d - k).
    """
    most = float(variances.max(initial=0.0))
    if most == 0:
        return 0.0
    shares = variances / most
    row, column = float(shares.sum(axis=1).max()), float(shares.sum(axis=0).max())
    square = 1 + (math.sqrt(max(row - 1, 0.0)) + math.sqrt(max(column - 1, 0.0))) ** 2
    every = float(shares.sum())
    freedom = every**2 / float((shares**2).sum())
    return math.sqrt(most * min(square, every) * (1 - 2 / (9 * freedom)) ** 3)


def centre_sine(start: LocationEstimate, gaps: FloatArray) -> float:
    """Return the sine by which the centre's error rotates k directions; infinite if it may be one of them.

    About a centre with error e, records of covariance C have second moments C + e e^T. With e_i and e_j of
    variance v = squared_centre_error / d, direction i tilts towards all j by v sqrt(sum_j 1 / g_ij^2) /
    (1 - v sum_j 1 / g_ij): first order in the tilt, all orders in e by Sherman & Morrison. If e e^T exceeds
    the wanted variances, it is found instead.

    Shape: gaps (k, d - k), of variances along the found directions and all others, minus their noise.
    """
    if start.squared_centre_error == 0 or not gaps.size:
        return 0.0
    inverse = start.squared_centre_error / sum(gaps.shape) / np.maximum(gaps, 1e-12)
    pulled = inverse.sum(axis=1)
    if pulled.max() > NEAR:
        return math.inf
    return math.sqrt(float(((inverse**2).sum(axis=1) / (1 - pulled) ** 2).sum()))


def clipping_bias_factor(norms: NormHistogram, radius: float, records: float, power: int = 2) -> float:
    """Return the variance of mean(x_i x_j) by clipping, as a share of the product of both variances.

    Records of large norm count less than in the records' own components: by chance, of order 1 / n, and for
    skewed records also on average. The norms give only an upper limit of the latter.
    """
    lost = 1 - norms.retained(radius, power)
    return TAILS * norms.unevenness(radius, power) / records + (SKEWNESS * lost) ** 2


def clipping_bias(share: float, values: FloatArray, gaps: FloatArray) -> FloatArray:
    """Return variances of the tilts from clipping, for a `clipping_bias_factor` of that share.

    Shape: values (d,), falling, gaps (k, d - k) -> (k, d - k).
    """
    k, positive = len(gaps), np.maximum(values, 0.0)
    positive = positive * (max(float(values.sum()), 0.0) / max(float(positive.sum()), 1e-300))
    return np.asarray(share * positive[:k, None] * positive[None, k:] / gaps**2)


def centre_warning(sine: float) -> tuple[str, ...]:
    """Return a warning if the centre's error may be the found component."""
    if sine <= 1:
        return ()
    sentence = (
        "the noise of the private mean may dominate the components; use more records, a larger epsilon, or "
        "`centring = false` with bounds whose middle is about the mean"
    )
    return (sentence,)


def scale_sine(values: FloatArray, mixed: FloatArray) -> float:
    """Return the sine by which errors of the column scales rotate k directions.

    With independent relative errors e_m of the squared scales, direction i tilts towards j by
    (l_i + l_j) / (l_i - l_j) sum_m v_im v_jm e_m / 2.

    Shape: values (d,), falling; mixed (k, d - k), the means of (sum_m v_im v_jm e_m)^2.
    """
    k = len(mixed)
    sums = np.maximum(values[:k, None] + values[None, k:], 0.0)
    return typical_sine((sums / gaps_of(values, k)) ** 2 * mixed / 4)
