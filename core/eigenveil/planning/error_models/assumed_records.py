"""Assumed spectrum of the records, the distribution of their norms, and preparations without noise on them.
The source is public: a default, eigenvalues stated by the analyst, or public records. The noiseless
preparations (a count, a radius) use the rules of the algorithms themselves and change with them."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar, assert_never

import numpy as np
from numpy.typing import ArrayLike

from eigenveil.algorithms.shared.preparation import LocationEstimate, effective_mu, locate
from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.numerics.linalg import eigenpairs, public_normals
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseDistribution, PricedQuery
from eigenveil.protocol.query_limits import least_drawn_sigma
from eigenveil.protocol.rounds import Release
from eigenveil.queries import (
    AdditiveQuery,
    ClippedSum,
    Count,
    CrossCovariance,
    CrossNorms,
    Gradient,
    GradientNorms,
    Gram,
    Query,
    RadiusSearch,
    RowNorms,
    Spectrum,
    SquaredNormSum,
    batch_of,
)
from eigenveil.study.grid import S

# Default lambda_i ~ i^-0.75: at 20 to 60 columns the total is 5 to 8 times the first. Clinical tables had
# 2 to 7, and flatter spectra with more columns.
DECAY = 0.75
SPREAD = 0.25  # assumed standard deviation of a column, in half widths of its bounds
POINTS, MANY_POINTS = 1024, 4096
LEADING = 32  # coordinates of a point stored one by one; of the others only their norm
BEYOND = 4
FLOOR = 1e-12
LEAST_ROWS = 20
FITTINGS = 32  # iterations that fit points to a norm and a spectrum in turn; 4 % accuracy


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AssumedSpectrum:
    """Assumed spectrum, and points along its axes that represent the records.
    Shape: values (d,), falling, in analysis units; leading (N, m), the first coordinates of the points about
    their mean; rest (N,), the squared norm of their other coordinates. `sampled`: the number of public
    records behind the points; None for normal points, symmetric about every axis. `known`: stated for these
    records, not a default."""

    values: FloatArray
    leading: FloatArray
    rest: FloatArray
    source: str
    sampled: int | None = None
    known: bool = True

    @property
    def lengths(self) -> FloatArray:
        """Return the norms of the points. Shape: (N,)."""
        return np.asarray(np.sqrt((self.leading**2).sum(axis=1) + self.rest))

    @property
    def flatness(self) -> float:
        """Return tr / lambda_1, about the number of columns that vary as much as the first component."""
        return float(self.values.sum() / self.values[0])


def default_spectrum(d: int, k: int) -> AssumedSpectrum:
    """Return the spectrum assumed when none is stated."""
    values: FloatArray = np.arange(1, d + 1, dtype=np.float64) ** -DECAY
    return replace(normal_spectrum(values, k, source="the default spectrum"), known=False)


def stated_spectrum(stated: Sequence[float], d: int, k: int) -> AssumedSpectrum:
    """Return the spectrum of stated eigenvalues, in any unit; columns beyond the list have its last value.
    Raises RequestError: the list is empty, too long, or not falling numbers above 0."""
    values = np.asarray(stated, dtype=np.float64)
    falling = bool(np.isfinite(values).all() and (values > 0).all() and (np.diff(values) <= 0).all())
    if not (1 <= len(values) <= d and falling):
        raise RequestError(
            Code.BAD_ARGUMENT, f"a spectrum is 1 to {d} numbers above 0, the largest first, such as 5,2,1"
        )
    filled = np.concatenate([values, np.full(d - len(values), values[-1])])
    return normal_spectrum(filled, k, source="the stated spectrum")


def normal_spectrum(values: FloatArray, k: int, *, source: str) -> AssumedSpectrum:
    """Return normal records of a spectrum, scaled by `SPREAD`. Shape: values (d,), falling."""
    d = len(values)
    values = np.maximum(values, FLOOR * values[0])
    values = values * (d * SPREAD**2 / values.sum())
    m = _coordinates(d, k)
    normals = _normals(m + 1)
    tail = values[m:]
    return AssumedSpectrum(
        values=values,
        leading=normals[:, :m] * np.sqrt(values[:m]),
        rest=_chi_square(tail, normals[:, m]) if len(tail) else np.zeros(len(normals)),
        source=source,
    )


def sample_spectrum(rows: FloatArray, k: int) -> AssumedSpectrum:
    """Return the spectrum and the points of public records. Shape: rows (N, d), in analysis units. Raises
    RequestError: too few records, or all equal."""
    if len(rows) < LEAST_ROWS:
        raise RequestError(
            Code.TOO_FEW_RECORDS, f"a public sample of {len(rows)} records is too small; give {LEAST_ROWS}"
        )
    centred = rows - rows.mean(axis=0)
    values, vectors = eigenpairs(centred.T @ centred / len(rows))
    if values[0] <= 0:
        raise RequestError(Code.BAD_DATA, "the records of the public sample are all equal")
    few = centred[np.linspace(0, len(rows) - 1, min(len(rows), MANY_POINTS)).astype(int)]
    leading = few @ vectors[:, : _coordinates(rows.shape[1], k)]
    return AssumedSpectrum(
        values=np.maximum(values, FLOOR * values[0]),
        leading=leading,
        rest=np.maximum((few**2).sum(axis=1) - (leading**2).sum(axis=1), 0.0),
        source=f"a public sample of {len(rows)} records",
        sampled=len(rows),
    )


def limited_to_norm(spectrum: AssumedSpectrum, norm: float) -> AssumedSpectrum:
    """Return the spectrum of records limited to a norm: scaled down if they are larger on average. Its points
    fit both the spectrum and the norm. A public sample is unchanged."""
    if spectrum.sampled is not None or math.isinf(norm):
        return spectrum
    values = spectrum.values * min(1.0, norm / math.sqrt(float(spectrum.values.sum()))) ** 2
    m = spectrum.leading.shape[1]
    tail, leading, rest = float(values[m:].sum()), spectrum.leading, spectrum.rest
    for _ in range(FITTINGS):
        leading = leading * np.sqrt(values[:m] / (leading**2).mean(axis=0))
        rest = rest * (tail / max(float(rest.mean()), 1e-300))
        less = np.minimum(1.0, norm / np.sqrt((leading**2).sum(axis=1) + rest))
        leading, rest = leading * less[:, None], rest * less**2
    return replace(spectrum, values=values, leading=leading, rest=rest)


def _coordinates(d: int, k: int) -> int:
    return min(d, k + BEYOND, LEADING)


def _chi_square(weights: FloatArray, normal: FloatArray) -> FloatArray:
    """Return sum_j weights_j z_j^2, by mean and variance (Wilson & Hilferty 1931). Shape: (N,) -> (N,)."""
    total = float(weights.sum())
    spread = 2 / 9 * float((weights**2).sum()) / total**2
    cubes = np.maximum(1 - spread + math.sqrt(spread) * normal, 0.0) ** 3
    return np.asarray(total * cubes * (len(cubes) / cubes.sum()))


@lru_cache(maxsize=8)
def _normals(columns: int) -> FloatArray:
    """Return public normal numbers, the same at every call: each column has mean 0 and variance 1. Shape:
    (POINTS, columns)."""
    normals = public_normals(b"eigenveil/points/v1", (POINTS, columns))
    out: FloatArray = (normals - normals.mean(axis=0)) / normals.std(axis=0)
    out.setflags(write=False)
    return out


Answer = TypeVar("Answer")

# Queries of the preparations, whose releases follow from norms alone.
PreparationQuery = (
    Count
    | RowNorms
    | GradientNorms
    | CrossNorms
    | ClippedSum
    | Gradient
    | CrossCovariance
    | SquaredNormSum
    | RadiusSearch
    | Gram
    | Spectrum
)


def locate_noiseless(plan: Plan, spectrum: AssumedSpectrum) -> LocationEstimate:
    """Return the count, the mean and the norms about it, of the assumed records."""
    return run_noiseless(plan, locate(plan), spectrum.lengths * S)


def run_noiseless(
    plan: Plan,
    steps: Generator[PricedQuery, Release, Answer],
    norms: FloatArray,
    priced_queries: list[PricedQuery] | None = None,
) -> Answer:
    """Return the result of `steps` without noise. Norms are as given, the count is as expected, the mean is
    0, columns are alike and directions are right. The queries are appended to `priced_queries`. Shape: norms
    (N,), in the integers of the queries."""
    try:
        priced_query = next(steps)
        while True:
            if priced_queries is not None:
                priced_queries.append(priced_query)
            priced_query = steps.send(_release(plan, priced_query, norms))
    except StopIteration as end:
        answer: Answer = end.value
        return answer


def _release(plan: Plan, priced_query: PricedQuery, norms: FloatArray) -> Release:
    query = priced_query.query
    if not isinstance(query, PreparationQuery):
        raise InternalError(Code.BUG, f"there is no noiseless release of {type(query).__name__}")
    return Release(
        round=0,
        query="",
        values=_values(query, plan.study.expected_records, norms),
        sigma=_sigma(plan, query, priced_query),
        micro_rho=priced_query.micro_rho,
        atto_delta=priced_query.atto_delta,
        present=plan.study.federation.sites,
    )


def _values(query: PreparationQuery, n: int, norms: FloatArray) -> IntArray:
    match query:
        case Count():
            return frozen([n])
        case RowNorms() | GradientNorms() | CrossNorms():
            batch = batch_of(query)
            return histogram(norms, query.edges, n if batch is None else n / batch.batches)
        case ClippedSum() | Gradient() | CrossCovariance():
            return frozen(np.zeros(query.length, dtype=np.int64))
        case SquaredNormSum():
            return _whole([n * _squared_norm(norms, query.radius)])
        case RadiusSearch():
            return frozen([_searched(query, norms, n)])
        case Gram():
            d = query.centre.size
            return _whole(n * _squared_norm(norms, query.radius) / d * (np.arange(query.length) < d))
        case Spectrum():
            return _whole(
                np.full(query.released_length, n * _squared_norm(norms, query.radius) / query.released_length)
            )
        case _:
            assert_never(query)


def _squared_norm(norms: FloatArray, radius: int) -> float:
    return float((np.minimum(norms, radius) ** 2).mean())


def _searched(query: RadiusSearch, norms: FloatArray, records: int) -> int:
    beyond = records * (norms >= query.edges[:, None]).mean(axis=1)
    few = np.flatnonzero(beyond <= query.limits)
    return int(few[0]) if few.size else len(query.edges)


def _whole(values: ArrayLike) -> IntArray:
    return frozen(np.rint(values).astype(np.int64))


def histogram(norms: FloatArray, edges: IntArray, records: float) -> IntArray:
    """Return counts of `records` records distributed as `norms`. Shape: (N,), (b,) -> (b + 1,)."""
    bins = np.searchsorted(edges, norms, side="right")
    shares = np.bincount(bins, minlength=len(edges) + 1) / len(norms)
    return frozen(np.rint(records * shares).astype(np.int64))


def _sigma(plan: Plan, query: Query, priced_query: PricedQuery) -> float:
    study = plan.study
    if not isinstance(query, AdditiveQuery):
        return 0.0  # its mechanism has its own noise, which no error model uses
    if priced_query.distribution is NoiseDistribution.LAPLACE:
        moved = math.sqrt(2) * query.l1(study.neighbours)
    else:
        moved = math.sqrt(query.l2_squared(study.neighbours))
    sd = moved * study.max_sites_per_person / effective_mu(plan, priced_query.micro_rho)
    return max(sd, least_drawn_sigma(study, len(study.federation.sites)))
