"""What an estimate says in the units of its study, and what its own numbers say against it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import noise_edge
from eigenveil.planning.choose import USABLE
from eigenveil.protocol.estimate import Estimate, MatrixNoise
from eigenveil.protocol.plan import Plan
from eigenveil.study.grid import S, offsets, steps
from eigenveil.study.study import Scaling, Study

MOST_WRITTEN = 2048  # columns; their covariance takes 80 MB as text, and a minute to write


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Result:
    """The `result` of a release, k components of d columns.

    Shape: columns (d,), components (k, d) with orthonormal rows, explained_variance (k,) and its ratio (k,),
    mean (d,), scale (d,), covariance (d, d) or None.

    `mean` is in each column's own unit. With scaling = "none" so are directions, and variances are in the
    square of it; otherwise both are about columns divided by `scale`: with "bounds" half the distance between
    a column's bounds, with "standard" its noised standard deviation. `records` is the noised record count,
    `noise_scale` the standard deviation of noise on an entry of the covariance (or of the gradient that the
    variances are read from), `predicted_sin_angle` the sine to the records' own components (1: this is noise;
    None: not known). `declined` says why nothing is released, `way` what the first releases decided, and why
    (None where they decided nothing). `noise` is what is known of the errors of `covariance`, in the units
    of that; None where no law of them is known. `matrix_apart` is whether a covariance was released that is
    too large to be here: it is the signed release of its round.
    Source: releases and public numbers only [P7].
    """

    columns: tuple[str, ...]
    components: FloatArray
    explained_variance: FloatArray
    explained_variance_ratio: FloatArray
    total_variance: float
    mean: FloatArray
    scale: FloatArray
    records: float
    noise_scale: float
    predicted_sin_angle: float | None
    covariance: FloatArray | None
    noise: MatrixNoise | None
    warnings: tuple[str, ...]
    declined: str | None
    way: str | None = None
    matrix_apart: bool = False

    @property
    def noise_edge(self) -> float | None:
        """The variance up to which noise alone may make a direction; None where no matrix was released."""
        released = self.covariance is not None or self.matrix_apart
        return noise_edge(self.noise_scale, len(self.columns)) if released else None

    def to_dict(self) -> dict[str, Any]:
        """As release.json has it: lists and numbers. A matrix of more than MOST_WRITTEN columns is not in it:
        it is the signed release of its round, which whoever wants it fetches as bytes [R21]."""
        written = self
        if self.covariance is not None and len(self.columns) > MOST_WRITTEN:
            written = replace(self, covariance=None, noise=None, matrix_apart=True)
        return {field.name: _plain(getattr(written, field.name)) for field in fields(written)}

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> Result:
        """Read what `to_dict` wrote."""
        d = len(said["columns"])
        arrays = {name: np.array(said[name], dtype=np.float64) for name in ARRAYS}
        arrays["components"] = arrays["components"].reshape(-1, d)
        covariance = said["covariance"]
        return cls(
            **dict(said)
            | arrays
            | {"columns": tuple(said["columns"]), "warnings": tuple(said["warnings"])}
            | {"covariance": None if covariance is None else np.array(covariance, dtype=np.float64)}
            | {"noise": None if said["noise"] is None else MatrixNoise.from_dict(said["noise"])}
        )


ARRAYS = ("components", "explained_variance", "explained_variance_ratio", "mean", "scale")


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, MatrixNoise):
        return value.to_dict()
    return list(value) if isinstance(value, tuple) else value


def result_of(plan: Plan, estimate: Estimate) -> Result:
    """What the estimate says in the study's units."""
    factors: FloatArray = steps(plan.study) * S  # one unit of the analysis in each column's own
    keeps_units = plan.study.scaling is Scaling.NONE
    square = float(factors[0]) ** 2 if keeps_units else 1.0
    total = max(estimate.total_variance, float(estimate.explained_variance.sum()))
    ratio = estimate.explained_variance / total if total > 0 else estimate.explained_variance * 0
    covariance = estimate.covariance
    return Result(
        columns=tuple(column.name for column in plan.study.columns),
        components=estimate.components,
        explained_variance=estimate.explained_variance * square,
        explained_variance_ratio=ratio,
        total_variance=total * square,
        mean=offsets(plan.study) + estimate.mean * factors,
        scale=_scale(estimate, factors, keeps_units),
        records=estimate.records,
        noise_scale=estimate.noise_scale * square,
        predicted_sin_angle=estimate.sin_error,
        covariance=None if covariance is None else covariance * square,
        noise=None if estimate.noise is None else estimate.noise.in_units(square),
        warnings=(*estimate.warnings, *caveats(plan.study, estimate, square)),
        declined=estimate.declined,
        way=estimate.way,
    )


def _scale(estimate: Estimate, factors: FloatArray, keeps_units: bool) -> FloatArray:
    """What each column was divided by, in its unit. Shape: factors (d,) -> (d,)."""
    if estimate.scale is not None:
        return factors * estimate.scale
    return np.ones_like(factors) if keeps_units else factors


EVERY = "as many components as columns: together they are all there is, and this is 0 however much noise"


def every_direction(result: Mapping[str, Any]) -> bool:
    """Whether a result, as a document holds it, has a component for each column: no angle is then left to
    predict, and 0 says nothing of how exact each of them is."""
    return len(result["components"]) == len(result["columns"])


def most_variance(study: Study, scale: FloatArray | None = None) -> float:
    """The most that the public bounds let all columns vary together: the sum of their squared half ranges, in
    grid units scaled to [-1, 1], or in those of columns that were divided by `scale`."""
    half = [column.half_range for column in study.columns]
    if scale is not None:
        return float((1 / scale**2).sum())
    if study.scaling is not Scaling.NONE:
        return float(len(half))
    return sum((one / max(half)) ** 2 for one in half)


def caveats(study: Study, estimate: Estimate, square: float = 1.0) -> tuple[str, ...]:
    """Sentences if the directions are mostly noise, or if a variance is more than there can be.

    `square` is a variance of 1 in the units that the result is written in. It rests on releases and public
    numbers only [P7].
    """
    said = []
    sine, asked = estimate.sin_error or 0.0, estimate.records > 0  # what asked nothing says so itself
    if asked and len(estimate.components) and sine > USABLE:
        said.append(
            f"the directions are mostly noise (predicted sine {sine:.2g}): ask for more records, a "
            "larger epsilon, or another number of components"
        )
    most, largest = most_variance(study, estimate.scale), max(estimate.explained_variance, default=0.0)
    if largest > most:
        said.append(
            f"a variance of {largest * square:.4g} is more than the columns' bounds allow, "
            f"{most * square:.4g} in all: noise makes up the rest"
        )
    return tuple(said)
