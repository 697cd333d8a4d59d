"""The exact answer, for simulations and demonstrations on records that one may look at. Not private."""

from __future__ import annotations

import numpy as np

from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs
from eigenveil.study.grid import GridRows
from eigenveil.study.study import Scaling, Study


def analysed(rows: GridRows, study: Study) -> FloatArray:
    """The records as the study compares them: about their mean where it centres, and each column in parts of
    its own standard deviation where it standardises. Shape: (n, d) -> (n, d)."""
    x: FloatArray = rows / study.grid_steps
    if study.centring and len(x):
        x = x - x.mean(axis=0)
    if study.scaling is Scaling.STANDARD:
        spread = np.sqrt((x**2).mean(axis=0)) if len(x) else np.ones(rows.shape[1])
        x = x / np.where(spread > 0, spread, 1.0)
    return x


def exact(rows: GridRows, study: Study) -> FloatArray:
    """The components on the study's grid that no noise and no clipping would give.

    Shape: rows (n, d) -> (k, d).
    """
    x = analysed(rows, study)
    covariance = x.T @ x / max(1, len(x))
    _, vectors = eigenpairs(np.asarray(covariance))
    return vectors[:, : study.components].T
