"""Principal components of a released covariance, any number of them and in any units, and how two compare."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenveil.algorithms.shared.stated_error import typical_sine
from eigenveil.derived.frame import Frame, Units
from eigenveil.derived.matrix import Noised
from eigenveil.derived.uncertain import LEVEL, Uncertain
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs
from eigenveil.planning.choose import USABLE


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Components:
    """Shape: loadings (k, m) with orthonormal rows, variances and ratio (k,), falling. `sine` predicts the
    largest principal angle to the records' own components."""

    columns: tuple[str, ...]
    units: Units
    loadings: Uncertain
    variances: Uncertain
    ratio: FloatArray
    sine: float
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Lists and numbers."""
        return {
            "columns": list(self.columns),
            "units": self.units.value,
            "loadings": self.loadings.to_dict(),
            "variances": self.variances.to_dict(),
            "ratio": self.ratio.tolist(),
            "sine": self.sine,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Angles:
    """Principal angles between two subspaces in degrees (k,), falling, and the largest that noise alone would
    show between two releases of the same records."""

    degrees: FloatArray
    noise_degrees: float
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Lists and numbers."""
        return {
            "degrees": self.degrees.tolist(),
            "noise_degrees": self.noise_degrees,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Axis:
    """One component: its variance without what noise added, and how far noise moves it.

    Shape: loadings and their errors (m,), leans (m,): the sd of its angle to each other axis.
    """

    variance: float
    unsure: float
    loadings: FloatArray
    errors: FloatArray
    leans: FloatArray


def pca(matrix: Noised, k: int, units: Units, level: float) -> Components:
    """The first k components of a covariance in these units.

    Raises:
        RequestError: there are not k columns.
    """
    m = len(matrix.columns)
    if not 1 <= k <= m:
        raise RequestError(Code.BAD_ARGUMENT, f"k must lie between 1 and the {m} columns, got {k}")
    frame = Frame.of(matrix, units)
    values, vectors = eigenpairs(frame.values)
    axes = [_axis(frame, values, vectors, i) for i in range(k)]
    variances = np.array([axis.variance for axis in axes])
    unsure = np.array([axis.unsure for axis in axes])
    sine = min(1.0, typical_sine(np.array([axis.leans[k:] for axis in axes]) ** 2)) if k < m else 0.0
    return Components(
        columns=matrix.columns,
        units=units,
        loadings=Uncertain(
            values=np.array([axis.loadings for axis in axes]),
            errors=np.array([axis.errors for axis in axes]),
            level=level,
            least=-1.0,
            most=1.0,
        ),
        variances=Uncertain(values=variances, errors=unsure, level=level, least=0.0),
        ratio=variances / max(float(values.sum()), float(variances.sum()), 1e-300),
        sine=sine,
        notes=(*_noise(sine), *matrix.notes()),
    )


def _axis(frame: Frame, values: FloatArray, vectors: FloatArray, i: int) -> _Axis:
    """dl_i = v_i^T dM v_i, and dv_i = sum_j v_j (v_j^T dM v_i) / (l_i - l_j).

    Noise drives eigenvalues apart, to second order by the sum of sd(v_j^T dM v_i)^2 / (l_i - l_j): that is
    taken off again, and as it is a guess it counts as an error too. A gap inside the noise is taken as that.
    """
    axis = vectors[:, i]
    forms = frame.forms(vectors.T, np.broadcast_to(axis, vectors.shape))
    moved = frame.matrix.errors(forms)
    gaps = values[i] - values
    gaps = np.where(gaps < 0, -1.0, 1.0) * np.maximum(np.abs(gaps), moved)
    leans, inverse = moved / gaps, 1 / gaps
    own, leans[i], inverse[i] = moved[i], 0.0, 0.0
    driven = float((moved * leans).sum())
    turned = np.tensordot(vectors * inverse, forms, axes=1)
    return _Axis(
        variance=max(float(values[i]) - driven, 0.0),
        unsure=math.hypot(own, driven),
        loadings=axis,
        errors=frame.matrix.errors(turned),
        leans=np.abs(leans),
    )


def _noise(sine: float) -> tuple[str, ...]:
    if sine <= USABLE:
        return ()
    sentence = (
        f"the directions are mostly noise (predicted sine {sine:.2g}): fewer columns, another number of "
        "components, more records or a larger epsilon would help"
    )
    return (sentence,)


def subspace_angle(one: Noised, other: Noised, k: int, units: Units) -> Angles:
    """Between the first k components of two releases of the same columns.

    Raises:
        RequestError: other columns, or as released with other scales.
    """
    if set(one.columns) != set(other.columns):
        raise RequestError(Code.BAD_ARGUMENT, "the two releases are of different columns")
    other = other.of(one.columns)
    if units is Units.RELEASED and not np.allclose(one.scale, other.scale, rtol=1e-9, atol=0):
        raise RequestError(
            Code.BAD_ARGUMENT,
            'the two releases have other scales: compare them in units "own" or "standard"',
        )
    left, right = (pca(matrix, k, units, LEVEL) for matrix in (one, other))
    cosines = np.linalg.svd(left.loadings.values @ right.loadings.values.T, compute_uv=False)
    degrees = np.degrees(np.arccos(np.clip(cosines[::-1], 0.0, 1.0)))
    alone = math.degrees(math.asin(min(1.0, math.hypot(left.sine, right.sine))))
    notes = tuple(dict.fromkeys((*left.notes, *right.notes)))
    if degrees[0] <= alone:
        notes = ("the two differ by no more than noise alone explains", *notes)
    return Angles(degrees=degrees, noise_degrees=alone, notes=notes)
