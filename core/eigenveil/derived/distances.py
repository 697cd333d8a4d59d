"""How far records are from a release's mean, in its standard deviations. The records stay where they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenveil.derived.matrix import Noised
from eigenveil.derived.uncertain import Uncertain
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Distances:
    """Mahalanobis distances. Shape: numbers (n,). As confidential as the rows that they were asked of."""

    columns: tuple[str, ...]
    numbers: Uncertain
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Lists and numbers."""
        return {"columns": list(self.columns), "notes": list(self.notes), **self.numbers.to_dict()}


def mahalanobis(matrix: Noised, rows: FloatArray, level: float) -> Distances:
    """sqrt(z^T A^-1 z) for z = (row - mean) / scale. Shape: rows (n, m), in the columns' own units.

    With p = A^-1 z, the square moves by -p^T dA p and, as the mean moves by e, by -2 p^T e.

    Raises:
        RequestError: rows of another shape, or not finite.
    """
    if rows.ndim != 2 or rows.shape[1] != len(matrix.columns) or not np.isfinite(rows).all():
        raise RequestError(
            Code.BAD_ARGUMENT, f"rows must be finite numbers with {len(matrix.columns)} columns"
        )
    whole = matrix.positive()
    far = (rows - whole.mean) / whole.scale
    legs = np.linalg.solve(whole.values, far.T).T
    values = np.sqrt(np.maximum((far * legs).sum(axis=1), 0.0))
    moved = np.array([float(whole.errors(np.outer(leg, leg))) for leg in legs])
    wandered = 2 * math.sqrt(whole.wandering) * np.linalg.norm(legs, axis=1)
    errors = np.hypot(moved, wandered) / np.maximum(2 * values, 1e-300)
    numbers = Uncertain(values=values, errors=errors, level=level, least=0.0)
    return Distances(columns=whole.columns, numbers=numbers, notes=whole.notes())
