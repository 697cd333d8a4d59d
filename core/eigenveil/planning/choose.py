"""Which algorithm `auto` means, and whether the answer can be more than noise, from public numbers only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from eigenveil.accounting.digits import rounded_up, shown
from eigenveil.algorithms.gradient.auto import WIDE
from eigenveil.errors import RequestError
from eigenveil.planning.error_models import predicted
from eigenveil.planning.error_models.spectrum import AssumedSpectrum, default_guess
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.price import most_epsilon
from eigenveil.study.study import MAX_RECORDS, Choose, Scaling, Study

# What `auto` chooses from; the first is chosen unless another promises clearly less.
CANDIDATES = (Algorithm.REFINED_COV, Algorithm.REFINED_PCA, Algorithm.GAUSS_COV, Algorithm.DP_PCA)
NARROW_ONLY = (Algorithm.REFINED_COV, Algorithm.GAUSS_COV)
CLEARLY = 0.8
HOPELESS, USABLE = 0.5, 0.35  # predicted sines: more is mostly noise; less can be read
STEPS = 12  # of a search for the numbers that would do


def choose(study: Study) -> Algorithm:
    """The study's algorithm; for `auto`, what does best where nothing is known of the spectrum, unless the
    first releases are to choose; at delta = 0 they have nothing to choose from."""
    if study.algorithm is not Algorithm.AUTO or (study.choose is Choose.DURING and study.delta > 0):
        return study.algorithm
    return better(study, default_guess(study.dimension, study.components))


def better(study: Study, guess: AssumedSpectrum) -> Algorithm:
    """The first of the candidates, unless on a spectrum that is known another promises clearly less.

    A default spectrum says too little to leave the first: on random studies and on clinical tables it was
    hardly ever far from the best, and each of the others was on many (benchmarks/planner.py).
    """
    able = candidates(study)
    if not guess.known or len(able) == 1:
        return able[0]
    errors = {one: _raw(study, one, guess) for one in able}
    other = min(able, key=lambda one: errors[one])
    return other if errors[other] < CLEARLY * errors[able[0]] else able[0]


def candidates(study: Study) -> tuple[Algorithm, ...]:
    """Those that can run: only a matrix can be pure, and one of too many columns is too long to send.

    Of standardised columns a plain matrix is the first: their components lie closer together than a last
    stage can turn them apart, and it was never far from the best (docs/scaling.md).
    """
    if study.delta == 0:
        return (Algorithm.GAUSS_COV,)
    wide = study.dimension > WIDE
    able = [one for one in CANDIDATES if not (wide and one in NARROW_ONLY)]
    standard = study.scaling is Scaling.STANDARD
    return tuple(sorted(able, key=lambda one: standard and one is not Algorithm.GAUSS_COV))


def doubts(study: Study) -> tuple[str, ...]:
    """A sentence if the study is likely to release little but noise.

    It rests on the default spectrum, so it speaks of the first component only and of the clear cases.
    """
    one = replace(study, components=1)
    guess = default_guess(one.dimension, 1)
    if choose(one) not in (Algorithm.AUTO, *CANDIDATES):
        return ()  # the others say themselves what they need
    if _error(one, guess) < HOPELESS:
        return _too_many(study)
    would_do = enough(*remedies(one, guess))
    sentence = (
        f"with about {study.expected_records} records, {study.dimension} columns and epsilon = "
        f"{shown(study.epsilon)} the result is likely to be mostly noise"
    )
    return (f"{sentence}; {would_do} would give a usable first component" if would_do else sentence,)


def _too_many(study: Study) -> tuple[str, ...]:
    """A sentence if the first component is likely to be usable and all together mostly noise."""
    guess = default_guess(study.dimension, study.components)
    if study.components in (1, study.dimension) or _error(study, guess) < HOPELESS:
        return ()
    few = fewer(study, guess)
    if few is None:
        return ()
    sentence = (
        f"with about {study.expected_records} records and epsilon = {shown(study.epsilon)} the "
        f"{study.components} components together may well be mostly noise, unless variances lie far apart; "
        f"components = {few} would be usable"
    )
    return (sentence,)


def fewer(study: Study, guess: AssumedSpectrum) -> int | None:
    """The most components, fewer than the study's, whose predicted error is usable; None if not one is."""
    usable, too_many = 0, study.components
    while too_many - usable > 1:
        middle = (usable + too_many) // 2
        if _error(replace(study, components=middle), guess) <= USABLE:
            usable = middle
        else:
            too_many = middle
    return usable or None


def enough(records: int | None, epsilon: float | None) -> str:
    """The remedies in words; empty if there are none."""
    wanted = f"about {records} records" if records is not None else ""
    louder = f"an epsilon of {shown(epsilon)}" if epsilon is not None else ""
    return " or ".join(word for word in (wanted, louder) if word)


def remedies(study: Study, guess: AssumedSpectrum) -> tuple[int | None, float | None]:
    """The least records, and the least epsilon, by which the predicted error is usable; None if none does."""
    records = least(
        lambda times: _error(
            replace(study, expected_records=math.ceil(study.expected_records * times)), guess
        ),
        MAX_RECORDS / study.expected_records,
    )
    epsilon = least(
        lambda times: _error(replace(study, epsilon=study.epsilon * times), guess),
        most_epsilon(study) / study.epsilon,
    )
    return (
        None if records is None else min(_rounded_up(study.expected_records * records), MAX_RECORDS),
        None if epsilon is None else rounded_up(study.epsilon * epsilon * 1.05, 2),
    )


def least(error: Callable[[float], float], most: float) -> float | None:
    """The least factor from 1 to `most` at which `error`, which falls, is usable."""
    low, high = 0.0, math.log(most)
    if most <= 1 or error(math.exp(high) * (1 - 1e-9)) > USABLE:
        return None
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if error(math.exp(middle)) > USABLE else (low, middle)
    return math.exp(high)


def _rounded_up(value: float) -> int:
    """To two digits, upwards."""
    unit = 10 ** max(math.floor(math.log10(value)) - 1, 0)
    return int(math.ceil(value / unit) * unit)


def _error(study: Study, guess: AssumedSpectrum) -> float:
    return _raw(study, better(study, guess) if study.algorithm is Algorithm.AUTO else study.algorithm, guess)


def _raw(study: Study, algorithm: Algorithm, guess: AssumedSpectrum) -> float:
    try:
        error = predicted(study.running(algorithm), guess)
    except RequestError:  # a question would cost less than the smallest price there is
        return math.inf
    return math.inf if error is None else error.raw
