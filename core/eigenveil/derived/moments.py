"""Further results from a released mean and covariance: `Moments` is the entry point."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from eigenveil.algorithms.shared.preparation import UNCLIPPED
from eigenveil.derived.clipping import ColumnLoss, two_valued_variance
from eigenveil.derived.components import Angles, Components, pca, subspace_angle
from eigenveil.derived.correlations import (
    Correlations,
    Distances,
    correlation,
    mahalanobis,
    partial_correlation,
)
from eigenveil.derived.covariance import LEVEL, NoisedCovariance, Units
from eigenveil.derived.factors import Factors, Rotation, factor_analysis
from eigenveil.derived.regression import Regression, regress
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import select_columns
from eigenveil.protocol.estimate import MatrixNoise
from eigenveil.protocol.plan import planned_study
from eigenveil.study.checks import member
from eigenveil.study.study import Scaling, Study

_bad_argument = partial(RequestError, Code.BAD_ARGUMENT)


class HasToDict(Protocol):
    """Result that can be written as plain values of a release document."""

    def to_dict(self) -> dict[str, Any]: ...


class HasResult(Protocol):
    """Object that has a result: a loaded release or a simulation."""

    @property
    def result(self) -> HasToDict: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moments:
    """Linear methods on a released covariance, with errors that include the privacy noise.

    Every method is post-processing of one release [P7]: it costs nothing, contacts no site, and may be chosen
    after the release was seen. Errors and intervals are about the exact answer on the records; only a
    regression also has sampling errors. All methods use `matrix`. `columns` limits a method to some columns,
    and so leaves out the noise of the others.

    >>> import numpy as np
    >>> from eigenveil import Column, Federation, Moments, Study, simulate
    >>> columns = tuple(Column(name=name, unit="mm", lower=-10, upper=10) for name in "abc")
    >>> study = Study(name="pilot", columns=columns, epsilon=2.0, delta=1e-6, components=1,
    ...               federation=Federation(sites=("north",)), algorithm="gauss-cov")
    >>> rows = np.random.default_rng(0).normal(size=(20_000, 3)) * [3, 2, 1]
    >>> rows[:, 1] += rows[:, 0]
    >>> moments = Moments.of(simulate(study, {"north": rows}, seed=0).result)
    >>> found = moments.regress("b", on=["a"])
    >>> found.privacy.values.round(2).tolist(), bool(found.both.low[0] < 1 < found.both.high[0])
    ([0.99], True)"""

    matrix: NoisedCovariance

    @classmethod
    def of(cls, result: HasToDict | HasResult | Mapping[str, Any], *, two_valued: Sequence[str] = ()) -> Self:
        """Return the moments of a result, a release or a simulation, or of a result as plain values.

        Columns named in `two_valued` have no values but their two public bounds. The released mean then gives
        a second estimate of their variance, at no cost, which shows if clipping removed much of it. It needs
        the release, which has the bounds.
        Raises RequestError: code `bad-argument`: there is no covariance with an error model, a column is
        unknown, or the bounds are."""
        data, study = _plain(result), _study(result)
        if data.get("covariance_in_round"):
            raise RequestError(
                Code.BAD_ARGUMENT,
                "the covariance is too large to be in the result; it is the signed release of its round. "
                "Pass a result that holds it",
            )
        if data["covariance"] is None or data["noise"] is None:
            raise RequestError(
                Code.BAD_ARGUMENT,
                "this release has no covariance whose noise is known, so nothing can be derived from it. A "
                "study that centres, with algorithm gauss-cov, refined-cov or analyze-gauss, releases one",
            )
        noise, values = MatrixNoise.from_dict(data["noise"]), np.array(data["covariance"], dtype=np.float64)
        # Before this division the noise is uniform.
        divided = np.array(noise.divisors or np.ones(len(values)))
        matrix = NoisedCovariance(
            columns=tuple(data["columns"]),
            values=(values + values.T) / 2 * np.outer(divided, divided),
            scale=np.array(data["scale"], dtype=np.float64) / divided,
            mean=np.array(data["mean"], dtype=np.float64),
            records=float(data["records"]),
            noise=noise,
            mean_noise_variance=noise.centre / len(values),
            divided=divided,
            loss=_loss(data, study, float((np.diag(values) * divided**2).sum())),
        )
        return cls(matrix=_with_two_valued(matrix, study, two_valued))

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the release."""
        return self.matrix.columns

    def correlation(self, columns: Sequence[str] | None = None, *, level: float = LEVEL) -> Correlations:
        """Return the correlations of all pairs."""
        return correlation(self._of(columns), level)

    def partial_correlations(
        self, columns: Sequence[str] | None = None, *, level: float = LEVEL
    ) -> Correlations:
        """Return the correlations of all pairs with the other columns held fixed."""
        return partial_correlation(self._of(columns), level)

    def regress(
        self, target: str, on: Sequence[str], *, ridge: float = 0.0, level: float = LEVEL
    ) -> Regression:
        """Return the least squares of `target` on `on`; `ridge` is added to each variance, relative to it."""
        return regress(self.matrix, target, on, ridge, level)

    def pca(
        self,
        k: int,
        *,
        scaling: str | Units = Units.RELEASED,
        columns: Sequence[str] | None = None,
        level: float = LEVEL,
    ) -> Components:
        """Return the first k principal components. Scaling: as in the release ("released"), in the columns'
        own units ("original"), or divided by their standard deviations ("standard")."""
        return pca(self._of(columns), k, member(Units, "scaling", scaling, _bad_argument), level)

    def factor_analysis(
        self,
        k: int,
        *,
        rotation: str | Rotation = Rotation.VARIMAX,
        columns: Sequence[str] | None = None,
        level: float = LEVEL,
    ) -> Factors:
        """Return k factors of the correlations, with rotation "varimax", "promax" or "none"."""
        return factor_analysis(
            self._of(columns), k, member(Rotation, "rotation", rotation, _bad_argument), level
        )

    def subspace_angle(self, other: Moments, k: int, *, scaling: str | Units = Units.RELEASED) -> Angles:
        """Return the principal angles to the first k components of another release of the same columns."""
        return subspace_angle(self.matrix, other.matrix, k, member(Units, "scaling", scaling, _bad_argument))

    def mahalanobis(
        self, rows: ArrayLike, columns: Sequence[str] | None = None, *, level: float = LEVEL
    ) -> Distances:
        """Return the Mahalanobis distances of local rows from the release's mean. Nothing is sent.

        Shape: rows (n, m), in the columns' own units and order; a table's columns are found by their names.

        Raises:
            RequestError: code `bad-argument`: a column is missing or repeated, or rows are not finite."""
        matrix = self._of(columns)
        try:
            result_object = select_columns(matrix.columns, rows)
        except ValueError as problem:
            raise RequestError(Code.BAD_ARGUMENT, str(problem)) from problem
        return mahalanobis(matrix, np.asarray(result_object, dtype=np.float64), level)

    def _of(self, columns: Sequence[str] | None) -> NoisedCovariance:
        return self.matrix if columns is None else self.matrix.of(columns)


