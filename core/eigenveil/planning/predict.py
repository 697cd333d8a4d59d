"""Predicted cost and error of each algorithm for a study, at one or several epsilons, before any query.
Rounds and bytes follow from the plan. Errors follow from error models fitted to simulations, on an assumed
spectrum. Times follow from constants measured on one machine. Both are estimates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from eigenveil.accounting.zcdp import MAX_EPSILON
from eigenveil.algorithms import ALGORITHMS
from eigenveil.errors import Code, RequestError
from eigenveil.planning.choose import answer_bytes, choose, make_plan, possible_rehearsals
from eigenveil.planning.error_models import predict_plan_error
from eigenveil.planning.error_models.assumed_records import AssumedSpectrum, default_spectrum, stated_spectrum
from eigenveil.planning.error_models.perturbation import PredictedError
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import (
    CrossCovariance,
    CrossNorms,
    Gram,
    Preimage,
    Query,
    SpanGap,
    batch_of,
    released_length,
)
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.checks import member
from eigenveil.study.study import Study

# Measured by `python -m benchmarks.planner --times`, on one core of a small server.
ROUND_SECONDS = 0.025  # a round between processes on one machine
DRAW_SECONDS = 60e-9  # a number of noise
MULTIPLY_SECONDS = 0.04e-9  # a multiplication of a matrix product
SPAN_SECONDS = 200e-6  # the span of a few records, and the comparison of all others with it
TOUCH_SECONDS = 1.5e-9  # an entry of the records, read and shifted
DECOMPOSE_SECONDS = 2e-9  # times d^3: the eigenvectors of a released matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Prediction for one algorithm and study. `refused` is the reason if it cannot run; all else is None.
    `error` is None without an error model. `bytes_per_site` is sent by each site; `seconds` is an estimate
    for sites with equal shares of the expected records. If the first releases choose, these and `rounds` are
    the maximum over the first stages."""

    algorithm: Algorithm
    refused: str | None = None
    error: PredictedError | None = None
    rounds: int | None = None
    bytes_per_site: int | None = None
    seconds: float | None = None

    @property
    def trusted(self) -> bool:
        return self.algorithm.properties.trusted

    @property
    def raw(self) -> float:
        """Return the predicted error to first order; infinite without an error model."""
        return math.inf if self.error is None else self.error.raw


def predict(
    study: Study,
    algorithm: Algorithm | str | None = None,
    spectrum: AssumedSpectrum | Sequence[float] | None = None,
) -> Prediction:
    """Predict an algorithm's error and cost for this study from public numbers; costs no privacy.

    The default `algorithm` is the study's, or the choice of `auto`. `spectrum` is the assumed one: variances,
    largest first, in any unit; there is a default. If the algorithm cannot run this study, `refused` is the
    reason. Source: error models fitted to simulations.

    Raises:
        RequestError: code `bad-argument`: unknown algorithm, or a spectrum that does not fit the columns.

    >>> from eigenveil import Algorithm, Column, Federation, Study, predict
    >>> columns = tuple(Column(name=name, unit="mm", lower=-10, upper=10) for name in "abc")
    >>> study = Study(name="pilot", columns=columns, epsilon=2.0, delta=1e-6, components=1,
    ...               federation=Federation(sites=("north", "south")))
    >>> found = predict(study, Algorithm.GAUSS_COV, spectrum=[5, 1, 1])
    >>> found.rounds, found.bytes_per_site, found.error.median < 0.05
    (7, 1064, True)"""
    refuse = partial(RequestError, Code.BAD_ARGUMENT)
    algorithm = choose(study) if algorithm is None else member(Algorithm, "algorithm", algorithm, refuse)
    if spectrum is None:
        spectrum = default_spectrum(study.dimension, study.components)
    elif not isinstance(spectrum, AssumedSpectrum):
        spectrum = stated_spectrum(list(spectrum), study.dimension, study.components)
    try:
        plan = make_plan(study.with_algorithm(algorithm))
        error = predict_plan_error(plan, spectrum)
        if algorithm.properties.single_records:  # a rehearsal of a round per record would take minutes
            rounds = study.expected_records
            sent, time = 8 * study.dimension * study.components * rounds, ROUND_SECONDS * rounds
        else:
            rehearsals = possible_rehearsals(plan)
            rounds, sent = max(map(len, rehearsals)), max(map(answer_bytes, rehearsals))
            time = max(seconds(plan, rehearsal) for rehearsal in rehearsals)
    except RequestError as problem:
        return Prediction(algorithm=algorithm, refused=str(problem))
    return Prediction(algorithm=algorithm, error=error, rounds=rounds, bytes_per_site=sent, seconds=time)


