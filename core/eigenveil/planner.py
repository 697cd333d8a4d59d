"""Which algorithm `auto` means, from public numbers only."""

from __future__ import annotations

from eigenveil.study import Algorithm, Study


def choose(study: Study) -> Algorithm:
    """The study's algorithm, or the better of the two for its public shape."""
    if study.algorithm is not Algorithm.AUTO:
        return study.algorithm
    return Algorithm.GAUSS_COV if study.dimension <= 100 else Algorithm.DP_PCA
