"""Questions about gradients: how long they are, and their clipped sum."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil.accounting.neighbours import Neighbours
from eigenveil.numerics.encoding import IntArray
from eigenveil.queries.batch import Batch
from eigenveil.queries.limits import (
    DIRECTION_LIMIT,
    GRADIENT_LIMIT,
    PULL,
    PULL_LIMIT,
    check_centre,
    check_edges,
    check_whole,
    freeze,
    need,
    root_up,
    within,
)
from eigenveil.queries.possible import at_most, is_histogram, is_short, most


def pull_norm2(pull: IntArray) -> int:
    """||pull||_F^2, exact: with entries within `PULL_LIMIT` no sum of up to 2^29 squares leaves int64."""
    return int((pull * pull).sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradientSpec:
    """The per-record gradient g(z) = z (z . W) / 2**shift, and PULL pull, which is subtracted from it.

    Shape: centre (d,), directions W (d, k), pull (d, k).
    """

    centre: IntArray
    directions: IntArray
    pull: IntArray
    shift: int

    def __post_init__(self) -> None:
        freeze(self, "centre", "directions", "pull")
        check_centre(self.centre)
        d = self.centre.size
        need(
            self.directions.ndim == 2
            and self.directions.shape[0] == d
            and 1 <= self.directions.shape[1] <= d,
            "directions must be a d-by-k matrix with 1 <= k <= d",
        )
        need(self.pull.shape == self.directions.shape, "pull must have the shape of directions")
        check_whole("shift", self.shift, 0, 60)
        need(
            within(self.directions, DIRECTION_LIMIT),
            f"directions must have entries of at most {DIRECTION_LIMIT}",
        )
        need(
            within(self.pull, PULL_LIMIT) and pull_norm2(self.pull) <= PULL_LIMIT**2,
            f"the pull must have norm of at most {GRADIENT_LIMIT} / {PULL}",
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradientNorms:
    """Histogram of 2**shift ||g(z) - PULL pull||_F, bins as in `RowNorms`.

    With `part`, over that part of the records alone.

    Shape: edges (b,); answer (b + 1,).
    """

    field: GradientSpec
    edges: IntArray
    part: Batch | None = None

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
        if self.part is not None:
            return at_most(values, most(records))
        return is_histogram(values, records)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gradient:
    """Sum of clip_R(g(z) - PULL pull), each record as z b^T - u pull with integers b, u.

    With `part`, over that part of the records alone.

    Shape: answer (d k,), the d-by-k matrix row by row.
    """

    field: GradientSpec
    radius: int
    part: Batch | None = None

    def __post_init__(self) -> None:
        check_whole("gradient radius", self.radius, 1, GRADIENT_LIMIT)

    @property
    def length(self) -> int:
        """d k."""
        return self.field.directions.size

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
