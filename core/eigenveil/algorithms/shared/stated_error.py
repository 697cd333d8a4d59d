"""Stated and predicted errors of a covariance, from releases and public numbers: noise, centre, clipping.

To first order direction i tilts towards each j outside at random. The sine of the largest principal angle is
then the norm of the k-by-(d - k) matrix of tilt angles. All of it follows from releases [P7]. Frobenius
errors are for sums over records of rows clipped to a radius r (analysis units): divide by n for a covariance.

Records are rounded to whole grid steps. In a column with a standard deviation of a step or more their
rounding errors are nearly independent of the records, of variance 1 / 12 square steps. Their covariance with
the records, by chance, turns direction i towards j like noise. Their own variance turns it where columns
differ. Below half a step they are not independent, and the stated error is too small.
"""

from __future__ import annotations

import math

import numpy as np

from eigenveil.algorithms.shared.clip_radius import NormHistogram
from eigenveil.algorithms.shared.preparation import (
    UNCLIPPED,
    LocationEstimate,
    cost_of_share,
    effective_mu,
    keeps_fractions,
    noise_distribution,
)
from eigenveil.numerics.encoding import FloatArray
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseDistribution
from eigenveil.queries import Gram
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.grid import S
from eigenveil.study.radius import quantile

# Share of a gap above which the centre's error, up to 3 times its stated norm, may be the found component.
NEAR = 1 / 3
# Factor for thin tails that histograms miss; skewness of skewed records (measured).
TAILS, SKEWNESS = 3.0, 0.2


def has_known_clipping(plan: Plan) -> bool:
    """Return True unless a stated quantile clips rows: its bias is large and hardly known."""
    return quantile(plan.study.radius) in (None, UNCLIPPED)


def gaps_of(values: FloatArray, k: int) -> FloatArray:
    """Return gaps between the first k and all others. Shape: values (d,), falling -> (k, d - k)."""
    return np.asarray(np.maximum(values[:k, None] - values[None, k:], 1e-12))


def even_gaps(variances: FloatArray, total: float, d: int) -> FloatArray:
    """Return gaps if only k variances and the total are known: the rest is assumed to be even. Shape:
    variances (k,) -> (k, d - k)."""
    k = len(variances)
    level = max(total - float(variances.sum()), 0.0) / max(d - k, 1)
    return np.repeat(variances[:, None] - level, d - k, axis=1)


def typical_sine(variances: FloatArray) -> float:
    """Return about the median norm of a matrix of independent normal tilts of these variances.

    By the largest row and column, sqrt(m) + sqrt(k) for equal entries, at most the norm of all entries; times
    the median of chi^2 with the effective number of entries as degrees of freedom (Wilson & Hilferty).
    Shape: (k, d - k)."""
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

    Shape: gaps (k, d - k), of variances along the found directions and all others, minus their noise."""
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
    skewed records also on average. The norms give only an upper limit of the latter."""
    lost = 1 - norms.retained(radius, power)
    return TAILS * norms.unevenness(radius, power) / records + (SKEWNESS * lost) ** 2


def product_bias_factor(norms: NormHistogram, radius: float, records: float) -> float:
    """Return `clipping_bias_factor` for products clipped to a norm, with what noise may hide beyond it."""
    hidden = (SKEWNESS * norms.hidden_share(radius)) ** 2
    return clipping_bias_factor(norms, radius, records, 1) + hidden


def clipping_bias(share: float, values: FloatArray, gaps: FloatArray) -> FloatArray:
    """Return variances of the tilts from clipping, for a `clipping_bias_factor` of that share. Shape: values
    (d,), falling, gaps (k, d - k) -> (k, d - k)."""
    k, positive = len(gaps), np.maximum(values, 0.0)
    positive = positive * (max(float(values.sum()), 0.0) / max(float(positive.sum()), 1e-300))
    return np.asarray(share * positive[:k, None] * positive[None, k:] / gaps**2)


