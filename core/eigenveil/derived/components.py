"""Principal components of a released covariance, in any number and units, and subspace angles."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from eigenveil.algorithms.shared.stated_error import typical_sine
from eigenveil.derived.clipping import IntervalTrust
from eigenveil.derived.covariance import LEVEL, IntervalEstimate, NoisedCovariance, ScaledCovariance, Units
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs
from eigenveil.planning.choose import USABLE
from eigenveil.protocol.estimate import PlainResult

NOISY_DIRECTIONS = (
    "the directions are mostly noise (predicted sine {sine:.2g}): fewer columns, another number of "
    "components, more records or a larger epsilon would help"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Components(PlainResult):
    """Principal components with errors; `sine` predicts the largest angle to the records' own components.
    Shape: loadings (k, m) with orthonormal rows, variances and ratio (k,), descending."""

    columns: tuple[str, ...]
    units: Units
    loadings: IntervalEstimate
    variances: IntervalEstimate
    ratio: FloatArray
    sine: float
    intervals: IntervalTrust
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Angles(PlainResult):
    """Principal angles between two subspaces in degrees (k,), descending. `noise_degrees` is the largest
    angle that noise alone explains between two releases of the same records."""

    degrees: FloatArray
    noise_degrees: float
    intervals: IntervalTrust
    notes: tuple[str, ...]


def pca(matrix: NoisedCovariance, k: int, units: Units, level: float) -> Components:
    """Return the first k components of a covariance in these units. Raises RequestError: there are fewer than
    k columns."""
    m = len(matrix.columns)
    if not 1 <= k <= m:
        raise RequestError(Code.BAD_ARGUMENT, f"k must lie between 1 and the {m} columns, got {k}")
    scaled = ScaledCovariance.of(matrix, units)
    values, vectors = eigenpairs(scaled.values)
    axes = zip(*(_noisy_axis(scaled, values, vectors, i) for i in range(k)), strict=True)
    variances, variance_error, errors, tilt_angles = map(np.array, axes)
    sine = min(1.0, typical_sine(tilt_angles[:, k:] ** 2)) if k < m else 0.0
    return Components(
        columns=matrix.columns,
        units=units,
        loadings=IntervalEstimate(values=vectors[:, :k].T, errors=errors, level=level, least=-1.0, most=1.0),
        variances=IntervalEstimate(values=variances, errors=variance_error, level=level, least=0.0),
        ratio=variances / max(float(values.sum()), float(variances.sum()), 1e-300),
        sine=sine,
        intervals=matrix.intervals,
        notes=((NOISY_DIRECTIONS.format(sine=sine),) if sine > USABLE else ()) + matrix.notes(),
    )


def _noisy_axis(
    scaled: ScaledCovariance, values: FloatArray, vectors: FloatArray, i: int
) -> tuple[float, float, FloatArray, FloatArray]:
    """Return the variance of component i corrected for noise, its error, those of the loadings (m,), and the
    sd of its angle to each other axis (m,). With dl_i = v_i^T dM v_i and dv_i = sum_j v_j (v_j^T dM v_i) /
    (l_i - l_j), noise separates eigenvalues, to second order by the sum of sd(v_j^T dM v_i)^2 / (l_i - l_j).
    That sum is subtracted, and counts as an error too, because it is an estimate. A gap below the noise is
    set to it."""
    axis = vectors[:, i]
    derivatives = scaled.derivatives(vectors.T, np.broadcast_to(axis, vectors.shape))
    moved, known = (
        one.errors(derivatives) for one in (scaled.matrix.noise_only, replace(scaled.matrix, loss=None))
    )
    gaps = values[i] - values
    gaps = np.where(gaps < 0, -1.0, 1.0) * np.maximum(np.abs(gaps), known)
    direct_error = float(scaled.matrix.errors(derivatives[i]))
    inverse = 1 / gaps
    inverse[i] = 0.0
    tilt_angles, repulsion = known * inverse, float((moved**2 * inverse).sum())
    axis_derivatives = np.tensordot(vectors * inverse, derivatives, axes=1)
    variance, error = max(float(values[i]) - repulsion, 0.0), math.hypot(direct_error, repulsion)
    return variance, error, scaled.matrix.errors(axis_derivatives), np.abs(tilt_angles)


def subspace_angle(one: NoisedCovariance, other: NoisedCovariance, k: int, units: Units) -> Angles:
    """Return the principal angles between the first k components of two releases of the same columns. Raises
    RequestError: the columns differ, or in released units the scales differ."""
    if set(one.columns) != set(other.columns):
        raise RequestError(Code.BAD_ARGUMENT, "the two releases have different columns")
    other = other.of(one.columns)
    if units is Units.RELEASED and not np.allclose(one.scale, other.scale, rtol=1e-9, atol=0):
        raise RequestError(
            Code.BAD_ARGUMENT,
            'the two releases have different scales: compare them in units "original" or "standard"',
        )
    left, right = (pca(matrix, k, units, LEVEL) for matrix in (one, other))
    cosines = np.linalg.svd(left.loadings.values @ right.loadings.values.T, compute_uv=False)
    degrees = np.degrees(np.arccos(np.clip(cosines[::-1], 0.0, 1.0)))
    noise_angle = math.degrees(math.asin(min(1.0, math.hypot(left.sine, right.sine))))
    notes = tuple(dict.fromkeys((*left.notes, *right.notes)))
    if degrees[0] <= noise_angle:
        notes = ("the two differ by no more than noise alone explains", *notes)
    unknown = IntervalTrust.UNKNOWN in (left.intervals, right.intervals)
    return Angles(
        degrees=degrees,
        noise_degrees=noise_angle,
        intervals=IntervalTrust.UNKNOWN if unknown else IntervalTrust.TRUSTED,
        notes=notes,
    )
