"""Queries about rows: count, norms about a public centre, clipped sums and products."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.queries.contract import (
    ClippedRows,
    ClippedVectors,
    EdgeHistogram,
    GramAnswer,
    NormBins,
    QueryDescription,
    QueryKind,
    check_public,
    decreasing_values,
    mark,
)
from eigenveil.queries.limits import (
    WEIGHT,
    ceil_sqrt,
    check_centre,
    freeze,
    require,
)
from eigenveil.study.grid import steps
from eigenveil.study.study import Study


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Count:
    """Number of usable records. Shape: answer (1,)."""

    kind: ClassVar[QueryKind] = "count"
    label: ClassVar[str] = "number of records"
    lay_meaning: ClassVar[str] = mark("how many patients have usable values in these columns")
    meaning: ClassVar[str] = "the number of usable records"
    bound: ClassVar[int] = 1
    length: int = field(default=1, init=False)
    check_honest = check_public

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: as in L2."""
        return 1

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: one record counts at most one. Under replace-one, a replacement may be dropped as
        incomplete, so it is 1 as well."""
        return 1

    def is_plausible(self, values: IntArray, records: range) -> bool:
        return int(values[0]) in records

    def assumed_release(self, records: int) -> IntArray:
        return frozen([records])

    def describe(self, study: Study) -> QueryDescription:
        return QueryDescription(labels=["usable records"], unit="one record")


class RowBins(EdgeHistogram):
    """Histogram of ||z||. Shape: centre (d,)."""

    __slots__ = ()
    edge_meaning: ClassVar[str] = "distances from the centre, in grid steps"
    centre: IntArray

    def __post_init__(self) -> None:
        freeze(self, "centre")
        check_centre(self.centre)
        EdgeHistogram.__post_init__(self)
        require(int(self.edges[-1]) < 2**31, "row norm edges must stay below 2**31")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowNorms(RowBins, NormBins):
    """`RowBins` plus noise."""

    kind: ClassVar[QueryKind] = "row_norms"
    label: ClassVar[str] = "distances from the centre, counted"
    lay_meaning: ClassVar[str] = mark(
        "patients sorted into steps by how far their values lie from a middle: only the number in each step"
    )
    meaning: ClassVar[str] = "a histogram of the records' distances from the public centre"
    centre: IntArray
    edges: IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClippedSum(ClippedRows, ClippedVectors):
    """Sum of t z, t = floor(WEIGHT min(1, R / ||z||)): rows clipped to norm R.
    Shape: centre (d,); answer (d,), in units of 1 / WEIGHT of the row grid."""

    kind: ClassVar[QueryKind] = "clipped_sum"
    label: ClassVar[str] = "sums of the columns"
    lay_meaning: ClassVar[str] = mark("the values of each measurement, added up over all patients")
    meaning: ClassVar[str] = "the sum of the records, each clipped to a public radius"
    weight: ClassVar[int] = WEIGHT

    @property
    def length(self) -> int:
        return self.centre.size

    def assumed_release(self, records: int) -> IntArray:
        """Return zeros: the centre is the assumed mean already."""
        return frozen(np.zeros(self.length, dtype=np.int64))

    def describe(self, study: Study) -> QueryDescription:
        return QueryDescription(
            labels=[f"{column.name}, sum" for column in study.columns],
            unit=f"1/{WEIGHT} of a grid step from the centre, after clipping",
            factors=tuple(float(one) / WEIGHT for one in steps(study)),
            names=tuple(column.unit for column in study.columns),
            radius=self.radius,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SquaredNormSum(ClippedRows):
    """Sum of min(||z||^2, R^2). Shape: centre (d,); answer (1,)."""

    kind: ClassVar[QueryKind] = "squared_norm_sum"
    label: ClassVar[str] = "sum of squared distances"
    lay_meaning: ClassVar[str] = mark("one sum over all patients: how far they lie from the middle, squared")
    meaning: ClassVar[str] = (
        "the sum of squared distances from the public centre, each limited to a public radius"
    )
    length: int = field(default=1, init=False)

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: one number in [0, R^2]."""
        return int(self.radius**2)

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: a record adds a number in [0, R^2], and two such differ by at most R^2."""
        return int(self.radius**4)

    @property
    def bound(self) -> int:
        return int(self.radius**2)

    def is_plausible(self, values: IntArray, records: range) -> bool:
        return 0 <= int(values[0]) <= records[-1] * self.radius**2

    def assumed_release(self, records: int) -> IntArray:
        return frozen([0])  # with it a dry run of adaptive-cov asks every kind of its queries

    def describe(self, study: Study) -> QueryDescription:
        return QueryDescription(
            labels=["squared distances from the centre, each limited, sum"],
            unit="one squared grid step from the centre, after clipping",
            radius=self.radius,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gram(GramAnswer):
    """`GramAnswer` plus noise. `flat` selects the same noise on every entry, as in the Analyze Gauss paper,
    instead of the symmetric form [P3], which is never worse."""

    kind: ClassVar[QueryKind] = "gram"
    label: ClassVar[str] = "sums and products of the columns"
    lay_meaning: ClassVar[str] = mark(
        "for every two measurements, and each with itself: the two values of a patient multiplied, and this "
        "added up over all patients"
    )
    meaning: ClassVar[str] = (
        "the sum of products of column pairs over the records, each clipped to a public radius"
    )
    flat: bool = False

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity of the upper triangle in L1: (sum of all |entries| + trace) / 2. ||z z^T||_1 <= d R^2,
        trace <= R^2. Replaced: the difference has Frobenius norm <= sqrt(2) R^2, hence ||.||_1 <= sqrt(2) d
        R^2, and a diagonal of L1 norm <= 2 R^2."""
        d, square = self.centre.size, self.radius**2
        if neighbours is Neighbours.ADD_REMOVE:
            return -(-(d + 1) * square // 2)
        return -(-(ceil_sqrt(2 * d * d * square * square) + 2 * square) // 2)

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity in Frobenius norm: ||z z^T||_F = ||z||^2 <= R^2;
        ||x x^T - y y^T||_F^2 = |x|^4 + |y|^4 - 2 (x.y)^2 <= 2 R^4."""
        return self.radius**4 * neighbours.records

    def assumed_release(self, records: int) -> IntArray:
        d = self.centre.size
        diagonal = decreasing_values(records * self.radius**2 // (4 * d), d)
        return frozen(np.concatenate([diagonal, np.zeros(self.length - d, dtype=np.int64)]))