def rounding_variance(plan: Plan) -> float:
    """Return the variance of a record's rounding in a column, in analysis units."""
    return 1 / (12 * plan.study.grid_steps**2)


def rounding_error(start: LocationEstimate, values: FloatArray, gaps: FloatArray) -> float:
    """Return the sine by which rounding of the records rotates directions; 0 where the plan's revision does
    not state it. Besides chance it is at most half the variance of rounding over the gap, if that is added to
    some columns and not to others, whose values are whole steps.
    Shape: values (d,), falling, gaps (k, d - k)."""
    if not (keeps_fractions(start.plan) and gaps.size):
        return 0.0
    k, positive, variance = len(gaps), np.maximum(values, 0.0), rounding_variance(start.plan)
    gaps = np.maximum(gaps, 1e-12)
    tilts = variance * (positive[:k, None] + positive[None, k:]) / start.records / gaps**2
    return min(1.0, math.hypot(typical_sine(tilts), variance / 2 / float(gaps.min())))


def centre_warning(sine: float) -> tuple[str, ...]:
    """Return a warning if the centre's error may be the found component."""
    sentence = (
        "the noise of the private mean may dominate the components; use more records, a larger epsilon, or "
        "`centring = false` with bounds whose middle is about the mean"
    )
    return (sentence,) if sine > 1 else ()


def separation_warning(variances: FloatArray, following: float, noise: float) -> tuple[str, ...]:
    """Return a warning if the last component's variance is not above the `following` direction's by twice the
    `noise` of a difference, and how many components together are. Shape: variances (k,), falling."""
    k = len(variances)
    apart = np.flatnonzero(variances - np.append(variances[1:], following) > 2 * noise) + 1
    if apart.size and apart[-1] == k:
        return ()
    remedy = (
        f"components = {apart[-1]} would be clearly separated"
        if apart.size
        else "no smaller number of components is clearly separated either"
    )
    sentence = (
        f"component {k} and the next direction have about equal variances, up to the noise: the true error "
        f"can be many times the predicted one; {remedy}"
    )
    return (sentence,)


def scale_sine(values: FloatArray, mixed: FloatArray) -> float:
    """Return the sine by which errors of the column scales rotate k directions.

    With independent relative errors e_m of the squared scales, direction i tilts towards j by
    (l_i + l_j) / (l_i - l_j) sum_m v_im v_jm e_m / 2.

    Shape: values (d,), falling; mixed (k, d - k), the means of (sum_m v_im v_jm e_m)^2."""
    k = len(mixed)
    sums = np.maximum(values[:k, None] + values[None, k:], 0.0)
    return typical_sine((sums / gaps_of(values, k)) ** 2 * mixed / 4)


# Measured at d = 5 to 200: 0.4 and 0.35 where the i-th variance falls as 1 / i, half of that for flat
# spectra; the proven bounds are 2 and sqrt 2.
ROTATED, ZERO_ERROR = 0.35, 0.3
MAIN_SHARE = 0.8  # of the budget, about the share of the matrix


def entry_noise(plan: Plan, micro_rho: int) -> float:
    """Return the noise sd off the diagonal of a Gram matrix of rows clipped to norm 1. From the plan alone,
    so that methods can be compared before any query."""
    query = Gram(centre=np.zeros(plan.study.dimension, dtype=np.int64), radius=S)
    if noise_distribution(plan) is NoiseDistribution.GAUSSIAN:
        moved = math.sqrt(query.l2_squared(plan.study.neighbours) / 2)
    else:
        moved = math.sqrt(2) * query.l1(plan.study.neighbours)
    return moved * plan.study.max_sites_per_person / (S**2 * effective_mu(plan, micro_rho))


def eigenvalue_noise(plan: Plan, micro_rho: int) -> float:
    """Return the noise sd of an eigenvalue of such a matrix [P10]."""
    records = plan.study.neighbours.records
    gaussian = noise_distribution(plan) is NoiseDistribution.GAUSSIAN
    moved = math.sqrt(records) if gaussian else math.sqrt(2) * records
    return moved * plan.study.max_sites_per_person / effective_mu(plan, micro_rho)


