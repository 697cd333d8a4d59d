"""Correlations of columns, alone and with all others held fixed, and how far privacy noise moves them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.derived.matrix import BLURRED, Noised, inverted
from eigenveil.derived.uncertain import Uncertain, noise_note
from eigenveil.numerics.encoding import FloatArray

WIDE = 1.0  # an interval as long as from no correlation to a whole one says nothing
UNKNOWN = 4.0  # a standard error whose interval is all of -1 to 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Correlations:
    """Shape: numbers (m, m), 1 without error on the diagonal. `partial` are those of two columns when all
    others are held fixed. `notes` are what they have to be read with."""

    columns: tuple[str, ...]
    numbers: Uncertain
    partial: bool
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Lists and numbers."""
        return {
            "columns": list(self.columns),
            "partial": self.partial,
            "notes": list(self.notes),
            **self.numbers.to_dict(),
        }


def correlation(matrix: Noised, level: float) -> Correlations:
    """r_ij = a_ij / sqrt(a_ii a_jj), of the released numbers as they are.

    dr_ij = da_ij / sqrt(a_ii a_jj) - r_ij (da_ii / a_ii + da_jj / a_jj) / 2, of three independent parts.
    A variance below its noise is taken as that, and no correlation is beyond 1.
    """
    entries = matrix.entries
    variances = np.maximum(np.diag(matrix.values), matrix.noise.off_diagonal)
    sizes = np.sqrt(variances)
    values = np.clip(matrix.values / np.outer(sizes, sizes), -1.0, 1.0)
    shares = (np.diag(entries) / variances) ** 2
    own = values**2 / 4 * (shares[:, None] + shares)
    errors = np.sqrt(entries**2 / np.outer(variances, variances) + own)
    return _told(matrix, values, errors, level, blurred=matrix.blurred, partial=False)


def partial_correlation(matrix: Noised, level: float) -> Correlations:
    """rho_ij = -p_ij / sqrt(p_ii p_jj) for the inverse P of the mended matrix.

    dP = -P dA P: with p_i the columns of P divided by sqrt(p_ii), d rho_ij = p_i^T dA p_j
    + rho_ij (p_i^T dA p_i + p_j^T dA p_j) / 2.
    """
    whole = matrix.positive()
    inverse = inverted(whole.values)
    sizes = np.sqrt(np.diag(inverse))
    values = -inverse / np.outer(sizes, sizes)
    legs = inverse / sizes[:, None]
    squares = legs[:, :, None] * legs[:, None, :]
    errors = np.zeros_like(values)
    for i, leg in enumerate(legs):
        cross = leg[None, :, None] * legs[:, None, :]
        forms = (cross + cross.transpose(0, 2, 1)) / 2
        forms += values[i][:, None, None] / 2 * (squares[i] + squares)
        errors[i] = whole.errors(forms)
    left = 1 / np.diag(inverse)  # of a column's variance, when the others are held fixed
    blurred = matrix.blurred | (left < BLURRED * matrix.noise.diagonal)
    return _told(whole, values, errors, level, blurred=blurred, partial=True)


def _told(
    matrix: Noised,
    values: FloatArray,
    errors: FloatArray,
    level: float,
    *,
    blurred: NDArray[np.bool_],
    partial: bool,
) -> Correlations:
    """Of a `blurred` column, whose variance noise may make up, any correlation is possible."""
    errors[blurred, :] = errors[:, blurred] = UNKNOWN
    at = np.diag_indices(len(values))
    values[at], errors[at] = 1.0, 0.0
    numbers = Uncertain(values=values, errors=errors, level=level, least=-1.0, most=1.0)
    pairs = np.triu_indices(len(values), 1)
    apart = Uncertain(values=values[pairs], errors=errors[pairs], level=level)
    return Correlations(
        columns=matrix.columns,
        numbers=numbers,
        partial=partial,
        notes=(*noise_note("correlations", apart, WIDE), *matrix.notes()),
    )
