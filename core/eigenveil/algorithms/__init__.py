"""The public side: algorithms as generators of priced questions (see `estimate.Steps`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from eigenveil.algorithms.dp_pca import dp_pca
from eigenveil.algorithms.estimate import Estimate, Steps
from eigenveil.algorithms.gauss_cov import gauss_cov
from eigenveil.study import Algorithm

if TYPE_CHECKING:
    from eigenveil.plan import Plan

ALGORITHMS: dict[Algorithm, Callable[[Plan], Steps]] = {
    Algorithm.GAUSS_COV: gauss_cov,
    Algorithm.DP_PCA: dp_pca,
}

__all__ = ["ALGORITHMS", "Estimate", "Steps"]
