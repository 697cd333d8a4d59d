"""Queries about gradients of disjoint batches: a histogram of norms, the clipped sum, and single records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eigenveil.numerics.encoding import IntArray, digest
from eigenveil.queries.contract import (
    ClippedVectors,
    NormBins,
    QueryDescription,
    QueryKind,
    assumed_sum,
    describe_numbers,
    mark,
)
from eigenveil.queries.limits import (
    DIRECTION_LIMIT,
    GRADIENT_LIMIT,
    OFFSET_LIMIT,
    OFFSET_STEPS,
    ceil_sqrt,
    check_centre,
    check_floor,
    check_whole,
    counts_within,
    freeze,
    is_within_norm,
    require,
    row_norm_limit,
    within_limit,
)
from eigenveil.study.study import Study

MOST_BATCHES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Batch `index` of `batches`. The pass began and was charged in round `first`; round first + i queries i.
    One pass over the data allows many queries at the cost of one. The batch of a record depends only on that
    record, its number among equal records and a public key. So one more record adds to one batch only
    (parallel composition, [P9]).
    Shape: key (4,), from `pass_key`; each pass deals the records anew."""

    first_round: int
    index: int
    batches: int
    key: IntArray

    def __post_init__(self) -> None:
        freeze(self, "key")
        check_whole("number of batches", self.batches, 1, MOST_BATCHES)
        check_whole("batch", self.index, 0, self.batches - 1)
        check_whole("first round of the pass", self.first_round, 0, 2**31)
        require(self.key.shape == (4,), "a pass needs a key of four integers")


def pass_key(plan_digest: str, first: int, batches: int) -> IntArray:
    """Return the key that deals records into batches in the pass from round `first` on. Shape: (4,)."""
    text = digest("pass", {"plan": plan_digest, "first": first, "batches": batches})
    return np.frombuffer(bytes.fromhex(text), dtype="<i8").astype(np.int64)


def offset_norm2(offset: IntArray) -> int:
    """Return ||offset||_F^2, exact: within `OFFSET_LIMIT` no sum of up to 2^29 squares leaves int64."""
    return int((offset * offset).sum())


