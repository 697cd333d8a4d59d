"""A covariance in the units that a question is asked in, and how it moves with the released one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from eigenveil.derived.matrix import Noised
from eigenveil.numerics.encoding import FloatArray


class Units(Enum):
    """`released`: columns divided by the release's `scale`; `own`: in their own units; `standard`: divided by
    their standard deviations, which makes a covariance a correlation."""

    RELEASED = "released"
    OWN = "own"
    STANDARD = "standard"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frame:
    """T A T for the released A and a diagonal T, which follows A where columns are standardised.

    Shape: weights (m,), the diagonal of T; values (m, m).
    """

    matrix: Noised
    weights: FloatArray
    standard: bool

    @classmethod
    def of(cls, matrix: Noised, units: Units) -> Frame:
        """`matrix` in these units."""
        match units:
            case Units.RELEASED:
                weights = 1 / matrix.divided
            case Units.OWN:
                weights = matrix.scale
            case Units.STANDARD:
                least = matrix.noise.off_diagonal  # a variance below that is noise
                weights = 1 / np.sqrt(np.maximum(np.diag(matrix.values), least))
        return cls(matrix=matrix, weights=weights, standard=units is Units.STANDARD)

    @property
    def values(self) -> FloatArray:
        """The covariance in these units."""
        return np.asarray(self.weights[:, None] * self.matrix.values * self.weights)

    def forms(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """The derivative by A of left_i^T (T A T) right_i. Shape: (b, m), (b, m) -> (b, m, m).

        Where T = diag(A)^(-1/2), a diagonal entry that grows by a part e of itself takes e / 2 of its row and
        of its column: - sum_i (x_i (M y)_i + (M x)_i y_i) / (2 A_ii) beside the rest.
        """
        one, other = left * self.weights, right * self.weights
        out = np.asarray(one[:, :, None] * other[:, None, :])
        out = (out + out.transpose(0, 2, 1)) / 2
        if self.standard:
            moved = left * (right @ self.values) + (left @ self.values) * right
            at = np.arange(len(self.weights))
            out[:, at, at] -= moved * self.weights**2 / 2
        return out
