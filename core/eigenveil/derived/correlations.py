"""Correlations and partial correlations of columns, with their errors from the privacy noise. Mahalanobis
distances of local records from a release's mean. The records are not sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.derived.clipping import IntervalTrust
from eigenveil.derived.covariance import DOMINATED, IntervalEstimate, NoisedCovariance, inverse_of, noise_note
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.protocol.estimate import PlainResult
from eigenveil.study.checks import plain_fields

LONG_INTERVAL = 1.0  # an interval as long as from no correlation to a perfect one is uninformative
UNKNOWN_ERROR = 4.0  # standard error whose interval is all of -1 to 1


class PlainNumbers(PlainResult):
    """Dataclass whose `numbers` are written on its own level."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return lists and numbers."""
        data = plain_fields(self)
        numbers: dict[str, Any] = data.pop("numbers")
        return data | numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Correlations(PlainNumbers):
    """Correlations with errors; if `partial`, with all other columns held fixed. `notes` are caveats. Shape:
    numbers (m, m), 1 without error on the diagonal."""

    columns: tuple[str, ...]
    numbers: IntervalEstimate
    partial: bool
    intervals: IntervalTrust
    notes: tuple[str, ...]


def correlation(matrix: NoisedCovariance, level: float) -> Correlations:
    """Return correlations r_ij = a_ij / sqrt(a_ii a_jj) of the released numbers. A variance below its noise
    is set to it, and correlations are clipped to [-1, 1]."""
    variances = np.maximum(np.diag(matrix.values), matrix.noise.off_diagonal)
    sizes = np.sqrt(variances)
    values = np.clip(matrix.values / np.outer(sizes, sizes), -1.0, 1.0)
    errors, noise = (_errors(one, values, variances) for one in (matrix, matrix.noise_only))
    dominated = matrix.noise_dominated
    return _correlations(matrix, values, errors, noise, level, noise_dominated=dominated, partial=False)


def _errors(matrix: NoisedCovariance, values: FloatArray, variances: FloatArray) -> FloatArray:
    """Return the errors of correlations: dr_ij = da_ij / sqrt(a_ii a_jj) - r_ij (da_ii / a_ii + da_jj / a_jj)
    / 2, of three independent parts. Shape: values (m, m), variances (m,) -> (m, m)."""
    entry_errors = matrix.entry_errors
    shares = (np.diag(entry_errors) / variances) ** 2
    variance_terms = values**2 / 4 * (shares[:, None] + shares)
    return np.asarray(np.sqrt(entry_errors**2 / np.outer(variances, variances) + variance_terms))


def partial_correlation(matrix: NoisedCovariance, level: float) -> Correlations:
    """Return partial correlations rho_ij = -p_ij / sqrt(p_ii p_jj) for the inverse P of the repaired
    matrix."""
    repaired = matrix.positive_definite()
    inverse = inverse_of(repaired.values)
    sizes = np.sqrt(np.diag(inverse))
    values = -inverse / np.outer(sizes, sizes)
    errors, noise = (_partial_errors(one, inverse, values) for one in (repaired, repaired.noise_only))
    partial_variances = 1 / np.diag(inverse)  # a column's variance with the others held fixed
    dominated = matrix.noise_dominated | (partial_variances < DOMINATED * matrix.noise.diagonal)
    return _correlations(repaired, values, errors, noise, level, noise_dominated=dominated, partial=True)


def _partial_errors(matrix: NoisedCovariance, inverse: FloatArray, values: FloatArray) -> FloatArray:
    """Return the errors of partial correlations. dP = -P dA P: with p_i the columns of P divided by
    sqrt(p_ii), d rho_ij = p_i^T dA p_j + rho_ij (p_i^T dA p_i + p_j^T dA p_j) / 2. Shape: (m, m)."""
    coefficients = inverse / np.sqrt(np.diag(inverse))[:, None]
    squares = coefficients[:, :, None] * coefficients[:, None, :]
    errors = np.zeros_like(values)
    for i, coefficient_row in enumerate(coefficients):
        cross = coefficient_row[None, :, None] * coefficients[:, None, :]
        derivatives = (cross + cross.transpose(0, 2, 1)) / 2
        derivatives += values[i][:, None, None] / 2 * (squares[i] + squares)
        errors[i] = matrix.errors(derivatives)
    return errors


def _correlations(
    matrix: NoisedCovariance,
    values: FloatArray,
    errors: FloatArray,
    noise: FloatArray,
    level: float,
    *,
    noise_dominated: NDArray[np.bool_],
    partial: bool,
) -> Correlations:
    """Return correlations; those of a column whose variance noise may dominate are marked as unknown."""
    for one in (errors, noise):
        one[noise_dominated, :] = one[:, noise_dominated] = UNKNOWN_ERROR
        np.fill_diagonal(one, 0.0)
    np.fill_diagonal(values, 1.0)
    numbers = IntervalEstimate(values=values, errors=errors, level=level, least=-1.0, most=1.0, noise=noise)
    pairs = np.triu_indices(len(values), 1)
    upper_pairs = IntervalEstimate(values=values[pairs], errors=noise[pairs], level=level)
    return Correlations(
        columns=matrix.columns,
        numbers=numbers,
        partial=partial,
        intervals=matrix.intervals,
        notes=(*noise_note("correlations", upper_pairs, LONG_INTERVAL), *matrix.notes()),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Distances(PlainNumbers):
    """Mahalanobis distances, as confidential as their rows. Shape: numbers (n,)."""

    columns: tuple[str, ...]
    numbers: IntervalEstimate
    intervals: IntervalTrust
    notes: tuple[str, ...]


def mahalanobis(matrix: NoisedCovariance, rows: FloatArray, level: float) -> Distances:
    """Return sqrt(z^T A^-1 z) for z = (row - mean) / scale. Shape: rows (n, m), in the columns' own units.
    With p = A^-1 z, the square changes by -p^T dA p and, as the mean changes by e, by -2 p^T e. Raises
    RequestError: rows of another shape, or not finite."""
    if rows.ndim != 2 or rows.shape[1] != len(matrix.columns) or not np.isfinite(rows).all():
        raise RequestError(
            Code.BAD_ARGUMENT, f"rows must be finite numbers with {len(matrix.columns)} columns"
        )
    repaired = matrix.positive_definite()
    centred = (rows - repaired.mean) / repaired.scale
    coefficients = np.linalg.solve(repaired.values, centred.T).T
    values = np.sqrt(np.maximum((centred * coefficients).sum(axis=1), 0.0))
    matrix_errors = np.array([float(repaired.errors(np.outer(row, row))) for row in coefficients])
    mean_errors = 2 * np.linalg.norm(repaired.mean_errors * coefficients, axis=1)
    errors = np.hypot(matrix_errors, mean_errors) / np.maximum(2 * values, 1e-300)
    numbers = IntervalEstimate(values=values, errors=errors, level=level, least=0.0)
    return Distances(
        columns=repaired.columns, numbers=numbers, intervals=matrix.intervals, notes=repaired.notes()
    )