def least_gradient_radius(offset: IntArray) -> int:
    """Return the least clip radius of gradients z b^T - u offset, b (k,). Shape: offset (d, k). A record of
    the largest possible norm, clipped to it, keeps some coefficient of at least 1 in b or u. Truncation may
    add sqrt(k) ||z|| + ||offset||, which the coefficients leave free (`clipping`). As much again is for them:
    with m the larger of max |a| and OFFSET_STEPS, the norm is at most m (sqrt(k) ||z|| + ||offset||), so the
    clipped m is 1 or more. The last 1 is for float rounding."""
    d, k = offset.shape
    truncated = ceil_sqrt(k) * row_norm_limit(d) + ceil_sqrt(offset_norm2(offset))
    return min(2 * truncated + 1, GRADIENT_LIMIT)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradientSpec:
    """Per-record gradient g(z) = z (z . W) / 2**shift, minus OFFSET_STEPS offset.
    Shape: centre (d,), directions W (d, k), offset (d, k)."""

    centre: IntArray
    directions: IntArray
    offset: IntArray
    shift: int

    def __post_init__(self) -> None:
        freeze(self, "centre", "directions", "offset")
        check_centre(self.centre)
        d = self.centre.size
        require(
            self.directions.ndim == 2
            and self.directions.shape[0] == d
            and 1 <= self.directions.shape[1] <= d,
            "directions must be a d-by-k matrix with 1 <= k <= d",
        )
        require(
            self.offset.shape == self.directions.shape, "the offset must have the shape of the directions"
        )
        check_whole("shift", self.shift, 0, 60)
        require(
            within_limit(self.directions, DIRECTION_LIMIT),
            f"directions must have entries of at most {DIRECTION_LIMIT}",
        )
        require(
            within_limit(self.offset, OFFSET_LIMIT) and offset_norm2(self.offset) <= OFFSET_LIMIT**2,
            f"the offset must have norm of at most {GRADIENT_LIMIT} / {OFFSET_STEPS}",
        )

    @property
    def k(self) -> int:
        return int(self.directions.shape[1])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradientNorms(NormBins):
    """Histogram of 2**shift ||g(z) - OFFSET_STEPS offset||_F; with `batch`, only over that batch."""

    kind: ClassVar[QueryKind] = "gradient_norms"
    label: ClassVar[str] = "sizes of the improvements, counted"
    lay_meaning: ClassVar[str] = mark(
        "patients sorted into steps by how much they count for the next improvement: only the number in each "
        "step"
    )
    meaning: ClassVar[str] = "a histogram of the norms of the records' gradients at the current directions"
    edge_meaning: ClassVar[str] = "norms of gradients, scaled to integers"
    spec: GradientSpec
    edges: IntArray
    batch: Batch | None = None

    def is_plausible(self, values: IntArray, records: range) -> bool:
        if self.batch is not None:
            return counts_within(values, records[-1])
        return NormBins.is_plausible(self, values, records)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClippedGradient:
    """Gradients clipped to R, each as z b^T - u offset with integers b, u.
    Shape: answer (d k,), the d-by-k matrix row by row."""

    spec: GradientSpec
    radius: int

    def __post_init__(self) -> None:
        check_whole("gradient radius", self.radius, 1, GRADIENT_LIMIT)

    @property
    def length(self) -> int:
        return self.spec.directions.size

    def check_honest(self) -> None:
        check_floor(self.radius, least_gradient_radius(self.spec.offset))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gradient(ClippedGradient, ClippedVectors):
    """Sum of clip_R(g(z) - OFFSET_STEPS offset); with `batch`, only over that batch of the records."""

    kind: ClassVar[QueryKind] = "gradient"
    label: ClassVar[str] = "sums that improve the directions"
    lay_meaning: ClassVar[str] = mark(
        "sums over all patients that say how to improve the directions found so far"
    )
    meaning: ClassVar[str] = (
        "the sum of the records' gradients at the current directions, each clipped to a public radius"
    )
    weight: ClassVar[int] = 1
    batch: Batch | None = None

    def describe(self, study: Study) -> QueryDescription:
        directions = range(1, self.spec.k + 1)
        pulls = [f"{column.name}, gradient of direction {i}" for column in study.columns for i in directions]
        return describe_numbers(self, study, pulls)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShuffledRecord(ClippedGradient):
    """The clipped gradient (see `Gradient`) of the record at position `batch.index` of `batch.batches`, or 0.
    The order is a secret of the site. The answer is about one record, not a sum: the coordinator must be
    trusted with it and adds the noise of one local randomiser. The release has the answer's length."""

    kind: ClassVar[QueryKind] = "shuffled_record"
    label: ClassVar[str] = "one record's improvement, of an unknown record: released with noise"
    lay_meaning: ClassVar[str] = mark(
        "what one single patient, drawn at random, adds to the directions: the coordinator sees"
        " it without noise, but not whose it is"
    )
    meaning: ClassVar[str] = (
        "the gradient of one record at the current directions, clipped to a public radius; the coordinator "
        "sees it without noise, but cannot tell the record"
    )
    batch: Batch

    assumed_release = assumed_sum
    describe = describe_numbers

    def __post_init__(self) -> None:
        require(isinstance(self.batch, Batch), "a record in a secret order needs the batch of a pass")
        ClippedGradient.__post_init__(self)

    @property
    def released_length(self) -> int:
        return self.length

    def diameter_squared(self) -> int:
        """Sensitivity: two gradients in a ball of radius R are at most 2 R apart."""
        return 4 * self.radius**2

    @property
    def bound(self) -> int:
        return self.radius

    def is_plausible(self, values: IntArray, records: range) -> bool:
        return is_within_norm(values, min(records[-1], 1) * self.radius)
