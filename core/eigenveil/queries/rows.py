"""Queries about rows: count, norms about a public centre, clipped sums and products."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.queries.contract import (
    QueryDescription,
    QueryKind,
    QueryProtocol,
    assumed_sum,
    column_products,
    decreasing_values,
    describe_histogram,
    is_gram_of,
    is_histogram,
    is_within_norm,
    largest_count,
)
from eigenveil.queries.limits import (
    WEIGHT,
    ceil_sqrt,
    check_bins,
    check_centre,
    check_clipped,
    check_edges,
    check_row_floor,
    freeze,
    require,
    triangle,
)
from eigenveil.study.grid import steps
from eigenveil.study.study import Study

EDGES_OF_ROWS = "distances from the centre, in grid steps"


def histogram_sensitivity(query: object, neighbours: Neighbours) -> int:
    """Sensitivity of a histogram in L1, and squared in L2: a record is one count in one bin. A replacement
    moves one count to another bin: 1 + 1, and 1^2 + 1^2."""
    return neighbours.records


def assumed_histogram(query: QueryProtocol, records: int) -> IntArray:
    """Return an assumed histogram with all records in the middle bin. Shape: (length,)."""
    return frozen(records * (np.arange(query.length) == query.length // 2))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Count:
    """Number of usable records.

    Shape: answer (1,).
    """

    kind: ClassVar[QueryKind] = "count"
    meaning: ClassVar[str] = "the number of usable records"
    bound: ClassVar[int] = 1
    centre: ClassVar[None] = None
    length: int = field(default=1, init=False)

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: as in L2."""
        return 1

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: one record counts at most one. Under replace-one, a replacement may be dropped as
        incomplete, so it is 1 as well."""
        return 1

    def is_plausible(self, values: IntArray, records: range) -> bool:
        return int(values[0]) in records

    def check_honest(self) -> None:
        """Accept: there is only one such query."""

    def assumed_release(self, records: int) -> IntArray:
        return frozen([records])

    def describe(self, study: Study) -> QueryDescription:
        return QueryDescription(labels=["usable records"], unit="one record")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowNorms:
    """Histogram of ||z||: bin i counts edges[i-1] <= ||z|| < edges[i].

    Shape: centre (d,), edges (b,); answer (b + 1,).
    """

    kind: ClassVar[QueryKind] = "row_norms"
    meaning: ClassVar[str] = "a histogram of the records' distances from the public centre"
    bound: ClassVar[int] = 1
    centre: IntArray
    edges: IntArray

    l1 = l2_squared = histogram_sensitivity
    is_plausible = is_histogram
    check_honest = check_bins
    assumed_release = assumed_histogram

    def __post_init__(self) -> None:
        freeze(self, "centre", "edges")
        check_centre(self.centre)
        check_edges(self.edges)
        require(int(self.edges[-1]) < 2**31, "row norm edges must stay below 2**31")

    @property
    def length(self) -> int:
        return self.edges.size + 1

    def describe(self, study: Study) -> QueryDescription:
        return describe_histogram(self.edges, EDGES_OF_ROWS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClippedSum:
    """Sum of t z, t = floor(WEIGHT min(1, R / ||z||)): rows clipped to norm R.

    Shape: centre (d,); answer (d,), in units of 1 / WEIGHT of the row grid.
    """

    kind: ClassVar[QueryKind] = "clipped_sum"
    meaning: ClassVar[str] = "the sum of the records, each clipped to a public radius"
    centre: IntArray
    radius: int

    check_honest = check_row_floor
    assumed_release = assumed_sum

    def __post_init__(self) -> None:
        check_clipped(self)

    @property
    def length(self) -> int:
        return self.centre.size

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: sqrt(d) times the one in L2."""
        return ceil_sqrt(self.length * self.l2_squared(neighbours))

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: a record adds a vector of norm <= WEIGHT R; two such differ by 2 WEIGHT R."""
        return (WEIGHT * self.radius * neighbours.records) ** 2

    @property
    def bound(self) -> int:
        return WEIGHT * self.radius

    def is_plausible(self, values: IntArray, records: range) -> bool:
        return is_within_norm(values, largest_count(records) * WEIGHT * self.radius)

    def describe(self, study: Study) -> QueryDescription:
        return QueryDescription(
            labels=[f"{column.name}, sum" for column in study.columns],
            unit=f"1/{WEIGHT} of a grid step from the centre, after clipping",
            factors=tuple(float(one) / WEIGHT for one in steps(study)),
            names=tuple(column.unit for column in study.columns),
            radius=self.radius,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SquaredNormSum:
    """Sum of min(||z||^2, R^2).

    Shape: centre (d,); answer (1,).
    """

    kind: ClassVar[QueryKind] = "squared_norm_sum"
    meaning: ClassVar[str] = (
        "the sum of squared distances from the public centre, each limited to a public radius"
    )
    centre: IntArray
    radius: int
    length: int = field(default=1, init=False)

    check_honest = check_row_floor

    def __post_init__(self) -> None:
        check_clipped(self)

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
        return 0 <= int(values[0]) <= largest_count(records) * self.radius**2

    def assumed_release(self, records: int) -> IntArray:
        return frozen([0])  # with it a dry run of adaptive-cov asks every kind of its queries

    def describe(self, study: Study) -> QueryDescription:
        return QueryDescription(
            labels=["squared distances from the centre, each limited, sum"],
            unit="one squared grid step from the centre, after clipping",
            radius=self.radius,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gram:
    """Sum of z z^T over rows clipped to ||z|| <= R (entries truncated towards zero).

    `flat` selects the same noise on every entry, as in the Analyze Gauss paper, instead of the symmetric
    form [P3], which is never worse.

    Shape: centre (d,); answer (d (d + 1) / 2,): the diagonal, then the strict upper triangle row by row.
    """

    kind: ClassVar[QueryKind] = "gram"
    meaning: ClassVar[str] = (
        "the sum of products of column pairs over the records, each clipped to a public radius"
    )
    centre: IntArray
    radius: int
    flat: bool = False

    is_plausible = is_gram_of
    check_honest = check_row_floor
    describe = column_products

    def __post_init__(self) -> None:
        check_clipped(self)

    @property
    def length(self) -> int:
        return triangle(self.centre.size)

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity of the upper triangle in L1: (sum of all |entries| + trace) / 2.

        ||z z^T||_1 <= d R^2, trace <= R^2. Replaced: the difference has Frobenius norm <= sqrt(2) R^2,
        hence ||.||_1 <= sqrt(2) d R^2, and a diagonal of L1 norm <= 2 R^2.
        """
        d, square = self.centre.size, self.radius**2
        if neighbours is Neighbours.ADD_REMOVE:
            return -(-(d + 1) * square // 2)
        return -(-(ceil_sqrt(2 * d * d * square * square) + 2 * square) // 2)

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity in Frobenius norm: ||z z^T||_F = ||z||^2 <= R^2;
        ||x x^T - y y^T||_F^2 = |x|^4 + |y|^4 - 2 (x.y)^2 <= 2 R^4."""
        return self.radius**4 * neighbours.records

    @property
    def bound(self) -> int:
        return int(self.radius**2)

    def assumed_release(self, records: int) -> IntArray:
        d = self.centre.size
        diagonal = decreasing_values(records * self.radius**2 // (4 * d), d)
        return frozen(np.concatenate([diagonal, np.zeros(self.length - d, dtype=np.int64)]))
