"""What the numbers of a result say against it: sentences that every result carries among its warnings."""

from __future__ import annotations

from eigenveil.algorithms import Estimate
from eigenveil.planner import USABLE
from eigenveil.study import Scaling, Study


def most_variance(study: Study) -> float:
    """The most that the public bounds let all columns vary together: the sum of their squared half ranges, in
    grid units scaled to [-1, 1]."""
    half = [column.half_range for column in study.columns]
    if study.scaling is Scaling.BOUNDS:
        return float(len(half))
    return sum((one / max(half)) ** 2 for one in half)


def caveats(study: Study, estimate: Estimate, square: float = 1.0) -> tuple[str, ...]:
    """Sentences if the directions are mostly noise, or if a variance is more than there can be.

    `square` is a variance of 1 in the units that the result is written in. It rests on releases and public
    numbers only [P7].
    """
    return (*_directions(estimate), *_variances(study, estimate, square))


def _directions(estimate: Estimate) -> tuple[str, ...]:
    asked = estimate.records > 0  # what asked nothing says so itself
    if not asked or not len(estimate.components) or (estimate.sin_error or 0.0) <= USABLE:
        return ()
    sentence = (
        f"the directions are mostly noise (predicted sine {estimate.sin_error:.2g}): ask for more records, a "
        "larger epsilon, or another number of components"
    )
    return (sentence,)


def _variances(study: Study, estimate: Estimate, square: float) -> tuple[str, ...]:
    most, largest = most_variance(study), max(estimate.explained_variance, default=0.0)
    if largest <= most:
        return ()
    sentence = (
        f"a variance of {largest * square:.4g} is more than the columns' bounds allow, "
        f"{most * square:.4g} in all: noise makes up the rest"
    )
    return (sentence,)
