"""Shared steps of the estimators, from parameters and records to a simulated study and its released model.

The steps: public bounds in each accepted form, warnings, the study of one site, and the number of components
(a count, or a share of the released variance)."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from traceback import walk_stack
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import check_array, validate_data

from eigenveil.accounting.formatting import shown
from eigenveil.accounting.zcdp import Neighbours
from eigenveil.errors import RequestError
from eigenveil.input_file import file_bytes
from eigenveil.numerics.encoding import FloatArray, select_columns
from eigenveil.priors import MOST_BYTES, prior_from_file, prior_from_rows
from eigenveil.reporting.result import Result
from eigenveil.simulation import Simulation, simulate
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.prior import Prior
from eigenveil.study.radius import PublicNorm, radius_from
from eigenveil.study.study import Column, Federation, Study

# (lower, upper), a pair for each column, or a pair for each name.
Bounds = tuple[ArrayLike, ArrayLike] | Sequence[ArrayLike] | Mapping[str, ArrayLike]


@dataclass(kw_only=True, repr=False, eq=False)
class PrivateEstimator:
    """Parameters of every estimator."""

    epsilon: float = 1.0
    delta: float = 1e-6
    bounds: Bounds | None = None
    algorithm: str = "auto"
    neighbours: str = "add-remove"
    radius: str | float | PublicNorm | dict[str, float] = "balance"
    scaling: str = "none"
    random_state: Any = None


def lower_upper(bounds: Any, names: Sequence[str], *, named: bool) -> tuple[list[float], list[float]]:
    """Return the lower and upper bounds of the columns `names`; `named`: the names come from the records.

    Raises:
        ValueError: bounds are missing, or are not of these columns. The study checks that lower < upper."""
    if bounds is None:
        raise ValueError(
            "bounds=(lower, upper) is required: state public bounds from knowledge of the measurements; "
            "bounds computed from the records would disclose them"
        )
    by_name = isinstance(bounds, Mapping)
    given = [_bounds_of_column(name, bounds, named) for name in names] if by_name else bounds
    try:
        lower, upper = _sides(given, len(names), pairs=by_name)
    except (TypeError, ValueError) as problem:
        raise ValueError(
            f"bounds must be (lower, upper), each a number or {len(names)} numbers, one for each column; or "
            f"{len(names)} pairs [(lower, upper), ...]; or a mapping from column names to pairs"
        ) from problem
    return lower.tolist(), upper.tolist()


def _bounds_of_column(name: str, bounds: Mapping[str, Any], named: bool) -> Any:
    if not named:
        raise ValueError(
            "bounds by name need records whose columns have names, such as a DataFrame; for an array write "
            "[(lower, upper), ...] in the order of its columns"
        )
    if name not in bounds:
        raise ValueError(
            f"bounds have no entry for column {name!r}; they name: {', '.join(map(str, bounds))}"
        )
    return bounds[name]


def _sides(bounds: Any, d: int, *, pairs: bool) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper bounds; of two pairs, a tuple is (lower, upper) and a list holds pairs."""
    parts = [np.asarray(part, dtype=np.float64) for part in bounds]
    are_pairs = len(parts) == d and all(part.shape == (2,) for part in parts)
    if pairs or (are_pairs and not (d == 2 and isinstance(bounds, tuple))):
        lower, upper = np.array(parts).T
    else:
        lower, upper = (np.broadcast_to(part, (d,)) for part in parts)
    return lower, upper


SEARCHES = "sklearn.model_selection"  # cross-validation and searches, also in their subprocesses
REPEATED_FIT = (
    "this fit is one of a search or a cross-validation: each fit spends epsilon = {epsilon} on the same "
    "records, and the guarantee of the result is the sum of all. Choose parameters with `predict`, which "
    "reads no records, or on public records"
)
FITTED_STEPS = (
    "{names} before it in the pipeline learned from the same records without noise: the released result has "
    "no privacy guarantee. Remove that step, state public bounds, and use `scaling`"
)


def call_warnings(estimator: Any) -> list[str]:
    """Return warnings about the callers of the running `fit` of `estimator`.

    A search repeats `fit`, or an earlier pipeline step read records. The warnings depend on the call stack,
    never on the records: a warning that depended on records would disclose them."""
    frames = [frame for frame, _ in walk_stack(sys._getframe(1))]
    searched = any(frame.f_globals.get("__name__", "").startswith(SEARCHES) for frame in frames)
    sentences = [REPEATED_FIT.format(epsilon=shown(estimator.epsilon))] if searched else []
    callers = [frame.f_locals.get("self") for frame in frames]
    before = [name for one in callers if isinstance(one, Pipeline) for name in _fitted_steps(one, estimator)]
    return [*sentences, FITTED_STEPS.format(names=", ".join(dict.fromkeys(before)))] if before else sentences


def _fitted_steps(pipeline: Pipeline, estimator: Any) -> Iterator[str]:
    """Yield the classes of the steps before `estimator` that were fitted to records, except our own.

    scikit-learn's tag `requires_fit` decides; a step without tags counts as fitted."""
    for _, step in pipeline.steps:
        if step is estimator or (
            type(step) is type(estimator) and _parameter_text(step) == _parameter_text(estimator)
        ):
            return  # a pipeline with memory fits a clone
        if step is None or step == "passthrough" or type(step).__module__.startswith("eigenveil."):
            continue
        if get_tags(step).requires_fit:
            yield type(step).__name__


def _parameter_text(estimator: Any) -> str:
    """Return an estimator's parameters as text, because `==` of arrays is not a single value."""
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
        return repr(estimator.get_params())


# They release one noised matrix, and with it every variance; the others only the first components.
NOISED_MATRIX_ALGORITHMS = (Algorithm.GAUSS_COV, Algorithm.ANALYZE_GAUSS)


