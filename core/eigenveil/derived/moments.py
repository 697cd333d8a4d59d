"""What a release of means and covariances answers beside its components: `Moments`, the way in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from eigenveil.derived.components import Angles, Components, pca, subspace_angle
from eigenveil.derived.correlation import Correlations, correlation, partial_correlation
from eigenveil.derived.distances import Distances, mahalanobis
from eigenveil.derived.factors import Factors, Rotation, factor_analysis
from eigenveil.derived.frame import Units
from eigenveil.derived.matrix import Noised
from eigenveil.derived.regression import Regression, regress
from eigenveil.derived.uncertain import LEVEL
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.tables import in_order
from eigenveil.protocol.estimate import MatrixNoise

Word = TypeVar("Word", bound=Enum)


class Said(Protocol):
    """A result, which says what a release document holds of it."""

    def to_dict(self) -> dict[str, Any]: ...


class Holder(Protocol):
    """What holds a result: a release that was read, or a simulation."""

    @property
    def result(self) -> Said: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moments:
    """Everything linear that a released covariance answers, with errors that hold the privacy noise.

    Every question is post-processing of one release [P7]: it costs nothing, is asked of nobody, and may be
    chosen after the release was seen. Errors and intervals are about the answer that the records themselves
    give; only a regression also has sampling errors. `matrix` is what all of them are read off. `columns`
    limit a question to some of the columns, which is how to keep the noise of the others out of it.

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
    ([0.99], True)
    """

    matrix: Noised

    @classmethod
    def of(cls, result: Said | Holder | Mapping[str, Any]) -> Self:
        """The moments of a `result`, of a release or simulation that holds one, or of either as plain values.

        Raises:
            RequestError: code `bad-argument`: it has no covariance whose noise is known.
        """
        said = _plain(result)
        if said.get("matrix_apart"):
            raise RequestError(
                Code.BAD_ARGUMENT,
                "the covariance is too large to be in the result: it is the signed release of its round, and "
                "questions are read off a result that holds it",
            )
        if said["covariance"] is None or said["noise"] is None:
            raise RequestError(
                Code.BAD_ARGUMENT,
                "this release has no covariance whose noise is known, so nothing else can be read off it; a "
                "study that centres, with algorithm gauss-cov, refined-cov or analyze-gauss, releases one",
            )
        noise, values = MatrixNoise.from_dict(said["noise"]), np.array(said["covariance"], dtype=np.float64)
        divided = np.array(noise.divided or np.ones(len(values)))  # noise is alike before that
        return cls(
            matrix=Noised(
                columns=tuple(said["columns"]),
                values=(values + values.T) / 2 * np.outer(divided, divided),
                scale=np.array(said["scale"], dtype=np.float64) / divided,
                mean=np.array(said["mean"], dtype=np.float64),
                records=float(said["records"]),
                noise=noise,
                wandering=noise.centre / len(values),
                divided=divided,
            )
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of the release."""
        return self.matrix.columns

    def correlation(self, columns: Sequence[str] | None = None, *, level: float = LEVEL) -> Correlations:
        """Correlations of all pairs."""
        return correlation(self._of(columns), level)

    def partial_correlations(
        self, columns: Sequence[str] | None = None, *, level: float = LEVEL
    ) -> Correlations:
        """Correlations of all pairs when the others of these columns are held fixed."""
        return partial_correlation(self._of(columns), level)

    def regress(
        self, target: str, on: Sequence[str], *, ridge: float = 0.0, level: float = LEVEL
    ) -> Regression:
        """Least squares of `target` on `on`; `ridge` is added to each column's variance, in parts of it."""
        return regress(self.matrix, target, on, ridge, level)

    def pca(
        self,
        k: int,
        *,
        scaling: str | Units = Units.RELEASED,
        columns: Sequence[str] | None = None,
        level: float = LEVEL,
    ) -> Components:
        """The first k components of columns as the release scales them ("released"), in their "own" units, or
        divided by their standard deviations ("standard")."""
        return pca(self._of(columns), k, _member(Units, scaling, "scaling"), level)

    def factor_analysis(
        self,
        k: int,
        *,
        rotation: str | Rotation = Rotation.VARIMAX,
        columns: Sequence[str] | None = None,
        level: float = LEVEL,
    ) -> Factors:
        """k factors behind the correlations, turned by "varimax", "promax" or not at all ("none")."""
        return factor_analysis(self._of(columns), k, _member(Rotation, rotation, "rotation"), level)

    def subspace_angle(self, other: Moments, k: int, *, scaling: str | Units = Units.RELEASED) -> Angles:
        """Between the first k components of this release and of another one of the same columns."""
        return subspace_angle(self.matrix, other.matrix, k, _member(Units, scaling, "scaling"))

    def mahalanobis(
        self, rows: ArrayLike, columns: Sequence[str] | None = None, *, level: float = LEVEL
    ) -> Distances:
        """Distances of rows that you hold, in standard deviations of the release. Nothing is sent.

        Shape: rows (n, m), in the columns' own units and order; a table's columns are found by their names.

        Raises:
            RequestError: code `bad-argument`: a column is missing or there twice, or rows are not finite.
        """
        matrix = self._of(columns)
        try:
            held = in_order(matrix.columns, rows)
        except ValueError as problem:
            raise RequestError(Code.BAD_ARGUMENT, str(problem)) from problem
        return mahalanobis(matrix, np.asarray(held, dtype=np.float64), level)

    def _of(self, columns: Sequence[str] | None) -> Noised:
        return self.matrix if columns is None else self.matrix.of(columns)


def _plain(result: Said | Holder | Mapping[str, Any]) -> Mapping[str, Any]:
    """A result as plain values, whatever holds it."""
    if isinstance(result, Mapping):
        return result if "covariance" in result or "result" not in result else _plain(result["result"])
    holder: Any = result
    held: Said = getattr(holder, "result", holder)
    return held.to_dict()


def _member(kind: type[Word], word: str | Word, name: str) -> Word:
    """The member of that word.

    Raises:
        RequestError: there is none.
    """
    try:
        return kind(word)
    except ValueError as problem:
        known = ", ".join(one.value for one in kind)
        raise RequestError(Code.BAD_ARGUMENT, f"{name} {word!r}: choose one of {known}") from problem
