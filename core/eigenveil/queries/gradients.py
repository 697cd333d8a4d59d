"""Queries about gradients: how long they are, their clipped sum, and one alone in a secret order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from eigenveil.accounting.neighbours import Neighbours
from eigenveil.numerics.encoding import IntArray
from eigenveil.queries.batch import Batch
from eigenveil.queries.contract import Kind
from eigenveil.queries.describe import Description, histogram, numbered
from eigenveil.queries.limits import (
    DIRECTION_LIMIT,
    GRADIENT_LIMIT,
    OFFSET_LIMIT,
    OFFSET_STEPS,
    check_bins,
    check_centre,
    check_edges,
    check_floor,
    check_whole,
    freeze,
    need,
    root_up,
    row_norm_limit,
    within,
)
from eigenveil.queries.possible import at_most, falling_sum, is_histogram, is_short, most
from eigenveil.queries.rows import all_in_the_middle, one_bin
from eigenveil.study.study import Study


def offset_norm2(offset: IntArray) -> int:
    """||offset||_F^2, exact: with entries within `OFFSET_LIMIT` no sum of up to 2^29 squares leaves int64."""
    return int((offset * offset).sum())


def least_gradient_radius(offset: IntArray) -> int:
    """The least clip radius of gradients z b^T - u offset, b (k,): shortened to it, a record as long as
    there can be still has some coefficient of at least 1, in b or u. Shape: offset (d, k).

    Truncation may add sqrt(k) ||z|| + ||offset||, which the coefficients leave free (`clipping`). As much
    again is for them: with m the larger of max |a| and OFFSET_STEPS, a record is at most
    m (sqrt(k) ||z|| + ||offset||) long, so that m, shortened, is 1 or more. The last 1 is for the rounding of
    floats.
    """
    d, k = offset.shape
    truncated = root_up(k) * row_norm_limit(d) + root_up(offset_norm2(offset))
    return min(2 * truncated + 1, GRADIENT_LIMIT)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradientSpec:
    """The per-record gradient g(z) = z (z . W) / 2**shift, less OFFSET_STEPS offset.

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

    @property
    def k(self) -> int:
        return int(self.directions.shape[1])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradientNorms:
    """Histogram of 2**shift ||g(z) - OFFSET_STEPS offset||_F, bins as in `RowNorms`.

    With `batch`, over that batch of the records alone.

    Shape: edges (b,); answer (b + 1,).
    """

    kind: ClassVar[Kind] = "gradient_norms"
    meaning: ClassVar[str] = "how many records pull how hard on the current directions (a histogram)"
    bound: ClassVar[int] = 1
    spec: GradientSpec
    edges: IntArray
    batch: Batch | None = None

    l1 = l2_squared = one_bin
    check_honest = check_bins
    imagined = all_in_the_middle

    def __post_init__(self) -> None:
        freeze(self, "edges")
        check_edges(self.edges)

    @property
    def length(self) -> int:
        return self.edges.size + 1

    def possible(self, values: IntArray, records: range) -> bool:
        if self.batch is not None:
            return at_most(values, most(records))
        return is_histogram(self, values, records)

    def describe(self, study: Study) -> Description:
        return histogram(self.edges, "lengths of gradients, scaled to integers")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gradient:
    """Sum of clip_R(g(z) - OFFSET_STEPS offset), each record as z b^T - u offset with integers b, u.

    With `batch`, over that batch of the records alone.

    Shape: answer (d k,), the d-by-k matrix row by row.
    """

    kind: ClassVar[Kind] = "gradient"
    meaning: ClassVar[str] = (
        "the sum of the records' pulls on the current directions, each shortened to a public radius"
    )
    spec: GradientSpec
    radius: int
    batch: Batch | None = None

    imagined = falling_sum

    def __post_init__(self) -> None:
        check_whole("gradient radius", self.radius, 1, GRADIENT_LIMIT)

    @property
    def length(self) -> int:
        return self.spec.directions.size

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: sqrt(d k) times the one in L2."""
        return root_up(self.length * self.l2_squared(neighbours))

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: a record adds a matrix of Frobenius norm <= R; two such differ by 2 R."""
        return (self.radius * neighbours.records) ** 2

    @property
    def bound(self) -> int:
        return self.radius

    def possible(self, values: IntArray, records: range) -> bool:
        return is_short(values, most(records) * self.radius)

    def check_honest(self) -> None:
        check_floor(self.radius, least_gradient_radius(self.spec.offset))

    def describe(self, study: Study) -> Description:
        directions = range(1, self.spec.k + 1)
        pulls = [f"{column.name}, pull on direction {i}" for column in study.columns for i in directions]
        return numbered(self, study, pulls)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShuffledRecord:
    """The clipped gradient (see `Gradient`) of the record at place `batch.index` of `batch.batches`, or 0.

    The order is a secret of the site. What the site sends is about one record, not a sum: the coordinator
    is trusted with it and adds the noise of one local randomiser.

    Shape: answer and release (d k,), the d-by-k matrix row by row.
    """

    kind: ClassVar[Kind] = "slot"
    meaning: ClassVar[str] = (
        "one single record's pull on the current directions, shortened to a public radius: the coordinator "
        "sees it without noise, but not which record it is"
    )
    spec: GradientSpec
    radius: int
    batch: Batch

    imagined = falling_sum
    describe = numbered

    def __post_init__(self) -> None:
        need(isinstance(self.batch, Batch), "a record in a secret order is one of a pass")
        check_whole("gradient radius", self.radius, 1, GRADIENT_LIMIT)

    @property
    def length(self) -> int:
        return self.spec.directions.size

    @property
    def released(self) -> int:
        return self.length

    def diameter_squared(self) -> int:
        """Sensitivity: two gradients in a ball of radius R are at most 2 R apart."""
        return 4 * self.radius**2

    @property
    def bound(self) -> int:
        return self.radius

    def possible(self, values: IntArray, records: range) -> bool:
        return is_short(values, min(most(records), 1) * self.radius)

    def check_honest(self) -> None:
        check_floor(self.radius, least_gradient_radius(self.spec.offset))