def gauss_error(plan: Plan, micro_rho: int, radius: float) -> float:
    """Return the root mean square of ||noise||_F of one Gram matrix. d (d - 1) entries of sd s, d of sd sqrt
    2 s [P3]; with Laplace noise, of sd s."""
    d = plan.study.dimension
    on_diagonal = 2 if noise_distribution(plan) is NoiseDistribution.GAUSSIAN else 1
    return entry_noise(plan, micro_rho) * radius**2 * math.sqrt(d * (d - 1) + on_diagonal * d)


def eigenvector_error(plan: Plan, micro_rho: int, radius: float, trace: float) -> float:
    """Return the rest of ||noise||_F if eigenvalues are known (or shrunk well) and eigenvectors are not.

    Source: Dong, Liang, Yi 2022. With A + N = V M V^T and L the eigenvalues of A,
    ||V L V^T - A||_F^2 = 2 ||L||^2 - 2 <V L V^T, A + N> + 2 <V L V^T, N> <= 4 ||N|| trace, where
    ||N|| = 2 s sqrt d; V L V^T is no further from A than 2 ||N||_F, and than sqrt 2 ||L|| <= sqrt 2 trace."""
    norm = 2 * entry_noise(plan, micro_rho) * radius**2 * math.sqrt(plan.study.dimension)
    even = gauss_error(plan, micro_rho, radius)
    return min(even, ROTATED * math.sqrt(norm * max(trace, 0.0)), ZERO_ERROR * max(trace, 0.0))


def separate_error(plan: Plan, micro_rho: int, radius: float, trace: float) -> float:
    """Return the error of eigenvalues and eigenvectors noised separately at micro_rho each."""
    values = eigenvalue_noise(plan, micro_rho) * radius**2 * math.sqrt(plan.study.dimension)
    return math.hypot(values, eigenvector_error(plan, micro_rho, radius, trace))


def predicted_frobenius_error(plan: Plan, *, shrink: bool) -> float:
    """Return the predicted Frobenius error of a plan's covariance relative to the total variance.

    From public numbers alone: `expected_records` records with variances 1 / i, a clip radius of 1.2 root mean
    square norms (3 if the public bounds are the radius), and gauss-cov, separate-cov or zero."""
    d, n = plan.study.dimension, plan.study.expected_records
    if plan.algorithm is Algorithm.ZERO:
        variances = 1 / np.arange(1, d + 1)
        return float(np.linalg.norm(variances) / variances.sum())
    radius = 3.0 if plan.study.radius == UNCLIPPED else 1.2
    whole, half = cost_of_share(plan, MAIN_SHARE), cost_of_share(plan, MAIN_SHARE / 2)
    if plan.algorithm is Algorithm.SEPARATE_COV:
        return separate_error(plan, half, radius, float(n)) / n
    if shrink:
        return eigenvector_error(plan, whole, radius, float(n)) / n
    return gauss_error(plan, whole, radius) / n


def shrunk_eigenvalues(values: FloatArray, scale: float) -> FloatArray:
    """Return the eigenvalues that, on the noised eigenvectors, are nearest to the matrix without noise.

    y_i - 2 d s^2 h(y_i), with s = scale / sqrt 2 the noise off the diagonal and h(y) = mean_j 1 / (y - y_j),
    smoothed over a width of s: the limit of v_i^T A v_i for a random rotation of A (Bun, Allez,
    Bouchaud, Potters 2016); for one large eigenvalue, sqrt(y^2 - 4 d s^2). In order, from 0 on.

    Shape: values (d,), falling -> (d,), falling."""
    s, d = scale / math.sqrt(2), len(values)
    if s <= 0:
        return np.maximum(values, 0.0)
    differences = values[:, None] - values[None, :]
    pull = (differences / (differences**2 + s**2)).sum(axis=1) / d
    return np.asarray(np.maximum(np.sort(values - 2 * d * s**2 * pull)[::-1], 0.0))
