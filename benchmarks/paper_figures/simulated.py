"""One simulated study, as every figure runs it: real algorithms, seeded noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.paper_figures.cells import NOISE
from eigenveil.algorithms import ALGORITHMS, Estimate
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, sin_angle
from eigenveil.simulation import simulate
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Column, Federation, Study

DELTA = 1e-6


def landed(*names: str) -> tuple[str, ...]:
    """Those of the named methods that this version has. "gauss-cov, clipped" is a way to run gauss-cov."""
    known = {"exact PCA", *(algorithm.value for algorithm in ALGORITHMS)}
    return tuple(name for name in names if name.split(",")[0] in known)


def run(
    algorithm: str, records: FloatArray, columns: tuple[Column, ...], seed: int, **options: Any
) -> Estimate:
    """The estimate of one site's study, with noise from `seed`. Shape: records (n, d), in columns' units."""
    settings: dict[str, Any] = {
        "epsilon": 1.0,
        "delta": DELTA,
        "components": 1,
        "expected_records": max(len(records), 1),
        "max_records": 2**20,
    }
    study = Study(
        name="paper-figure",
        columns=columns,
        algorithm=Algorithm(algorithm),
        federation=Federation(sites=("all",), minimum_cohort=1),
        **(settings | options),
    )
    return simulate(study, {"all": records}, seed=NOISE + seed).estimate


def sines(
    series: tuple[str, ...],
    records: FloatArray,
    columns: tuple[Column, ...],
    truth: FloatArray,
    seed: int,
    **common: Any,
) -> dict[str, float]:
    """Each method's sine of the largest angle to the true components; NaN where it releases nothing.

    "exact PCA" is numpy's on the same records. Shape: truth (k, d), orthonormal rows."""
    found = {}
    for name in series:
        if name == "exact PCA":
            found[name] = sin_angle(exact(records, len(truth)), truth)
            continue
        found[name] = sine(name, records, columns, truth, seed, **common)
    return found


def sine(
    name: str, records: FloatArray, columns: tuple[Column, ...], truth: FloatArray, seed: int, **options: Any
) -> float:
    """One method's sine; NaN where it releases nothing, or refuses the study before it asks anything."""
    try:
        estimate = run(name, records, columns, seed, components=len(truth), **options)
    except RequestError as problem:
        if problem.code is not Code.BAD_STUDY:
            raise
        return math.nan
    return math.nan if estimate.declined is not None else sin_angle(estimate.components, truth)


def exact(records: FloatArray, k: int) -> FloatArray:
    """The leading components of the records about their mean. Shape: (n, d) -> (k, d)."""
    centred = records - records.mean(axis=0)
    return np.asarray(eigenpairs(centred.T @ centred)[1][:, :k].T)
