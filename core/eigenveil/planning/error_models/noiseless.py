"""What an algorithm's preparations would release on assumed records, without noise: a radius, a count.

So the laws rest on the very rules that run, and change with them.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import TypeVar, assert_never

import numpy as np
from numpy.typing import ArrayLike

from eigenveil.algorithms.shared.preparation import Centred, drawn_mu, locate
from eigenveil.errors import Code, InternalError
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.planning.error_models.spectrum import AssumedSpectrum
from eigenveil.protocol.noise_ratio import quietest
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseLaw, PricedQuery
from eigenveil.protocol.release import Release
from eigenveil.queries import (
    Additive,
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

Answer = TypeVar("Answer")

# What preparations ask, and what norms alone decide.
OfNorms = (
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


def located(plan: Plan, guess: AssumedSpectrum) -> Centred:
    """The count, the mean and the norms about it, of the assumed records."""
    return imagine(plan, locate(plan), guess.lengths * S)


def imagine(
    plan: Plan,
    steps: Generator[PricedQuery, Release, Answer],
    norms: FloatArray,
    asked: list[PricedQuery] | None = None,
) -> Answer:
    """What `steps` come to if norms are these, the count is as expected, the mean is 0, columns are alike and
    directions are right already.

    What they ask is put into `asked`. Shape: norms (N,), in the integers of what is asked.
    """
    try:
        priced = next(steps)
        while True:
            if asked is not None:
                asked.append(priced)
            priced = steps.send(_release(plan, priced, norms))
    except StopIteration as end:
        answer: Answer = end.value
        return answer


def _release(plan: Plan, priced: PricedQuery, norms: FloatArray) -> Release:
    query = priced.query
    if not isinstance(query, OfNorms):
        raise InternalError(Code.BUG, f"no release of {type(query).__name__} is imagined here")
    return Release(
        round=0,
        query="",
        values=_values(query, plan.study.expected_records, norms),
        sigma=_sigma(plan, query, priced),
        micro_rho=priced.micro_rho,
        atto_delta=priced.atto_delta,
        present=plan.study.federation.sites,
    )


def _values(query: OfNorms, n: int, norms: FloatArray) -> IntArray:
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
            return _whole(np.full(query.released, n * _squared_norm(norms, query.radius) / query.released))
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
    """Counts of `records` records that are spread as `norms` are. Shape: (N,), (b,) -> (b + 1,)."""
    bins = np.searchsorted(edges, norms, side="right")
    shares = np.bincount(bins, minlength=len(edges) + 1) / len(norms)
    return frozen(np.rint(records * shares).astype(np.int64))


def _sigma(plan: Plan, query: Query, priced: PricedQuery) -> float:
    study = plan.study
    if not isinstance(query, Additive):
        return 0.0  # a mechanism of its own, whose noise no law looks at
    if priced.law is NoiseLaw.LAPLACE:
        moved = math.sqrt(2) * query.l1(study.neighbours)
    else:
        moved = math.sqrt(query.l2_squared(study.neighbours))
    sd = moved * study.max_sites_per_person / drawn_mu(plan, priced.micro_rho)
    return max(sd, quietest(study, len(study.federation.sites)))