def _study(result: object) -> Study | None:
    """Return the study of a release or a simulation; None of a result alone, which does not have it."""
    document = getattr(result, "document", None)
    return None if document is None else planned_study(document["plan"])


def _loss(data: Mapping[str, Any], study: Study | None, trace: float) -> ColumnLoss | None:
    """Return what clipping may have removed; None if an earlier release does not state it."""
    if stated := data.get("clipping"):
        return ColumnLoss.stated(stated, trace)
    unclipped = study is not None and study.radius == UNCLIPPED and study.scaling is not Scaling.STANDARD
    return ColumnLoss.none(len(data["columns"])) if unclipped else None


def _with_two_valued(matrix: NoisedCovariance, study: Study | None, names: Sequence[str]) -> NoisedCovariance:
    """Return the matrix after comparing the variance of each two-valued column with that of its mean."""
    places = matrix.places(names)
    if not names or matrix.loss is None:
        return matrix
    if study is None:
        raise RequestError(
            Code.BAD_ARGUMENT, "a result alone has no bounds of two-valued columns. Pass its release"
        )
    bounds = {column.name: column for column in study.columns}
    loss = matrix.loss
    for at, name in zip(places, names, strict=True):
        scale, mean = float(matrix.scale[at]), float(matrix.mean[at])
        low, high = bounds[name].lower, bounds[name].upper
        slope = (low + high - 2 * mean) / scale  # of its variance against its mean
        loss = loss.checked(
            at,
            variance=float(matrix.values[at, at]),
            expected=two_valued_variance(mean, low, high) / scale**2,
            error=math.hypot(matrix.noise.diagonal, slope * math.sqrt(matrix.mean_noise_variance)),
            bias=slope * float(matrix.mean_errors[at]),
        )
    return replace(matrix, loss=loss)


def _plain(result: HasToDict | HasResult | Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a result, or the result of a release or a simulation, as plain values."""
    if isinstance(result, Mapping):
        return result
    holder: Any = result
    result_object: HasToDict = getattr(holder, "result", holder)
    return result_object.to_dict()
