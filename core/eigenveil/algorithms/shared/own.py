"""An algorithm of the user's own: what it may ask, and what it has to give back.

A named algorithm is reviewed; of this one nothing is known but the queries it yields. So it may ask only what
carries its whole guarantee in itself, and pays for each query as all algorithms do [P4]. What it computes
from releases is post-processing [P7], as long as it sees the records in no other way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import numpy as np

from eigenveil.errors import Code, RequestError
from eigenveil.protocol.estimate import Estimate, Steps
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseLaw, PricedQuery
from eigenveil.queries import Additive, Eigenvectors, RadiusSearch, Spectrum, Subspace
from eigenveil.study.algorithm import OwnAlgorithm

NUMBERS = ("records", "total_variance", "noise_scale", "sin_error")
ORTHONORMAL = 1e-6  # how far the product of two components may be from what it should be


def own(algorithm: OwnAlgorithm | Callable[[Plan], Generator[Any, Any, Any]]) -> OwnAlgorithm:
    """A generator function as an algorithm, under its own name and with the properties of most: sums and
    histograms with noise, whose prices add up as zCDP.

    Raises:
        RequestError: it is no generator function.
    """
    if isinstance(algorithm, OwnAlgorithm):
        return algorithm
    if not inspect.isgeneratorfunction(algorithm):
        name = getattr(algorithm, "__name__", repr(algorithm))
        raise _wrong(name, "is no generator function: write `def my_algorithm(plan)` with a `yield` in it")
    return OwnAlgorithm(steps=algorithm)


def checked(algorithm: OwnAlgorithm, plan: Plan) -> Steps:
    """Its steps, each query held against what it may ask, and the estimate against the study.

    Raises:
        RequestError: code `bad-argument`: it yielded or returned something else.
    """
    steps, release = algorithm.steps(plan), None
    while True:
        try:
            priced = steps.send(release)
        except StopIteration as end:
            return _estimate(algorithm.name, end.value, plan)
        if not isinstance(priced, PricedQuery):
            what = f"yielded {_kind(priced)}; yield PricedQuery(query=..., micro_rho=...)"
            raise _wrong(algorithm.name, what)
        _check(algorithm, priced, plan)
        release = yield priced


def _check(algorithm: OwnAlgorithm, priced: PricedQuery, plan: Plan) -> None:
    query, name = priced.query, algorithm.name
    if type(priced.micro_rho) is not int or type(priced.atto_delta) is not int:
        raise _wrong(name, f"asked {_kind(query)} at {priced.micro_rho} micro-rho; a price is an int")
    if priced.frame is not None:
        raise _wrong(name, 'asked through a frame; a study that says scaling = "standard" makes one')
    if isinstance(query, Additive):
        if priced.law is NoiseLaw.STABILITY and query.bound != 1:
            raise _wrong(name, f"asked {_kind(query)} as a stability histogram, and it counts nothing")
        return
    if not isinstance(query, Spectrum | Eigenvectors | Subspace | RadiusSearch):
        raise _wrong(name, f"asked {_kind(query)}; it may ask the queries that eigenveil.algorithms has")
    if not algorithm.properties.trusted:
        raise _wrong(
            name,
            f"asked {_kind(query)}, which works on exact sums: say so with "
            "OwnAlgorithm(..., properties=AlgorithmProperties(trusted=True))",
        )
    # Its noise covers what floats do to so many records, and no more.
    if not isinstance(query, RadiusSearch) and query.records < plan.most_records:
        raise _wrong(name, f"asked {_kind(query)} with records = {query.records}; say plan.most_records")


def _estimate(name: str, found: object, plan: Plan) -> Estimate:
    """The estimate, if it can be one of this study.

    Raises:
        RequestError: code `bad-argument`: it cannot.
    """
    if not isinstance(found, Estimate):
        raise _wrong(name, f"returned {_kind(found)}; return Estimate(components=..., ...)")
    d, k = plan.study.dimension, (*np.shape(found.components), 0)[0]
    shapes = {"components": (k, d), "explained_variance": (k,), "mean": (d,), "covariance": (d, d)}
    settled: dict[str, Any] = {}
    for field, shape in (shapes | dict.fromkeys(NUMBERS, ())).items():
        values = getattr(found, field)
        if values is None and field in ("covariance", "sin_error"):
            continue
        if np.shape(values) != shape or np.asarray(values).dtype.kind not in "fi":
            raise _wrong(name, f"returned {field} of shape {np.shape(values)}, not {shape} numbers")
        if not np.isfinite(values).all():
            raise _wrong(name, f"returned {field} with a number that is none")
        settled[field] = np.asarray(values, dtype=np.float64) if field in shapes else float(values)
    off = np.abs(settled["components"] @ settled["components"].T - np.eye(k)).max(initial=0.0)
    if k > plan.study.components or off > ORTHONORMAL:
        most = plan.study.components
        raise _wrong(name, f"returned {k} components, not at most {most} of length 1 and at right angles")
    return replace(found, **settled)


def _kind(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__


def _wrong(name: str, what: str) -> RequestError:
    return RequestError(Code.BAD_ARGUMENT, f"{name} {what}")
