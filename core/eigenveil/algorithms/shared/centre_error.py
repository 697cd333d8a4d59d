"""How far the error of a released centre turns what is found about it.

About a centre c the records' covariance C is seen as C + e e^T, e = c - mean: their mean's own error, which is
random of about known length (`Centred.off`) where it is noise. Where e e^T is longer than what is looked for, it
is what is found.
"""

from __future__ import annotations

import math

import numpy as np

from eigenveil.algorithms.shared.preparation import Centred
from eigenveil.numerics.encoding import FloatArray

NEAR = 0.5  # share of a gap from which on the centre's error may be what is seen


def lean(start: Centred, gaps: FloatArray) -> float:
    """The squared sine that the centre's error turns k directions by: infinite where it may be one of them.

    With e_i and e_j of variance v = off / d, direction i leans towards all j by v sqrt(sum_j 1 / g_ij^2) /
    (1 - v sum_j 1 / g_ij): to first order in the lean, and to all orders in e, by Sherman & Morrison.
    Shape: gaps (k, d - k), of variances along the directions found and along all others.
    """
    if start.off == 0 or not gaps.size:
        return 0.0
    inverse = start.off / sum(gaps.shape) / np.maximum(gaps, 1e-12)
    pulled = inverse.sum(axis=1)
    if pulled.max() > NEAR:
        return math.inf
    return float(((inverse**2).sum(axis=1) / (1 - pulled) ** 2).sum())


def even_gaps(variances: FloatArray, total: float, d: int) -> FloatArray:
    """Gaps where only k variances and the total are known: the rest is taken to be spread evenly.

    Shape: variances (k,) -> (k, d - k).
    """
    k = len(variances)
    level = max(total - float(variances.sum()), 0.0) / max(d - k, 1)
    return np.repeat(variances[:, None] - level, d - k, axis=1)


def centre_warning(turned: float) -> tuple[str, ...]:
    """A sentence where the centre's error may be what was found."""
    if turned <= 1:
        return ()
    sentence = (
        "the records are so few that the noise of their private mean may be what the components show: more "
        "records or a larger epsilon would help, or `centring = false` with bounds whose middle is the mean"
    )
    return (sentence,)