def predict_all(study: Study, spectrum: AssumedSpectrum) -> tuple[Prediction, ...]:
    """Return the predictions of all algorithms, least error first, those that cannot run last."""
    found = [predict(study, algorithm, spectrum) for algorithm in ALGORITHMS]
    return tuple(sorted(found, key=lambda one: (one.refused is not None, one.error is None, one.raw)))


def seconds(plan: Plan, queries: Sequence[RoundQuery]) -> float:
    """Return the estimated time of a study between processes on one machine, with sites in parallel."""
    records = plan.study.expected_records / len(plan.study.federation.sites)
    total: float = ROUND_SECONDS * len(queries)
    for round_query in queries:
        total += _site_seconds(round_query.query, records, plan.study.dimension)
        total += DRAW_SECONDS * released_length(round_query.query)
        if isinstance(round_query.query, Gram):
            total += DECOMPOSE_SECONDS * float(plan.study.dimension) ** 3
    return total


def _site_seconds(query: Query, records: float, d: int) -> float:
    batch = batch_of(query)
    if batch is not None:
        records /= batch.batches
    if isinstance(query, SpanGap | Preimage) and query.pool is not None:
        # Each span of a few records is eliminated, then compared with all records.
        few = min(int(records), query.pool.max_records)
        return SPAN_SECONDS * math.comb(few, query.pool.rank)
    if isinstance(query, CrossNorms | CrossCovariance):
        # Projection, its inverse, and as much again for the operations on each entry of a row.
        products = 4.0 * query.spec.directions.size / d
    else:  # one or two multiplications a number and record, at most those of all products
        products = min(d, 2 * query.length / d)
    return records * d * (TOUCH_SECONDS + MULTIPLY_SECONDS * products)


AROUND, POINTS = 8.0, 7  # largest factor below and above the study's epsilon, which is in the middle


@dataclass(frozen=True, slots=True, kw_only=True)
class EpsilonPrediction:
    """Prediction for an algorithm at one epsilon."""

    epsilon: float
    algorithm: Algorithm
    error: PredictedError
    rounds: int


def epsilons_around(epsilon: float) -> tuple[float, ...]:
    """Return epsilons below and above this one, evenly spaced on a logarithmic scale."""
    steps = [AROUND ** (2 * i / (POINTS - 1) - 1) for i in range(POINTS)]
    return tuple(epsilon * step for step in steps if epsilon * step <= MAX_EPSILON)


def sweep(
    study: Study,
    epsilons: Iterable[float],
    algorithm: Algorithm | None = None,
    spectrum: AssumedSpectrum | Sequence[float] | None = None,
) -> tuple[EpsilonPrediction, ...]:
    """Return the predictions at these epsilons, least first, without those too small for the algorithm. The
    default `algorithm` is the study's, or the choice of `auto` at each epsilon. Costs no privacy. Raises
    RequestError: code `bad-study`: an invalid epsilon, or no error model at any of them."""
    predictions = [
        (epsilon, predict(replace(study, epsilon=epsilon), algorithm, spectrum))
        for epsilon in sorted(epsilons)
    ]
    found = tuple(
        EpsilonPrediction(epsilon=epsilon, algorithm=one.algorithm, error=one.error, rounds=one.rounds)
        for epsilon, one in predictions
        if one.error is not None and one.rounds is not None
    )
    if not found:
        why = next((one.refused for _, one in predictions if one.refused), "it has no error model")
        raise RequestError(Code.BAD_STUDY, f"no error can be predicted at these epsilons: {why}")
    return found
