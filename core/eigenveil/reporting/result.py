"""Result of a study in its units, with warnings that follow from its own numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import noise_edge
from eigenveil.planning.choose import USABLE
from eigenveil.protocol.estimate import Estimate, MatrixClipping, MatrixNoise, PriorUse
from eigenveil.protocol.plan import Plan
from eigenveil.study.checks import to_plain
from eigenveil.study.grid import S, offsets, steps
from eigenveil.study.study import Scaling, Study

MOST_SINE = 0.5  # predicted, at most, of components that a refinement found below the noise of the matrix
MOST_COVARIANCE_COLUMNS = 2048  # columns: their covariance takes 34 MB of a release's file


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Result(Estimate):
    """Estimate in a study's units: k components of d columns. `mean` is in each column's own unit. With
    scaling = "none" directions are too, and variances are in its square. Otherwise both refer to columns
    divided by `scale`: with "bounds" half the distance between a column's bounds, with "standard" its noised
    standard deviation. `covariance_in_round` is True if a covariance was released that is too large to be
    here: it is the signed release of its round.
    Shape: columns (d,), components (k, d) with orthonormal rows, explained_variance (k,) and its ratio (k,),
    mean (d,), scale (d,), covariance (d, d) or None.
    Source: releases and public numbers only [P7]."""

    columns: tuple[str, ...]
    explained_variance_ratio: FloatArray
    scale: FloatArray
    covariance_in_round: bool = False

    @property
    def predicted_sin_angle(self) -> float | None:
        """Predicted sine of the angle to the records' own components; 1 is only noise, None is unknown."""
        return self.sin_error

    @property
    def noise_edge(self) -> float | None:
        """Variance up to which a direction of a released matrix may be noise alone; None without a matrix."""
        released = self.covariance is not None or self.covariance_in_round
        return noise_edge(self.noise_scale, len(self.columns)) if released else None

    @property
    def from_noise(self) -> tuple[bool, ...]:
        """True for each component that may be noise alone: its variance is within the noise edge, and the
        predicted angle is unknown or large. A refinement finds weaker components than the matrix shows."""
        edge, sine = self.noise_edge, self.predicted_sin_angle
        stands = edge is None or (sine is not None and sine <= MOST_SINE and not self.has_every_component)
        return tuple(not stands and one < edge for one in self.explained_variance.tolist())

    @property
    def has_every_component(self) -> bool:
        """True if there is a component for each column. The predicted angle is then 0 and says nothing about
        the error of each component."""
        return len(self.components) == len(self.columns)

    @property
    def arrays(self) -> dict[str, FloatArray]:
        """Arrays of the result, by field."""
        found = {name: getattr(self, name) for name in ARRAYS}
        return {name: array for name, array in found.items() if array is not None}

    def without_arrays(self) -> dict[str, Any]:
        """Return all other fields as texts, numbers and lists, as in the document of a release."""
        data = {one.name: to_plain(getattr(self, one.name)) for one in fields(self) if one.name not in ARRAYS}
        for name in ADDED:
            if data[name] is None:
                del data[name]
        return data | {"predicted_sin_angle": data.pop("sin_error")}

    def to_dict(self) -> dict[str, Any]:
        """Return the result as lists, texts and numbers, as `--json` prints it."""
        arrays = {name: to_plain(getattr(self, name)) for name in ARRAYS}
        return self.without_arrays() | arrays

    def published(self) -> Result:
        """Return the result as it is in a release: without a matrix of more than MOST_COVARIANCE_COLUMNS,
        which is the signed release of its round and can be fetched as bytes [R21]."""
        if self.covariance is None or len(self.columns) <= MOST_COVARIANCE_COLUMNS:
            return self
        return replace(self, covariance=None, noise=None, clipping=None, covariance_in_round=True)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Result:
        """Return the inverse of `to_dict`; arrays may also be NumPy's, and other keys are ignored. Raises
        ValueError: the shapes do not fit each other."""
        d, k = len(data["columns"]), len(data["explained_variance"])
        shapes = {"components": (k, d), "covariance": (d, d), "mean": (d,), "scale": (d,)}
        values = {name: data[name] for name in FIELDS if name not in ADDED}
        values["prior"] = PriorUse.from_dict(data["prior"]) if data.get("prior") else None
        for name in ARRAYS:
            array = data.get(name)
            shape = shapes.get(name, (k,))
            values[name] = None if array is None else np.asarray(array, dtype=np.float64).reshape(shape)
        for name in ("columns", "warnings"):
            values[name] = tuple(data[name])
        noise = data["noise"] and MatrixNoise.from_dict(data["noise"])
        clipping = data.get("clipping") and MatrixClipping.from_dict(data["clipping"])
        return cls(
            **values | {"noise": noise, "clipping": clipping, "sin_error": data["predicted_sin_angle"]}
        )


