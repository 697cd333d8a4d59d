"""The error that an algorithm states: how far noise, the centre's error and clipping turn what it found.

To first order direction i leans towards each j outside at random, and the sine of the largest principal angle
is the norm of the k-by-(d - k) matrix of leanings. All of it follows from releases [P7].
"""

from __future__ import annotations

import math

import numpy as np

from eigenveil.algorithms.shared.clip_radius import Histogram
from eigenveil.algorithms.shared.preparation import Centred
from eigenveil.numerics.encoding import FloatArray

# The share of a gap from which on the error, at times 3 times as long as said, may be what is seen.
NEAR = 1 / 3
# Histograms leave out thin tails; and records are as lopsided as that where they are (measured).
TAILS, LOPSIDED = 3.0, 0.2


def gaps_of(values: FloatArray, k: int) -> FloatArray:
    """Between the first k and all others. Shape: values (d,), falling -> (k, d - k)."""
    return np.asarray(np.maximum(values[:k, None] - values[None, k:], 1e-12))


def even_gaps(variances: FloatArray, total: float, d: int) -> FloatArray:
    """Gaps where only k variances and the total are known: the rest is taken to be spread evenly.

    Shape: variances (k,) -> (k, d - k).
    """
    k = len(variances)
    level = max(total - float(variances.sum()), 0.0) / max(d - k, 1)
    return np.repeat(variances[:, None] - level, d - k, axis=1)


def typical_sine(variances: FloatArray) -> float:
    """About the median norm of a matrix of independent normal leanings of these variances.

    What the largest row and column make of it, sqrt(m) + sqrt(k) for equal entries, but no more than all
    entries; and the median of chi^2 with as many degrees of freedom as entries count (Wilson & Hilferty).
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


def centre_sine(start: Centred, gaps: FloatArray) -> float:
    """How far the centre's error turns k directions: infinite where it may be one of them.

    About a centre e off the mean, records of covariance C show C + e e^T. With e_i and e_j of variance
    v = off / d, direction i leans towards all j by v sqrt(sum_j 1 / g_ij^2) / (1 - v sum_j 1 / g_ij): to
    first order in the lean, and to all in e by Sherman & Morrison. Where e e^T is longer than what is looked
    for, it is what is found.

    Shape: gaps (k, d - k), of variances along the directions found and along all others; where these carry
    noise of their own, less that.
    """
    if start.off == 0 or not gaps.size:
        return 0.0
    inverse = start.off / sum(gaps.shape) / np.maximum(gaps, 1e-12)
    pulled = inverse.sum(axis=1)
    if pulled.max() > NEAR:
        return math.inf
    return math.sqrt(float(((inverse**2).sum(axis=1) / (1 - pulled) ** 2).sum()))


def bending(norms: Histogram, radius: float, records: float, power: int = 2) -> float:
    """What clipping does to mean(x_i x_j), as a variance: a share of the product of the variances along both.

    Long records count less than in the records' own components: by chance, as 1 / n, and where records are
    lopsided also on average, of which the norms tell only how much it could be.
    """
    lost = 1 - norms.kept(radius, power)
    return TAILS * norms.unevenness(radius, power) / records + (LOPSIDED * lost) ** 2


def bent(share: float, values: FloatArray, gaps: FloatArray) -> FloatArray:
    """Variances of the leanings that clipping causes, at a `bending` of that share.

    Shape: values (d,), falling, gaps (k, d - k) -> (k, d - k).
    """
    k, positive = len(gaps), np.maximum(values, 0.0)
    positive = positive * (max(float(values.sum()), 0.0) / max(float(positive.sum()), 1e-300))
    return np.asarray(share * positive[:k, None] * positive[None, k:] / gaps**2)


def centre_warning(sine: float) -> tuple[str, ...]:
    """A sentence where the centre's error may be what was found."""
    if sine <= 1:
        return ()
    sentence = (
        "the noise of the private mean may be what the components show: more records or a larger epsilon "
        "would help, or `centring = false` with bounds whose middle is about the mean"
    )
    return (sentence,)


def scale_sine(values: FloatArray, mixed: FloatArray) -> float:
    """The sine that k directions are turned by where the squares of columns' scales are off, in parts, by
    independent e_m: direction i leans towards j by (l_i + l_j) / (l_i - l_j) sum_m v_im v_jm e_m / 2.

    Shape: values (d,), falling; mixed (k, d - k), the means of (sum_m v_im v_jm e_m)^2.
    """
    k = len(mixed)
    sums = np.maximum(values[:k, None] + values[None, k:], 0.0)
    return typical_sine((sums / gaps_of(values, k)) ** 2 * mixed / 4)
