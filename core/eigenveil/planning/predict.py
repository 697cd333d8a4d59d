"""What each algorithm would cost a study and how far off its answer would be, before anything is asked.

Rounds and bytes follow from the plan. Errors follow from laws that were fitted to simulations, on an assumed
spectrum; times from constants measured on one machine: both are estimates and say so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from eigenveil.algorithms import ALGORITHMS
from eigenveil.errors import Code, RequestError
from eigenveil.planning.choose import choose
from eigenveil.planning.dry_run import courses
from eigenveil.planning.error_models import law
from eigenveil.planning.error_models.rotation import PredictedError
from eigenveil.planning.error_models.spectrum import AssumedSpectrum, default_guess, stated_guess
from eigenveil.planning.resolve import make_plan
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import CrossCovariance, CrossNorms, Gram, Preimage, Query, SpanGap, batch_of, released
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Study

# Measured by `python -m benchmarks.planner --times`, on one core of a small server.
ROUND_SECONDS = 0.025  # a question, its answers and its release between processes on one machine
DRAW_SECONDS = 60e-9  # a number of noise
MULTIPLY_SECONDS = 0.04e-9  # a multiplication of a matrix product
SPAN_SECONDS = 200e-6  # the span of a few records, and all others compared with it
TOUCH_SECONDS = 1.5e-9  # an entry of the records, read and shifted
DECOMPOSE_SECONDS = 2e-9  # times d^3: the eigenvectors of a released matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One algorithm, for one study. `refused` says why it does not apply; then all else is None.

    `error` is None where no law is known. `bytes_per_site` is what every site sends; `seconds` is an estimate
    for sites that share the expected records evenly. Where the first releases choose, both are the most that
    any way takes, and so are `rounds`.
    """

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
        """The predicted error to first order; without a law, infinite."""
        return math.inf if self.error is None else self.error.raw


def predict(
    study: Study,
    algorithm: Algorithm | str | None = None,
    spectrum: AssumedSpectrum | Sequence[float] | None = None,
) -> Prediction:
    """What an algorithm would give this study, from public numbers alone: nothing is asked, nothing spent.

    Without `algorithm` it is the study's, or what `auto` means. `spectrum` is what is assumed of the records:
    variances, largest first, in any unit; without it, a default. An algorithm that cannot run this study is
    no error: `refused` says why. Source: laws fitted to simulations.

    Raises:
        RequestError: code `bad-argument`: no algorithm has that name, or the spectrum cannot be one of so
            many columns.

    >>> from eigenveil import Algorithm, Column, Federation, Study, predict
    >>> columns = tuple(Column(name=name, unit="mm", lower=-10, upper=10) for name in "abc")
    >>> study = Study(name="pilot", columns=columns, epsilon=2.0, delta=1e-6, components=1,
    ...               federation=Federation(sites=("north", "south")))
    >>> found = predict(study, Algorithm.GAUSS_COV, spectrum=[5, 1, 1])
    >>> found.rounds, found.bytes_per_site, found.error.median < 0.05
    (7, 1064, True)
    """
    algorithm, guess = _named(algorithm) or choose(study), assumed(study, spectrum)
    try:
        plan = make_plan(study.running(algorithm))
        error = law(plan, guess)
        if algorithm.properties.single_records:
            return _one_by_one(algorithm, study, error)
        ways = courses(plan)
    except RequestError as problem:
        return Prediction(algorithm=algorithm, refused=str(problem))
    return Prediction(
        algorithm=algorithm,
        error=error,
        rounds=max(map(len, ways)),
        bytes_per_site=max(sum(8 * asked.query.length for asked in way) for way in ways),
        seconds=max(seconds(plan, way) for way in ways),
    )


def _named(algorithm: Algorithm | str | None) -> Algorithm | None:
    try:
        return None if algorithm is None else Algorithm(algorithm)
    except ValueError as problem:
        known = ", ".join(one.value for one in Algorithm)
        sentence = f"algorithm = {algorithm!r} is unknown; choose one of: {known}"
        raise RequestError(Code.BAD_ARGUMENT, sentence) from problem


def assumed(study: Study, spectrum: AssumedSpectrum | Sequence[float] | None) -> AssumedSpectrum:
    """What is assumed of the records: as stated, or else the default."""
    if spectrum is None:
        return default_guess(study.dimension, study.components)
    if isinstance(spectrum, AssumedSpectrum):
        return spectrum
    return stated_guess(list(spectrum), study.dimension, study.components)


def _one_by_one(algorithm: Algorithm, study: Study, error: PredictedError | None) -> Prediction:
    """Every record is a round: to rehearse them all would take minutes."""
    rounds = study.expected_records
    return Prediction(
        algorithm=algorithm,
        error=error,
        rounds=rounds,
        bytes_per_site=8 * study.dimension * study.components * rounds,
        seconds=ROUND_SECONDS * rounds,
    )


def predict_all(study: Study, guess: AssumedSpectrum) -> tuple[Prediction, ...]:
    """Every algorithm that there is, the least predicted error first, what does not apply last."""
    found = [predict(study, algorithm, guess) for algorithm in ALGORITHMS]
    return tuple(sorted(found, key=lambda one: (one.refused is not None, one.error is None, one.raw)))


def seconds(plan: Plan, queries: Sequence[RoundQuery]) -> float:
    """About how long a study takes between processes on one machine, its sites working side by side."""
    records = plan.study.expected_records / len(plan.study.federation.sites)
    total: float = ROUND_SECONDS * len(queries)
    for asked in queries:
        total += _site_seconds(asked.query, records, plan.study.dimension)
        total += DRAW_SECONDS * released(asked.query)
        if isinstance(asked.query, Gram):
            total += DECOMPOSE_SECONDS * float(plan.study.dimension) ** 3
    return total


def _site_seconds(query: Query, records: float, d: int) -> float:
    batch = batch_of(query)
    if batch is not None:
        records /= batch.batches
    if isinstance(query, SpanGap | Preimage) and query.pool is not None:
        # Every span of a few records: eliminated, then all records are compared with it.
        few = min(int(records), query.pool.most)
        return SPAN_SECONDS * math.comb(few, query.pool.rank)
    if isinstance(query, CrossNorms | CrossCovariance):
        # There along every direction, back, and as much again for what is done to each entry of a row.
        products = 4.0 * query.spec.directions.size / d
    else:  # a number of the answer takes a multiplication or two a record; no answer more than all products
        products = min(d, 2 * query.length / d)
    return records * d * (TOUCH_SECONDS + MULTIPLY_SECONDS * products)
