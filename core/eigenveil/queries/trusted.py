"""Queries answered from exact sums that only a trusted coordinator may hold.

No secure aggregation can serve them. Sites send what they send for `Gram` or `RowNorms`; what is done to the
sum behind the barrier is in eigenveil.mechanisms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.queries.contract import Kind
from eigenveil.queries.describe import Description, column_products, histogram
from eigenveil.queries.limits import (
    MOST_RECORDS,
    check_centre,
    check_edges,
    check_radius,
    check_row_floor,
    check_whole,
    freeze,
    need,
    on_grid,
    triangle,
)
from eigenveil.queries.possible import falling, is_gram, is_histogram
from eigenveil.queries.rows import EDGES_OF_ROWS
from eigenveil.study.study import Study

VECTOR_BITS = 24
VECTOR: int = 2**VECTOR_BITS  # a unit vector is released in steps of 1 / VECTOR
GAUSSIAN, CAUCHY, TESTED = "smooth-gaussian", "smooth-cauchy", "propose-test-release"
FRAME_BITS = 40
FRAME: int = 2**FRAME_BITS  # an entry of a subspace is released in steps of 1 / FRAME, far below any noise
GAP_STEPS = 64  # a released bound of the gap is in steps of 1 / GAP_STEPS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spectrum:
    """All eigenvalues of the sum of z z^T over rows shortened to ||z|| <= R, falling, with noise.

    Shape: centre (d,); answer (d (d + 1) / 2,) as `Gram`; release (d,) in the units of the Gram matrix.
    `records` bounds how many records the sum can hold; the float error of the eigenvalues rests on it.
    """

    kind: ClassVar[Kind] = "spectrum"
    meaning: ClassVar[str] = (
        "the sum of products of column pairs, of which only the noised eigenvalues are released"
    )
    centre: IntArray
    radius: int
    records: int

    def __post_init__(self) -> None:
        freeze(self, "centre")
        check_centre(self.centre)
        check_radius(self.radius, self.centre)
        check_whole("records", self.records, 1, MOST_RECORDS)

    @property
    def length(self) -> int:
        return triangle(self.centre.size)

    @property
    def released(self) -> int:
        return self.centre.size

    @property
    def bound(self) -> int:
        return int(self.radius**2)

    def possible(self, values: IntArray, records: range) -> bool:
        return is_gram(values, self.centre.size, self.radius, records)

    def check_honest(self) -> None:
        check_row_floor(self.radius, self.centre)

    def imagined(self, records: int) -> IntArray:
        return falling(records * self.radius**2 // (4 * self.released), self.released)

    def describe(self, study: Study) -> Description:
        return column_products(study, self.radius)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Eigenvectors:
    """`count` random directions, each likely to be long in the same sum of z z^T, at right angles.

    Shape: centre (d,); answer (d (d + 1) / 2,) as `Gram`; release (count d,), vector after vector, in steps
    of 1 / VECTOR. `records` bounds how many records the sum can hold; the float error rests on it.
    """

    kind: ClassVar[Kind] = "eigenvectors"
    meaning: ClassVar[str] = (
        "the sum of products of column pairs, of which only random directions are released"
    )
    centre: IntArray
    radius: int
    records: int
    count: int

    def __post_init__(self) -> None:
        freeze(self, "centre")
        check_centre(self.centre)
        check_radius(self.radius, self.centre)
        check_whole("records", self.records, 1, MOST_RECORDS)
        check_whole("number of vectors", self.count, 1, self.centre.size)

    @property
    def length(self) -> int:
        return triangle(self.centre.size)

    @property
    def released(self) -> int:
        return self.count * self.centre.size

    @property
    def bound(self) -> int:
        return int(self.radius**2)

    def possible(self, values: IntArray, records: range) -> bool:
        return is_gram(values, self.centre.size, self.radius, records)

    def check_honest(self) -> None:
        check_row_floor(self.radius, self.centre)

    def imagined(self, records: int) -> IntArray:
        return frozen(VECTOR * np.eye(self.count, self.centre.size, dtype=np.int64).reshape(-1))

    def describe(self, study: Study) -> Description:
        return column_products(study, self.radius)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subspace:
    """The leading `count` eigenvectors of the same sum of z z^T, noised by how far one person can turn them.

    `mechanism` scales the noise by the smooth sensitivity (`smooth-gaussian`, `smooth-cauchy`), or by a
    lower bound of the gap that is tested first (`propose-test-release`).

    Shape: centre (d,); answer (d (d + 1) / 2,) as `Gram`; release (d count + 1,): a d-by-count matrix row by
    row in steps of 1 / FRAME, turned at random within its span, then the gap's bound in steps of
    1 / GAP_STEPS (0 unless tested; all zeros if the test fails). `records` bounds how many records the sum
    can hold.
    """

    kind: ClassVar[Kind] = "subspace"
    meaning: ClassVar[str] = (
        "the sum of products of column pairs, of which only noised directions are released"
    )
    centre: IntArray
    radius: int
    records: int
    count: int
    mechanism: str

    def __post_init__(self) -> None:
        freeze(self, "centre")
        check_centre(self.centre)
        check_radius(self.radius, self.centre)
        check_whole("records", self.records, 1, MOST_RECORDS)
        check_whole("number of vectors", self.count, 1, self.centre.size)
        need(self.mechanism in (GAUSSIAN, CAUCHY, TESTED), f"mechanism {self.mechanism!r} is unknown")

    @property
    def length(self) -> int:
        return triangle(self.centre.size)

    @property
    def released(self) -> int:
        return self.centre.size * self.count + 1

    @property
    def bound(self) -> int:
        return int(self.radius**2)

    def possible(self, values: IntArray, records: range) -> bool:
        return is_gram(values, self.centre.size, self.radius, records)

    def check_honest(self) -> None:
        check_row_floor(self.radius, self.centre)

    def imagined(self, records: int) -> IntArray:
        leading = FRAME * np.eye(self.centre.size, self.count, dtype=np.int64)
        return frozen(np.append(leading.reshape(-1), 1))

    def describe(self, study: Study) -> Description:
        return column_products(study, self.radius)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RadiusSearch:
    """The first edge beyond which few enough records lie: #{||z|| >= edges[j]} <= limits[j], both noised.

    Edges are tried from the smallest on.

    Shape: centre (d,), edges (b,), limits (b,) in records; answer (b + 1,) as `RowNorms`; release (1,): the
    index j, or b if no edge will do.
    """

    kind: ClassVar[Kind] = "radius_search"
    meaning: ClassVar[str] = (
        "how many records lie how far from the public centre, of which one radius is released"
    )
    bound: ClassVar[int] = 1
    released: ClassVar[int] = 1
    centre: IntArray
    edges: IntArray
    limits: IntArray

    def __post_init__(self) -> None:
        freeze(self, "centre", "edges", "limits")
        check_centre(self.centre)
        check_edges(self.edges)
        need(int(self.edges[-1]) < 2**31, "row norm edges must stay below 2**31")
        need(self.limits.shape == self.edges.shape, "every edge has a limit")
        inside = bool(((self.limits >= 0) & (self.limits <= MOST_RECORDS)).all())
        need(inside, f"limits are numbers of records, from 0 to {MOST_RECORDS}")

    @property
    def length(self) -> int:
        return self.edges.size + 1

    def possible(self, values: IntArray, records: range) -> bool:
        return is_histogram(values, records)

    def check_honest(self) -> None:
        need(on_grid(self.edges), "a search for a radius has other edges than the public grid")

    def imagined(self, records: int) -> IntArray:
        return frozen([self.edges.size // 2])

    def describe(self, study: Study) -> Description:
        return histogram(self.edges, EDGES_OF_ROWS)
