"""The exact answer, for simulations and demonstrations on records that one may look at. Not private."""

from __future__ import annotations

import numpy as np

from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs
from eigenveil.study.grid import GridRows, S
from eigenveil.study.study import Study


def exact(rows: GridRows, study: Study) -> FloatArray:
    """The components on the study's grid that no noise and no clipping would give.

    Shape: rows (n, d) -> (k, d).
    """
    x = rows / S
    if study.centring:
        x = x - x.mean(axis=0)
    covariance = x.T @ x / max(1, len(x))
    _, vectors = eigenpairs(np.asarray(covariance))
    return vectors[:, : study.components].T