def study_for_components(wanted: Any, study: Study) -> Study:
    """Return the study that releases `wanted` components; all components if `wanted` is a share.

    Raises:
        ValueError: `wanted` is neither a number of components nor a share, or the study's algorithm does not
            release every variance; nothing was spent."""
    if not _is_share(wanted):
        return _replaced(study, components=_checked_count(wanted, study.dimension))
    algorithm = Algorithm.GAUSS_COV if study.algorithm is Algorithm.AUTO else study.algorithm
    if algorithm not in NOISED_MATRIX_ALGORITHMS:
        known = " or ".join(one.value for one in NOISED_MATRIX_ALGORITHMS)
        raise ValueError(
            f"n_components={wanted!r} needs all variances, which {algorithm.value} does not release; use "
            f"algorithm {known}, or a number of components"
        )
    return _replaced(study.with_algorithm(algorithm), components=study.dimension)


def component_count(wanted: Any, result: Result) -> int:
    """Return the number of components to use: the fewest that hold more than the requested share.

    If noise hides that all components together reach the share, all are used.
    Source: the release alone [P7].

    Raises:
        ValueError: more components are requested than were released."""
    k = len(result.components)
    if not _is_share(wanted):
        return k if result.declined is not None else _checked_count(wanted, k, "the released components")
    cumulative = np.cumsum(result.explained_variance_ratio)
    enough = np.flatnonzero(cumulative > wanted)
    if not enough.size and k < len(result.columns):
        share = float(cumulative[-1]) if k else 0.0
        raise ValueError(
            f"n_components={wanted!r}: the {k} released components hold {share:.1%} of the variance; request "
            "a smaller share, or run a study with more components"
        )
    return int(enough[0]) + 1 if enough.size else k


def warn_of_noise(wanted: Any, k: int, result: Result) -> None:
    """Warn if a requested share was reached with components that may be noise alone."""
    noise_count = sum(result.from_noise[:k])
    if _is_share(wanted) and noise_count:
        warnings.warn(
            f"{noise_count} of the {k} components that hold {wanted:.0%} of the released variance vary no "
            "more than "
            "the privacy noise: they may be noise. Use fewer components or a larger epsilon",
            stacklevel=3,
        )


def _is_share(wanted: Any) -> bool:
    return isinstance(wanted, float | np.floating) and 0 < float(wanted) < 1


def _checked_count(wanted: Any, most: int, of: str = "n_features") -> int:
    if isinstance(wanted, bool) or not isinstance(wanted, int | np.integer) or not 1 <= wanted <= most:
        raise ValueError(
            f"n_components={wanted!r} must be an integer between 1 and {of}={most}, or a share of the "
            "variance between 0 and 1"
        )
    return int(wanted)


def with_prior(study: Study, prior: Any) -> Study:
    """Return the study with a prior: a `Prior`, the path of a file, public rows, or None.

    Raises:
        ValueError: it is no prior of this study; nothing was spent."""
    if prior is None:
        return study
    try:
        if isinstance(prior, str | os.PathLike):
            prior = prior_from_file(file_bytes(prior, MOST_BYTES + 1), study)
        elif not isinstance(prior, Prior):
            names = [column.name for column in study.columns]
            rows: FloatArray = check_array(select_columns(names, prior), dtype=np.float64, input_name="prior")
            prior = prior_from_rows(rows, study)
    except RequestError as problem:
        raise ValueError(str(problem)) from problem
    return _replaced(study, prior=prior)


def _replaced(study: Study, **changes: Any) -> Study:
    try:
        return replace(study, **changes)
    except RequestError as problem:
        raise ValueError(str(problem)) from problem


SITE = "here"
SEEDS = 2**31 - 1
MAX_RECORDS = 2**24


def records_of(estimator: Any, X: ArrayLike) -> FloatArray:
    """Return the validated records of a `fit`. Shape: (n_samples, n_features).

    No message states their number: under add-remove it is private.

    Raises:
        ValueError: no records, more than MAX_RECORDS, or values that are not finite."""
    records: FloatArray = validate_data(estimator, X, dtype=np.float64)
    if len(records) > MAX_RECORDS:
        raise ValueError(f"one fit takes at most {MAX_RECORDS} records; X has more")
    return records


def study_of(estimator: Any, d: int, **changes: Any) -> Study:
    """Return the study of an estimator's parameters, with one component unless `changes` set another number.

    Raises:
        ValueError: a parameter is invalid."""
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
    """Run the study on the records and spend its budget; `fit` must call this directly.

    Under replace-one the number of records is public, and the study states it.

    Raises:
        ValueError: the study is invalid; nothing was spent."""
    if study.neighbours is Neighbours.REPLACE_ONE:
        study = replace(study, expected_records=len(records), max_records=len(records))
    call_notes = call_warnings(estimator)  # before anything is spent
    state = estimator.random_state
    seed = None if state is None else int(check_random_state(state).randint(SEEDS))
    try:
        with ThreadPoolExecutor(os.cpu_count()) as threads:  # starts no thread for few records
            simulation = simulate(study, {SITE: records}, seed=seed, apply=threads.map)
    except RequestError as problem:
        raise ValueError(str(problem)) from problem
    result = simulation.result
    if study.neighbours is Neighbours.ADD_REMOVE:  # n is private: use the noised count
        study = replace(study, expected_records=min(max(round(result.records), 1), MAX_RECORDS))
    for sentence in (*study.warnings(), *result.warnings, *call_notes):
        warnings.warn(sentence, stacklevel=3)
    if result.declined:
        warnings.warn(f"no release: {result.declined}", stacklevel=3)
    return simulation
