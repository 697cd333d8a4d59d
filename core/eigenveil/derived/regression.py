"""Linear regression from a released covariance, with privacy and sampling errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eigenveil.derived.clipping import IntervalTrust
from eigenveil.derived.covariance import IntervalEstimate, NoisedCovariance, inverse_of, noise_note
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs
from eigenveil.protocol.estimate import PlainResult

LONG_STANDARDISED_INTERVAL = 1.0  # long interval of a standardised coefficient


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Regression(PlainResult):
    """Coefficients of a linear regression: units of the target per unit of a column, all others held fixed.

    `privacy` has the error from the noise, about the exact answer on the records. `sampling` has the sampling
    error, by the classical formula from the residual variance and the noised count. `both` combines them,
    about the population. `ridge` was added to the variance of each column, relative to it.

    Shape: each of the three (p,); intercept and r_squared (), with privacy errors."""

    target: str
    on: tuple[str, ...]
    privacy: IntervalEstimate
    sampling: IntervalEstimate
    both: IntervalEstimate
    intercept: IntervalEstimate
    r_squared: IntervalEstimate
    residual_sd: float
    records: float
    ridge: float
    intervals: IntervalTrust
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fit:
    """Fit b = (A_xx + ridge diag A_xx)^-1 A_xy with its derivatives. The target is column 0 of A. Shape:
    slopes (p,), inverse (p, p), derivatives (p, p + 1, p + 1), contrast (p + 1,): 1 and then -b."""

    matrix: NoisedCovariance
    slopes: FloatArray
    inverse: FloatArray
    derivatives: FloatArray
    contrast: FloatArray

    @property
    def residual(self) -> float:
        """Residual variance of the target, in the units of A."""
        return max(float(self.contrast @ self.matrix.values @ self.contrast), 0.0)


def regress(
    matrix: NoisedCovariance, target: str, on: Sequence[str], ridge: float, level: float
) -> Regression:
    """Return the least squares of `target` on `on`. Raises RequestError: no column, an unknown one or the
    target among them; a ridge below 0."""
    if isinstance(on, str):
        raise RequestError(Code.BAD_ARGUMENT, f'on must be a list of names, such as on=["{on}"]')
    if not on or not math.isfinite(ridge) or ridge < 0:
        raise RequestError(
            Code.BAD_ARGUMENT, "a regression needs one column or more, and a ridge of 0 or above"
        )
    fit = _fit(matrix.of([target, *on]).positive_definite(), ridge)
    repaired = fit.matrix
    units = repaired.scale[0] / repaired.scale[1:]
    privacy = repaired.errors(fit.derivatives) * units
    degrees_of_freedom = max(repaired.records - len(on) - 1, 1.0)
    spread = np.diag(fit.inverse @ repaired.values[1:, 1:] @ fit.inverse)
    sampling = np.sqrt(fit.residual * spread / degrees_of_freedom) * units
    numbers = [
        IntervalEstimate(values=fit.slopes * units, errors=errors, level=level)
        for errors in (privacy, sampling, np.hypot(privacy, sampling))
    ]
    return Regression(
        target=target,
        on=tuple(on),
        privacy=numbers[0],
        sampling=numbers[1],
        both=numbers[2],
        intercept=_intercept(fit, level),
        r_squared=_r_squared(fit, ridge, level),
        residual_sd=math.sqrt(fit.residual) * float(repaired.scale[0]),
        records=repaired.records,
        ridge=ridge,
        intervals=repaired.intervals,
        notes=(*_coefficient_notes(fit, level), *repaired.notes()),
    )


def _fit(matrix: NoisedCovariance, ridge: float) -> _Fit:
    """Return the fit, with db = K (dA_xy - dA_xx b - ridge diag(dA_xx) b) and K the inverse."""
    values = matrix.values
    inverse = inverse_of(values[1:, 1:] + ridge * np.diag(np.diag(values)[1:]))
    slopes = inverse @ values[1:, 0]
    contrast = np.concatenate([[1.0], -slopes])
    coefficients = np.hstack([np.zeros((len(slopes), 1)), inverse])
    derivatives = coefficients[:, :, None] * contrast
    derivatives = (derivatives + derivatives.transpose(0, 2, 1)) / 2
    at = np.arange(1, len(contrast))
    derivatives[:, at, at] -= ridge * inverse * slopes
    return _Fit(matrix=matrix, slopes=slopes, inverse=inverse, derivatives=derivatives, contrast=contrast)


def _intercept(fit: _Fit, level: float) -> IntervalEstimate:
    """Return mean_y - b mean_x of the released mean, whose noise is independent of the matrix's."""
    repaired, scale = fit.matrix, fit.matrix.scale
    means = repaired.mean / scale
    slopes = np.tensordot(means[1:], fit.derivatives, axes=1)
    error = math.hypot(
        float(repaired.errors(slopes)),
        float(np.linalg.norm(repaired.mean_errors * fit.contrast)),
    )
    value = np.asarray(fit.contrast @ means) * scale[0]
    return IntervalEstimate(values=value, errors=np.asarray(error * scale[0]), level=level)


def _r_squared(fit: _Fit, ridge: float, level: float) -> IntervalEstimate:
    """Return 1 - s / a_yy, s = v^T A v; to first order v changes s only where a ridge moves the minimum. To
    second order the slopes fit the noise, which makes s too small: with the axes u_i of A_xx and their
    variances l_i, by sum_i sd(u_i^T dA v)^2 / l_i. That sum is added, and counts as an error too, because it
    is an estimate."""
    values, total = fit.matrix.values, float(fit.matrix.values[0, 0])
    ridge_terms = ridge * np.diag(values)[1:] * fit.slopes
    residual = np.outer(fit.contrast, fit.contrast) - 2 * np.tensordot(ridge_terms, fit.derivatives, axes=1)
    form = -residual / total
    form[0, 0] += fit.residual / total**2
    variances, axes = eigenpairs(values[1:, 1:])
    coefficients = np.hstack([np.zeros((len(variances), 1)), axes.T])[:, :, None] * fit.contrast
    axis_errors = fit.matrix.noise_only.errors((coefficients + coefficients.transpose(0, 2, 1)) / 2) ** 2
    fitted_noise = float((axis_errors / variances).sum()) / total
    return IntervalEstimate(
        values=np.asarray(max(1 - fit.residual / total - fitted_noise, 0.0)),
        errors=np.hypot(fit.matrix.errors(form), fitted_noise),
        level=level,
        least=0.0,
        most=1.0,
    )


def _coefficient_notes(fit: _Fit, level: float) -> tuple[str, ...]:
    """Return a note if the standardised coefficients are mostly noise."""
    sizes = np.sqrt(np.diag(fit.matrix.values))
    units = sizes[1:] / sizes[0]
    noise = fit.matrix.noise_only.errors(fit.derivatives)
    numbers = IntervalEstimate(values=fit.slopes * units, errors=noise * units, level=level)
    return noise_note("coefficients", numbers, LONG_STANDARDISED_INTERVAL)
