"""Which algorithm `auto` means, and whether the answer can be more than noise, from public numbers only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from eigenveil.accounting.zcdp import MAX_EPSILON
from eigenveil.algorithms.gradient.auto import WIDE
from eigenveil.errors import RequestError
from eigenveil.planning.error_models import predicted
from eigenveil.planning.error_models.spectrum import AssumedSpectrum, default_guess
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import MAX_RECORDS, Choose, Study

# What `auto` chooses from, the simplest first: a later one must promise clearly less.
CANDIDATES = (Algorithm.GAUSS_COV, Algorithm.DP_PCA)
CLEARLY = 0.95
HOPELESS, USABLE = 0.5, 0.35  # predicted sines: more is mostly noise; less can be read
STEPS = 12  # of a search for the numbers that would do


def choose(study: Study) -> Algorithm:
    """The study's algorithm, or for `auto` the better of the candidates on the default spectrum, unless the
    first releases are to choose; at delta = 0 they have nothing to choose from."""
    if study.algorithm is not Algorithm.AUTO or (study.choose is Choose.DURING and study.delta > 0):
        return study.algorithm
    return better(study, default_guess(study.dimension, study.components))


def better(study: Study, guess: AssumedSpectrum) -> Algorithm:
    if study.delta == 0:
        return Algorithm.GAUSS_COV  # the one of the two that can be pure
    if study.dimension > WIDE:
        return Algorithm.DP_PCA
    plain, other = (_raw(study, algorithm, guess) for algorithm in CANDIDATES)
    return CANDIDATES[1] if other < CLEARLY * plain else CANDIDATES[0]


def doubts(study: Study) -> tuple[str, ...]:
    """A sentence if the study is likely to release little but noise.

    It rests on the default spectrum, so it speaks of the first component only and of the clear cases.
    """
    one = replace(study, components=1)
    guess = default_guess(one.dimension, 1)
    if choose(one) not in (Algorithm.AUTO, *CANDIDATES) or _first_error(one, guess) < HOPELESS:
        return ()  # the others say themselves what they need
    would_do = enough(*remedies(one, guess))
    sentence = (
        f"with about {study.expected_records} records, {study.dimension} columns and epsilon = "
        f"{study.epsilon:g} the result is likely to be mostly noise"
    )
    return (f"{sentence}; {would_do} would give a usable first component" if would_do else sentence,)


def enough(records: int | None, epsilon: float | None) -> str:
    """The remedies in words; empty if there are none."""
    wanted = f"about {records} records" if records is not None else ""
    louder = f"an epsilon of {epsilon:g}" if epsilon is not None else ""
    return " or ".join(word for word in (wanted, louder) if word)


def remedies(study: Study, guess: AssumedSpectrum) -> tuple[int | None, float | None]:
    """The least records, and the least epsilon, by which the predicted error is usable; None if none does."""
    records = least(
        lambda times: _first_error(
            replace(study, expected_records=math.ceil(study.expected_records * times)), guess
        ),
        MAX_RECORDS / study.expected_records,
    )
    epsilon = least(
        lambda times: _first_error(replace(study, epsilon=study.epsilon * times), guess),
        MAX_EPSILON / study.epsilon,
    )
    return (
        None if records is None else min(_rounded_up(study.expected_records * records), MAX_RECORDS),
        None if epsilon is None else float(f"{study.epsilon * epsilon * 1.05:.2g}"),
    )


def least(error: Callable[[float], float], most: float) -> float | None:
    """The least factor from 1 to `most` at which `error`, which falls, is usable."""
    low, high = 0.0, math.log(most)
    if error(math.exp(high) * (1 - 1e-9)) > USABLE:
        return None
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if error(math.exp(middle)) > USABLE else (low, middle)
    return math.exp(high)


def _rounded_up(value: float) -> int:
    """To two digits, upwards."""
    unit = 10 ** max(math.floor(math.log10(value)) - 1, 0)
    return int(math.ceil(value / unit) * unit)


def _first_error(study: Study, guess: AssumedSpectrum) -> float:
    return _raw(study, better(study, guess) if study.algorithm is Algorithm.AUTO else study.algorithm, guess)


def _raw(study: Study, algorithm: Algorithm, guess: AssumedSpectrum) -> float:
    try:
        error = predicted(study.running(algorithm), guess)
    except RequestError:  # a question would cost less than the smallest price there is
        return math.inf
    return math.inf if error is None else error.raw
