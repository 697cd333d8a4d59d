"""What the scikit-learn estimators share: from parameters and records to a simulated study of one site."""

from __future__ import annotations

import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from eigenveil.accounting.neighbours import Neighbours
from eigenveil.errors import RequestError
from eigenveil.estimators._warnings import doubts_of_the_call
from eigenveil.estimators.bounds import lower_upper
from eigenveil.numerics.encoding import FloatArray
from eigenveil.simulation import Simulation, simulate
from eigenveil.study.radius import radius_from
from eigenveil.study.study import Column, Federation, Study

SITE = "here"
SEEDS = 2**31 - 1
MAX_RECORDS = 2**24


def records_of(estimator: Any, X: ArrayLike) -> FloatArray:
    """The records of a `fit`, checked. Shape: (n_samples, n_features).

    How many there are is in no message: under add-remove that is private.

    Raises:
        ValueError: none, more than MAX_RECORDS, or not finite numbers.
    """
    records: FloatArray = validate_data(estimator, X, dtype=np.float64)
    if len(records) > MAX_RECORDS:
        raise ValueError(f"one fit takes at most {MAX_RECORDS} records; these are more")
    return records


def study_of(estimator: Any, d: int, **changes: Any) -> Study:
    """The study that an estimator's parameters say, with one component unless `changes` say otherwise.

    Raises:
        ValueError: a parameter is refused.
    """
    names = [str(name) for name in getattr(estimator, "feature_names_in_", [f"x{i}" for i in range(d)])]
    lower, upper = lower_upper(estimator.bounds, names, named=hasattr(estimator, "feature_names_in_"))
    radius = estimator.radius
    try:
        study = Study(
            name="private-pca",
            columns=tuple(
                Column(name=name, unit="", lower=low, upper=high)
                for name, low, high in zip(names, lower, upper, strict=True)
            ),
            epsilon=estimator.epsilon,
            delta=estimator.delta,
            components=1,
            federation=Federation(sites=(SITE,), minimum_cohort=1),
            algorithm=estimator.algorithm,
            neighbours=estimator.neighbours,
            scaling=estimator.scaling,
            radius=radius_from(radius) if isinstance(radius, str | dict) else radius,
            max_records=MAX_RECORDS,
        )
        return replace(study, **changes)
    except RequestError as problem:
        raise ValueError(str(problem)) from problem


def run(estimator: Any, study: Study, records: FloatArray) -> Simulation:
    """Spend the study's budget on the records; to be called by `fit` itself.

    Where replacing a record is what must not show, the number of records is public, and the study says it.

    Raises:
        ValueError: the study is refused; nothing was spent.
    """
    if study.neighbours is Neighbours.REPLACE_ONE:
        study = replace(study, expected_records=len(records), max_records=len(records))
    doubts = doubts_of_the_call(estimator)  # before anything is spent
    state = estimator.random_state
    seed = None if state is None else int(check_random_state(state).randint(SEEDS))
    try:
        with ThreadPoolExecutor(os.cpu_count()) as threads:  # none is started for few records
            simulation = simulate(study, {SITE: records}, seed=seed, apply=threads.map)
    except RequestError as problem:
        raise ValueError(str(problem)) from problem
    result = simulation.result
    if study.neighbours is Neighbours.ADD_REMOVE:  # what may be said about n is the noised count
        counted = min(max(round(result.records), 1), MAX_RECORDS)
        study = replace(study, expected_records=counted)
    for sentence in (*study.warnings(), *result.warnings, *doubts):
        warnings.warn(sentence, stacklevel=3)
    if result.declined:
        warnings.warn(f"no release: {result.declined}", stacklevel=3)
    return simulation
