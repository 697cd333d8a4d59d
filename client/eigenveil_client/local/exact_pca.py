"""The exact answer, for simulations and demonstrations on records that one may look at. Not private."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, sin_angle
from eigenveil.study.grid import GridRows, S
from eigenveil.study.study import Study


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Truth:
    """Exact principal components on the study's grid. Shape: components (k, d)."""

    components: FloatArray

    def sin_angle(self, components: FloatArray) -> float:
        """Sine of the largest principal angle to released components. Shape: (k, d)."""
        return sin_angle(self.components, components)


def exact(rows: GridRows, study: Study) -> Truth:
    """The components that no noise and no clipping would give.

    Shape: rows (n, d).
    """
    x = rows / S
    if study.centring:
        x = x - x.mean(axis=0)
    covariance = x.T @ x / max(1, len(x))
    _, vectors = eigenpairs(np.asarray(covariance))
    return Truth(components=vectors[:, : study.components].T)
