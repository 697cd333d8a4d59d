"""A linear regression from a released covariance: how a column goes with others, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenveil.derived.matrix import Noised, inverted
from eigenveil.derived.uncertain import Uncertain, noise_note
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs

STANDARD_WIDE = 1.0  # in standard deviations of the target for one of a column


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Regression:
    """The target's own unit for one unit of each column of `on`, all others held fixed.

    `privacy` holds what the noise leaves unknown of the answer that the records themselves give; `sampling`
    what another sample of people would change of that, by the classical formula from the residual variance
    and the noised count; `both` is about the people that the records stand for.

    Shape: each of the three (p,); intercept and r_squared (), with privacy errors. `ridge` was added to the
    variance of each column, in parts of it.
    """

    target: str
    on: tuple[str, ...]
    privacy: Uncertain
    sampling: Uncertain
    both: Uncertain
    intercept: Uncertain
    r_squared: Uncertain
    residual_sd: float
    records: float
    ridge: float
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Lists and numbers."""
        numbers = ("privacy", "sampling", "both", "intercept", "r_squared")
        return {
            "target": self.target,
            "on": list(self.on),
            **{name: getattr(self, name).to_dict() for name in numbers},
            "residual_sd": self.residual_sd,
            "records": self.records,
            "ridge": self.ridge,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fit:
    """b = (A_xx + ridge diag A_xx)^-1 A_xy with what it moves by. The target is column 0 of A.

    Shape: slopes (p,), inverse (p, p), forms (p, p + 1, p + 1), sides (p + 1,): 1 and then -b.
    """

    matrix: Noised
    slopes: FloatArray
    inverse: FloatArray
    forms: FloatArray
    sides: FloatArray

    @property
    def residual(self) -> float:
        """The variance that is left of the target, in the units of A."""
        return max(float(self.sides @ self.matrix.values @ self.sides), 0.0)


def regress(matrix: Noised, target: str, on: Sequence[str], ridge: float, level: float) -> Regression:
    """Least squares of `target` on `on`.

    Raises:
        RequestError: no column, an unknown one or the target among them; a ridge below 0.
    """
    if isinstance(on, str):
        raise RequestError(Code.BAD_ARGUMENT, f'on must be a list of names, such as on=["{on}"]')
    if not on or not math.isfinite(ridge) or ridge < 0:
        raise RequestError(
            Code.BAD_ARGUMENT, "a regression is on one column or more, with a ridge of 0 or above"
        )
    fit = _fit(matrix.of([target, *on]).positive(), ridge)
    whole = fit.matrix
    units = whole.scale[0] / whole.scale[1:]
    privacy = whole.errors(fit.forms) * units
    freedom = max(whole.records - len(on) - 1, 1.0)
    spread = np.diag(fit.inverse @ whole.values[1:, 1:] @ fit.inverse)
    sampling = np.sqrt(fit.residual * spread / freedom) * units
    numbers = [
        Uncertain(values=fit.slopes * units, errors=errors, level=level)
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
        residual_sd=math.sqrt(fit.residual) * float(whole.scale[0]),
        records=whole.records,
        ridge=ridge,
        notes=(*_noise(fit, level), *whole.notes()),
    )


def _fit(matrix: Noised, ridge: float) -> _Fit:
    """db = K (dA_xy - dA_xx b - ridge diag(dA_xx) b), with K the inverse."""
    values = matrix.values
    inverse = inverted(values[1:, 1:] + ridge * np.diag(np.diag(values)[1:]))
    slopes = inverse @ values[1:, 0]
    sides = np.concatenate([[1.0], -slopes])
    legs = np.hstack([np.zeros((len(slopes), 1)), inverse])
    forms = legs[:, :, None] * sides
    forms = (forms + forms.transpose(0, 2, 1)) / 2
    at = np.arange(1, len(sides))
    forms[:, at, at] -= ridge * inverse * slopes
    return _Fit(matrix=matrix, slopes=slopes, inverse=inverse, forms=forms, sides=sides)


def _intercept(fit: _Fit, level: float) -> Uncertain:
    """mean_y - b mean_x, about the released mean, whose noise is another's than the matrix's."""
    whole, scale = fit.matrix, fit.matrix.scale
    means = whole.mean / scale
    slopes = np.tensordot(means[1:], fit.forms, axes=1)
    moved = math.hypot(float(whole.errors(slopes)), math.sqrt(whole.wandering * float(fit.sides @ fit.sides)))
    value = np.asarray(fit.sides @ means) * scale[0]
    return Uncertain(values=value, errors=np.asarray(moved * scale[0]), level=level)


def _r_squared(fit: _Fit, ridge: float, level: float) -> Uncertain:
    """1 - s / a_yy, s = v^T A v: to first order v moves s only where a ridge pulls it off the least.

    To second order slopes follow the noise, which makes s look smaller: with the axes u_i of A_xx and their
    variances l_i, by sum_i sd(u_i^T dA v)^2 / l_i. That is put back, and as it is a guess, is an error too.
    """
    values, total = fit.matrix.values, float(fit.matrix.values[0, 0])
    pulled = ridge * np.diag(values)[1:] * fit.slopes
    residual = np.outer(fit.sides, fit.sides) - 2 * np.tensordot(pulled, fit.forms, axes=1)
    form = -residual / total
    form[0, 0] += fit.residual / total**2
    variances, axes = eigenpairs(values[1:, 1:])
    legs = np.hstack([np.zeros((len(variances), 1)), axes.T])[:, :, None] * fit.sides
    followed = fit.matrix.errors((legs + legs.transpose(0, 2, 1)) / 2) ** 2
    hidden = float((followed / variances).sum()) / total
    return Uncertain(
        values=np.asarray(max(1 - fit.residual / total - hidden, 0.0)),
        errors=np.hypot(fit.matrix.errors(form), hidden),
        level=level,
        least=0.0,
        most=1.0,
    )


def _noise(fit: _Fit, level: float) -> tuple[str, ...]:
    """The same slopes for standardised columns tell whether anything is known."""
    sizes = np.sqrt(np.diag(fit.matrix.values))
    units = sizes[1:] / sizes[0]
    numbers = Uncertain(values=fit.slopes * units, errors=fit.matrix.errors(fit.forms) * units, level=level)
    return noise_note("coefficients", numbers, STANDARD_WIDE)
