"""Questions about gradients: how long they are, and their clipped sum."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil.accounting.neighbours import Neighbours
from eigenveil.numerics.encoding import IntArray
from eigenveil.queries.batch import Batch
from eigenveil.queries.limits import (
    DIRECTION_LIMIT,
    GRADIENT_LIMIT,
    OFFSET_LIMIT,
    OFFSET_STEPS,
    check_centre,
    check_edges,
    check_whole,
    freeze,
    need,
    root_up,
    within,
)
from eigenveil.queries.possible import at_most, is_histogram, is_short, most


def offset_norm2(offset: IntArray) -> int:
    """||offset||_F^2, exact: with entries within `OFFSET_LIMIT` no sum of up to 2^29 squares leaves int64."""
    return int((offset * offset).sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradientSpec:
    """The per-record gradient g(z) = z (z . W) / 2**shift, and OFFSET_STEPS offset, which is subtracted from it.

    Shape: centre (d,), directions W (d, k), offset (d, k).
    """

    centre: IntArray
    directions: IntArray
    offset: IntArray
    shift: int

    def __post_init__(self) -> None:
        freeze(self, "centre", "directions", "offset")
        check_centre(self.centre)
        d = self.centre.size
        need(
            self.directions.ndim == 2
            and self.directions.shape[0] == d
            and 1 <= self.directions.shape[1] <= d,
            "directions must be a d-by-k matrix with 1 <= k <= d",
        )
        need(self.offset.shape == self.directions.shape, "offset must have the shape of directions")
        check_whole("shift", self.shift, 0, 60)
        need(
            within(self.directions, DIRECTION_LIMIT),
            f"directions must have entries of at most {DIRECTION_LIMIT}",
        )
        need(
            within(self.offset, OFFSET_LIMIT) and offset_norm2(self.offset) <= OFFSET_LIMIT**2,
            f"the offset must have norm of at most {GRADIENT_LIMIT} / {OFFSET_STEPS}",
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradientNorms:
    """Histogram of 2**shift ||g(z) - OFFSET_STEPS offset||_F, bins as in `RowNorms`.

    With `part`, over that part of the records alone.

    Shape: edges (b,); answer (b + 1,).
    """

    spec: GradientSpec
    edges: IntArray
    batch: Batch | None = None

    def __post_init__(self) -> None:
        freeze(self, "edges")
        check_edges(self.edges)

    @property
    def length(self) -> int:
        """Number of bins."""
        return self.edges.size + 1

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: one count, or two when a record is replaced."""
        return 1 if neighbours is Neighbours.ADD_REMOVE else 2

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: a record sits in one bin; replacing it moves one count: 1^2 + 1^2."""
        return 1 if neighbours is Neighbours.ADD_REMOVE else 2

    def bound(self) -> int:
        """Largest magnitude one record adds to an entry."""
        return 1

    def possible(self, values: IntArray, records: range) -> bool:
        """Whether an honest site could answer this."""
        if self.batch is not None:
            return at_most(values, most(records))
        return is_histogram(values, records)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gradient:
    """Sum of clip_R(g(z) - OFFSET_STEPS offset), each record as z b^T - u offset with integers b, u.

    With `part`, over that part of the records alone.

    Shape: answer (d k,), the d-by-k matrix row by row.
    """

    spec: GradientSpec
    radius: int
    batch: Batch | None = None

    def __post_init__(self) -> None:
        check_whole("gradient radius", self.radius, 1, GRADIENT_LIMIT)

    @property
    def length(self) -> int:
        """d k."""
        return self.spec.directions.size

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: sqrt(d k) times the one in L2."""
        return root_up(self.length * self.l2_squared(neighbours))

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: a record adds a matrix of Frobenius norm <= R; two such differ by 2 R."""
        return self.radius**2 * (1 if neighbours is Neighbours.ADD_REMOVE else 4)

    def bound(self) -> int:
        """Largest magnitude one record adds to an entry."""
        return self.radius

    def possible(self, values: IntArray, records: range) -> bool:
        """Whether an honest site could answer this."""
        return is_short(values, most(records) * self.radius)
