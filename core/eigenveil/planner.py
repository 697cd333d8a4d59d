"""Which algorithm `auto` means, and whether the answer can be more than noise, from public numbers only."""

from __future__ import annotations

import math

from eigenveil.accounting import MICRO, micro_rho_for
from eigenveil.study import Algorithm, Study

# A covariance matrix of more columns is d^2 / 2 > 500,000 numbers a site; of fewer than this, it is
# the safer choice for every n; between them it wins only where the data barely rise above the noise.
WIDE, NARROW = 1000, 64
WEAK, HOPELESS = 100.0, 20.0
PURE = 1e-12  # the delta at which a pure study is compared with others


def signal(study: Study) -> float:
    """mu n / sqrt(d k): how far the expected records stand above the noise."""
    mu = math.sqrt(2 * micro_rho_for(study.epsilon, study.delta or PURE) / MICRO)
    return mu * study.expected_records / math.sqrt(study.dimension * study.components)


def choose(study: Study) -> Algorithm:
    """The study's algorithm, or for `auto` the better of the two for its public shape."""
    if study.algorithm is not Algorithm.AUTO:
        return study.algorithm
    if study.delta == 0:
        return Algorithm.GAUSS_COV  # the one of the two that can be pure
    if study.dimension > WIDE:
        return Algorithm.DP_PCA
    weak = signal(study) < WEAK
    return Algorithm.GAUSS_COV if study.dimension <= NARROW or weak else Algorithm.DP_PCA


def doubts(study: Study) -> tuple[str, ...]:
    """A sentence if the study is likely to release little but noise."""
    strength = signal(study)
    if strength >= HOPELESS:
        return ()
    needed = math.ceil(study.expected_records * HOPELESS / strength)
    sentence = (
        f"with about {study.expected_records} records, {study.dimension} columns and epsilon = "
        f"{study.epsilon:g} the result is likely to be mostly noise; about {needed} records, or an "
        "epsilon higher in proportion, would give a usable first component"
    )
    return (sentence,)
