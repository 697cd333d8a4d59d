"""Custom algorithms: checks of their queries and of their estimate.

A named algorithm is reviewed; of a custom one only its queries are known. So it may only use queries with a
complete guarantee, and is charged for each one like all algorithms [P4]. Its computations from releases are
post-processing [P7], as long as it has no other access to the records."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import numpy as np

from eigenveil.errors import Code, RequestError
from eigenveil.protocol.estimate import Estimate, Steps
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseDistribution, PricedQuery
from eigenveil.queries import AdditiveQuery, ShuffledRecord, SumMechanismQuery
from eigenveil.queries.contract import GramAnswer
from eigenveil.study.algorithm import CustomAlgorithm

NUMBERS = ("records", "total_variance", "noise_scale", "sin_error")
ORTHONORMAL = 1e-6  # largest error of the product of two components


def as_custom_algorithm(
    algorithm: CustomAlgorithm | Callable[[Plan], Generator[Any, Any, Any]],
) -> CustomAlgorithm:
    """Return a generator function as a custom algorithm, with default properties. The default is noised sums
    and histograms, with costs that add up as zCDP. Raises RequestError: not a generator function."""
    if isinstance(algorithm, CustomAlgorithm):
        return algorithm
    if not inspect.isgeneratorfunction(algorithm):
        name = getattr(algorithm, "__name__", repr(algorithm))
        raise _wrong(name, "is not a generator function: write `def my_algorithm(plan)` with a `yield` in it")
    return CustomAlgorithm(steps=algorithm)


def checked_steps(algorithm: CustomAlgorithm, plan: Plan) -> Steps:
    """Run the steps, with a check of each query and of the estimate. Raises RequestError: code
    `bad-argument`: an invalid query or estimate."""
    steps, release = algorithm.steps(plan), None
    while True:
        try:
            priced_query = steps.send(release)
        except StopIteration as end:
            return _estimate(algorithm.name, end.value, plan)
        if not isinstance(priced_query, PricedQuery):
            what = f"yielded {_kind(priced_query)}; yield PricedQuery(query=..., micro_rho=...)"
            raise _wrong(algorithm.name, what)
        _check(algorithm, priced_query, plan)
        release = yield priced_query


def _check(algorithm: CustomAlgorithm, priced_query: PricedQuery, plan: Plan) -> None:
    query, name = priced_query.query, algorithm.name
    if type(priced_query.micro_rho) is not int or type(priced_query.atto_delta) is not int:
        raise _wrong(
            name, f"yielded {_kind(query)} at {priced_query.micro_rho} micro-rho; a cost must be an int"
        )
    if priced_query.frame is not None:
        raise _wrong(name, 'yielded a query in a frame; use scaling = "standard" in the study instead')
    if isinstance(query, AdditiveQuery):
        if priced_query.distribution is NoiseDistribution.STABILITY and query.bound != 1:
            raise _wrong(name, f"yielded {_kind(query)} as a stability histogram, not a query of counts")
        return
    if not isinstance(query, SumMechanismQuery) or isinstance(query, ShuffledRecord):
        raise _wrong(name, f"yielded {_kind(query)}; only the queries of eigenveil.algorithms are allowed")
    if not algorithm.properties.trusted:
        raise _wrong(
            name,
            f"yielded {_kind(query)}, which works on exact sums: declare it with "
            "CustomAlgorithm(..., properties=AlgorithmProperties(trusted=True))",
        )
    # Its noise covers the float error of at most that many records.
    if isinstance(query, GramAnswer) and query.records < plan.most_records:
        raise _wrong(name, f"yielded {_kind(query)} with records = {query.records}; use plan.most_records")


def _estimate(name: str, found: object, plan: Plan) -> Estimate:
    """Return the estimate after checks against the study. Raises RequestError: code `bad-argument`: an
    invalid estimate."""
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
            raise _wrong(name, f"returned {field} with a value that is not finite")
        settled[field] = np.asarray(values, dtype=np.float64) if field in shapes else float(values)
    off = np.abs(settled["components"] @ settled["components"].T - np.eye(k)).max(initial=0.0)
    if k > plan.study.components or off > ORTHONORMAL:
        raise _wrong(name, f"returned {k} components; return at most {plan.study.components}, orthonormal")
    return replace(found, **settled)


def _kind(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__


def _wrong(name: str, what: str) -> RequestError:
    return RequestError(Code.BAD_ARGUMENT, f"{name} {what}")