ARRAYS = ("components", "explained_variance", "explained_variance_ratio", "mean", "scale", "covariance")
# Left out where they are None, so that documents of earlier revisions keep their bytes.
ADDED = ("clipping", "prior")
FIELDS = tuple(one.name for one in fields(Result) if one.name not in (*ARRAYS, "sin_error"))


def result_of(plan: Plan, estimate: Estimate) -> Result:
    """Return the estimate in the study's units."""
    factors: FloatArray = steps(plan.study) * S  # one unit of the analysis in each column's own
    in_column_units = plan.study.scaling is Scaling.NONE
    scale, square = (np.ones_like(factors), float(factors[0]) ** 2) if in_column_units else (factors, 1.0)
    total = max(estimate.total_variance, float(estimate.explained_variance.sum()))
    ratio = estimate.explained_variance / total if total > 0 else estimate.explained_variance * 0
    converted = {
        "columns": tuple(column.name for column in plan.study.columns),
        "explained_variance": estimate.explained_variance * square,
        "explained_variance_ratio": ratio,
        "total_variance": total * square,
        "mean": offsets(plan.study) + estimate.mean * factors,
        "scale": scale if estimate.scale is None else factors * estimate.scale,
        "noise_scale": estimate.noise_scale * square,
        "covariance": None if estimate.covariance is None else estimate.covariance * square,
        "noise": None if estimate.noise is None else estimate.noise.in_units(square),
        "clipping": None if estimate.clipping is None else estimate.clipping.in_units(square),
        "warnings": (*estimate.warnings, *result_warnings(plan.study, estimate, square)),
    }
    return Result(**{one.name: getattr(estimate, one.name) for one in fields(Estimate)} | converted)


EVERY_COMPONENT = (
    "as many components as columns: together they span everything, so this is 0 whatever the noise"
)


def variance_bound(study: Study, scale: FloatArray | None = None) -> float:
    """Return the largest total variance within the public bounds: the sum of the squared half ranges.
    Units: grid units scaled to [-1, 1], or those of columns that were divided by `scale`."""
    half = [column.half_range for column in study.columns]
    if scale is not None:
        return float((1 / scale**2).sum())
    if study.scaling is not Scaling.NONE:
        return float(len(half))
    return sum((one / max(half)) ** 2 for one in half)


def result_warnings(study: Study, estimate: Estimate, square: float = 1.0) -> tuple[str, ...]:
    """Return warnings if the directions are mostly noise or a variance is above its largest possible value.
    `square` is a variance of 1 in the units of the result. Source: releases and public numbers only [P7]."""
    warnings = []
    sine = estimate.sin_error or 0.0
    if estimate.records > 0 and len(estimate.components) and sine > USABLE:  # 0 records: no queries
        warnings.append(
            f"the directions are mostly noise (predicted sine {sine:.2g}): use more records, a "
            "larger epsilon, or another number of components"
        )
    most, largest = variance_bound(study, estimate.scale), max(estimate.explained_variance, default=0.0)
    if largest > most:
        warnings.append(
            f"a variance of {largest * square:.4g} is more than the columns' bounds allow in total, "
            f"{most * square:.4g}: the rest is noise"
        )
    return tuple(warnings)
