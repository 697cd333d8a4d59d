"""Runs of a cell: the true and the stated sine of one release, with records and noise of the same seed.

Needs of the product only what every version has: so it measures an earlier commit's work tree, too."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

from benchmarks.families import Family
from eigenveil import RequestError, make_plan, simulate
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, sin_angle
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Federation, Scaling, Study

WIDE = 400  # columns from which only the leading components are computed, not the matrix
NOTHING = (math.nan, math.nan)  # of a study that is refused


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AccuracyCell:
    """Table, components and epsilon, and what ran: an algorithm's name."""

    table: str
    components: int
    epsilon: float
    algorithm: str

    def __str__(self) -> str:
        return f"{self.table:36} k={self.components} eps={self.epsilon:<4g} {self.algorithm:22}"


def a_study(family: Family, **changes: Any) -> Study:
    """Return a study of the first component at epsilon 1, delta 1e-6, add-remove, with a radius by balance,
    unless changed."""
    values: dict[str, Any] = {
        "name": "accuracy",
        "columns": family.columns,
        "epsilon": 1.0,
        "delta": 1e-6,
        "components": 1,
        "federation": Federation(sites=("all",)),
        "max_records": 2**20,
        "scaling": Scaling.BOUNDS,
    }
    return Study(**(values | changes))


def scaled(records: FloatArray, study: Study) -> FloatArray:
    """Return the records clamped to their public bounds, on the scale from -1 to 1. Shape: (n, d)."""
    lower = np.array([column.lower for column in study.columns])
    half = np.array([column.half_range for column in study.columns])
    return np.asarray(np.clip((records - lower) / half - 1, -1, 1))


def exact(records: FloatArray, study: Study) -> FloatArray:
    """Return the leading components of the records on the scale of their public bounds.
    Shape: (n, d) -> (k, d)."""
    rows, k = scaled(records, study), study.components
    if study.dimension < WIDE:
        return np.asarray(eigenpairs(np.cov(rows.T))[1][:, :k].T)
    rows -= rows.mean(axis=0)
    matrix = LinearOperator(
        (study.dimension, study.dimension), matvec=lambda v: rows.T @ (rows @ v), dtype=np.float64
    )
    values, vectors = eigsh(matrix, k=k, v0=np.ones(study.dimension))
    return np.asarray(vectors[:, np.argsort(values)[::-1]].T)


def runs(
    family: Family, settings: tuple[tuple[int, float], ...], algorithms: tuple[Algorithm, ...], seed: int
) -> Iterator[tuple[AccuracyCell, tuple[float, float]]]:
    """Yield the true and stated sine of one run of each cell of a table. `settings` are pairs of components
    and epsilon. `auto` before the first round is the algorithm that its plan names, with the same noise."""
    records, _ = family.draw(np.random.default_rng(seed))
    most = max(k for k, _ in settings)
    truth = exact(records, a_study(family, components=most))
    for k, epsilon in settings:
        study = a_study(family, components=k, epsilon=epsilon, expected_records=len(records))
        found: dict[str, tuple[float, float]] = {}
        for algorithm in algorithms:
            named = replace(study, algorithm=algorithm)
            found[algorithm.value] = found.get(planned(named)) or run(named, records, truth[:k], seed)
            cell = AccuracyCell(table=family.name, components=k, epsilon=epsilon, algorithm=algorithm.value)
            yield cell, found[algorithm.value]


def planned(study: Study) -> str:
    """Return the name of the algorithm that would run; empty if the study is refused."""
    try:
        return str(make_plan(study).algorithm.value)
    except RequestError:
        return ""


def run(study: Study, records: FloatArray, truth: FloatArray, seed: int) -> tuple[float, float]:
    """Return the true and the stated sine of one run; NOTHING if the study is refused."""
    try:
        estimate = simulate(study, {"all": records}, seed=seed).estimate
    except RequestError:
        return NOTHING
    stated = math.nan if estimate.sin_error is None else estimate.sin_error
    return sin_angle(estimate.components, truth), stated
