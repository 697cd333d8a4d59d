"""Queries about rows: how many, how far from a public centre, their clipped sums and products."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from eigenveil.accounting.neighbours import Neighbours
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.queries.contract import Kind
from eigenveil.queries.describe import Description, column_products, histogram
from eigenveil.queries.limits import (
    WEIGHT,
    check_bins,
    check_centre,
    check_edges,
    check_radius,
    check_row_floor,
    freeze,
    need,
    root_up,
    triangle,
)
from eigenveil.queries.possible import falling, is_gram, is_histogram, is_short, most
from eigenveil.study.grid import steps
from eigenveil.study.study import Study

EDGES_OF_ROWS = "distances from the centre, in grid steps"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Count:
    """How many records.

    Shape: answer (1,).
    """

    kind: ClassVar[Kind] = "count"
    meaning: ClassVar[str] = "the number of usable records"
    bound: ClassVar[int] = 1
    centre: ClassVar[None] = None
    length: int = field(default=1, init=False)

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: as in L2."""
        return 1

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: one record counts at most one; under replace-one with a rule that drops
        incomplete records, the replaced record may disappear, so 1 there too."""
        return 1

    def possible(self, values: IntArray, records: range) -> bool:
        return int(values[0]) in records

    def check_honest(self) -> None:
        """There is only one such question."""

    def imagined(self, records: int) -> IntArray:
        return frozen([records])

    def describe(self, study: Study) -> Description:
        return Description(labels=["usable records"], unit="one record")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowNorms:
    """Histogram of ||z||: bin i counts edges[i-1] <= ||z|| < edges[i].

    Shape: centre (d,), edges (b,); answer (b + 1,).
    """

    kind: ClassVar[Kind] = "row_norms"
    meaning: ClassVar[str] = "how many records lie how far from the public centre (a histogram)"
    bound: ClassVar[int] = 1
    centre: IntArray
    edges: IntArray

    def __post_init__(self) -> None:
        freeze(self, "centre", "edges")
        check_centre(self.centre)
        check_edges(self.edges)
        need(int(self.edges[-1]) < 2**31, "row norm edges must stay below 2**31")

    @property
    def length(self) -> int:
        return self.edges.size + 1

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: one count, or two when a record is replaced."""
        return neighbours.records

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: a record sits in one bin; replacing it moves one count: 1^2 + 1^2."""
        return neighbours.records

    def possible(self, values: IntArray, records: range) -> bool:
        return is_histogram(values, records)

    def check_honest(self) -> None:
        check_bins(self.edges)

    def imagined(self, records: int) -> IntArray:
        return frozen(records * (np.arange(self.length) == self.length // 2))

    def describe(self, study: Study) -> Description:
        return histogram(self.edges, EDGES_OF_ROWS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClippedSum:
    """Sum of t z, t = floor(WEIGHT min(1, R / ||z||)): rows shortened to at most R.

    Shape: centre (d,); answer (d,), in units of 1 / WEIGHT of the row grid.
    """

    kind: ClassVar[Kind] = "clipped_sum"
    meaning: ClassVar[str] = "the sum of the records, each shortened to a public radius"
    centre: IntArray
    radius: int

    def __post_init__(self) -> None:
        freeze(self, "centre")
        check_centre(self.centre)
        check_radius(self.radius, self.centre)

    @property
    def length(self) -> int:
        return self.centre.size

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: sqrt(d) times the one in L2."""
        return root_up(self.length * self.l2_squared(neighbours))

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: a record adds a vector of norm <= WEIGHT R; two such differ by 2 WEIGHT R."""
        return (WEIGHT * self.radius * neighbours.records) ** 2

    @property
    def bound(self) -> int:
        return WEIGHT * self.radius

    def possible(self, values: IntArray, records: range) -> bool:
        return is_short(values, most(records) * WEIGHT * self.radius)

    def check_honest(self) -> None:
        check_row_floor(self.radius, self.centre)

    def imagined(self, records: int) -> IntArray:
        return falling(records * self.bound // 8, self.length)

    def describe(self, study: Study) -> Description:
        return Description(
            labels=[f"{column.name}, added up" for column in study.columns],
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

    kind: ClassVar[Kind] = "energy"
    meaning: ClassVar[str] = (
        "the sum of squared distances from the public centre, each cut off at a public radius"
    )
    centre: IntArray
    radius: int
    length: int = field(default=1, init=False)

    def __post_init__(self) -> None:
        freeze(self, "centre")
        check_centre(self.centre)
        check_radius(self.radius, self.centre)

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: one number in [0, R^2]."""
        return int(self.radius**2)

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: a record adds a number in [0, R^2], and two such differ by at most R^2."""
        return int(self.radius**4)

    @property
    def bound(self) -> int:
        return int(self.radius**2)

    def possible(self, values: IntArray, records: range) -> bool:
        return 0 <= int(values[0]) <= most(records) * self.radius**2

    def check_honest(self) -> None:
        check_row_floor(self.radius, self.centre)

    def imagined(self, records: int) -> IntArray:
        return frozen([0])  # with it adaptive-cov asks every kind of question that it ever asks

    def describe(self, study: Study) -> Description:
        return Description(
            labels=["squared distances from the centre, each cut off, added up"],
            unit="one squared grid step from the centre, after clipping",
            radius=self.radius,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gram:
    """Sum of z z^T over rows shortened to ||z|| <= R (entries truncated towards zero).

    `flat` asks for the same noise on every entry, as Analyze Gauss is printed, instead of the
    symmetric form [P3], which is never worse.

    Shape: centre (d,); answer (d (d + 1) / 2,): the diagonal, then the strict upper triangle row by row.
    """

    kind: ClassVar[Kind] = "gram"
    meaning: ClassVar[str] = (
        "the sum of products of column pairs over the records, each shortened to a public radius"
    )
    centre: IntArray
    radius: int
    flat: bool = False

    def __post_init__(self) -> None:
        freeze(self, "centre")
        check_centre(self.centre)
        check_radius(self.radius, self.centre)

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
        return -(-(root_up(2 * d * d * square * square) + 2 * square) // 2)

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity in Frobenius norm: ||z z^T||_F = ||z||^2 <= R^2;
        ||x x^T - y y^T||_F^2 = |x|^4 + |y|^4 - 2 (x.y)^2 <= 2 R^4."""
        return self.radius**4 * neighbours.records

    @property
    def bound(self) -> int:
        return int(self.radius**2)

    def possible(self, values: IntArray, records: range) -> bool:
        return is_gram(values, self.centre.size, self.radius, records)

    def check_honest(self) -> None:
        check_row_floor(self.radius, self.centre)

    def imagined(self, records: int) -> IntArray:
        d = self.centre.size
        diagonal = falling(records * self.radius**2 // (4 * d), d)
        return frozen(np.concatenate([diagonal, np.zeros(self.length - d, dtype=np.int64)]))

    def describe(self, study: Study) -> Description:
        return column_products(study, self.radius)
