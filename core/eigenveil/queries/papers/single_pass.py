"""Queries of the single-pass algorithm [DPPCA]: spread of the gradients, coordinate histograms and sum. The
gradient is g(z) = floor(z (z . w) / 2**shift) for one direction w: d integers a record, exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.queries.contract import (
    EdgeHistogram,
    QueryDescription,
    QueryKind,
    assumed_sum,
    check_public,
    describe_numbers,
    mark,
)
from eigenveil.queries.gradients import Batch, GradientSpec
from eigenveil.queries.limits import (
    GRADIENT_LIMIT,
    check_whole,
    counts_within,
    freeze,
    require,
    within_limit,
)
from eigenveil.study.study import Study

VOTE_LIMIT = 2**20  # entries of a voting gradient: products of 2**10 differences stay exact in float64
MOST_SUBSETS = 2**20
MOST_BINS = 256  # a coordinate
MIDDLE_LIMIT = 2**60
WIDTH_LIMIT = 2**52  # canonical JSON has no integers beyond 2**53


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OneDirection:
    """Gradients along one direction, without an offset; every record of the batch counts fully."""

    spec: GradientSpec

    check_honest = check_public

    def __post_init__(self) -> None:
        alone = self.spec.k == 1 and not self.spec.offset.any()
        require(alone, "single-pass queries have one direction and no offset")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EigenvalueVotes(OneDirection, EdgeHistogram):
    """Histogram of the spread of the gradients: one vote from each of `subsets` subsets at each site. A keyed
    hash deals records into subsets and orders them in pairs. A subset votes for the bin of the top eigenvalue
    of the covariance of its pair differences, halved, as a difference has twice the variance. A subset
    without a pair does not vote. Entries of g are limited to VOTE_LIMIT, edges in its squared units."""

    kind: ClassVar[QueryKind] = "eigenvalue_votes"
    label: ClassVar[str] = "unevenness in small groups, counted"
    lay_meaning: ClassVar[str] = mark(
        "how many small groups of patients differ how much from each other: counts only"
    )
    meaning: ClassVar[str] = "a histogram of the largest eigenvalues of gradients in small groups of records"
    edges: IntArray
    subsets: int
    batch: Batch | None = None

    describe = describe_numbers

    def __post_init__(self) -> None:
        EdgeHistogram.__post_init__(self)
        OneDirection.__post_init__(self)
        check_whole("number of subsets", self.subsets, 1, MOST_SUBSETS)

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: a record is in one subset and moves its vote; a replaced one is in two."""
        return 2 * neighbours.records

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: one vote moves, 1^2 + 1^2; two votes move the same way, 2^2 + 2^2."""
        return 2 * neighbours.records**2

    def is_plausible(self, values: IntArray, records: range) -> bool:
        """True if the votes fit the subsets; a subset votes if it has two records."""
        return counts_within(values, min(self.subsets, records[-1] // 2))

    def assumed_release(self, records: int) -> IntArray:
        return frozen(self.subsets * (np.arange(self.length) == self.length // 2))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoordinateHistograms(OneDirection):
    """Histogram of each coordinate of the gradients: bin floor(g_j / width) + half, the end bins open.
    Shape: answer (2 half d,), coordinate by coordinate."""

    kind: ClassVar[QueryKind] = "coordinates"
    label: ClassVar[str] = "places of small groups, counted"
    lay_meaning: ClassVar[str] = mark(
        "how many small groups of patients lie where, for each measurement: counts only"
    )
    meaning: ClassVar[str] = "a histogram for each column of the records' gradients at the current direction"
    bound: ClassVar[int] = 1
    width: int
    half: int
    batch: Batch | None = None

    describe = describe_numbers

    def __post_init__(self) -> None:
        OneDirection.__post_init__(self)
        check_whole("bin width", self.width, 1, WIDTH_LIMIT)
        check_whole("number of bins on either side", self.half, 1, MOST_BINS // 2)

    @property
    def length(self) -> int:
        return 2 * self.half * self.histograms

    @property
    def histograms(self) -> int:
        return self.spec.centre.size

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: one count in each of d histograms, or two when a record is replaced."""
        return self.histograms * neighbours.records

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: as in L1, each count changes by one."""
        return self.l1(neighbours)

    def is_plausible(self, values: IntArray, records: range) -> bool:
        """True if each coordinate's histogram can count each record once."""
        each = values.reshape(self.histograms, -1)
        if not counts_within(each[0], records[-1]) or not within_limit(values, records[-1]):
            return False
        total = int(each[0].sum())
        same = bool((values >= 0).all()) and bool((each.sum(axis=1) == total).all())
        return same and (self.batch is not None or total in records)

    def assumed_release(self, records: int) -> IntArray:
        inside = np.arange(self.length) % (2 * self.half) == self.half
        return frozen(records // (1 if self.batch is None else self.batch.batches) * inside)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoordinateClippedSum(OneDirection):
    """Sum of g - middles, with coordinate j limited to +-halves[j].
    Shape: middles (d,), halves (d,) from 0 on; answer (d,)."""

    kind: ClassVar[QueryKind] = "coordinate_clipped_sum"
    label: ClassVar[str] = "sums over small groups"
    lay_meaning: ClassVar[str] = mark(
        "sums over small groups of patients that say how to improve the direction found so far"
    )
    meaning: ClassVar[str] = (
        "the sum of the records' gradients at the current direction, each limited to a public box"
    )
    middles: IntArray
    halves: IntArray
    batch: Batch | None = None

    assumed_release = assumed_sum

    def __post_init__(self) -> None:
        freeze(self, "middles", "halves")
        OneDirection.__post_init__(self)
        d = self.spec.centre.size
        require(self.middles.shape == self.halves.shape == (d,), "a box needs a middle and a half per column")
        require(
            within_limit(self.middles, MIDDLE_LIMIT),
            f"the middles must be at most {MIDDLE_LIMIT} in magnitude",
        )
        inside = bool((self.halves >= 0).all()) and within_limit(self.halves, GRADIENT_LIMIT)
        require(inside and bool(self.halves.any()), f"half widths must be 0 to {GRADIENT_LIMIT}, not all 0")

    @property
    def length(self) -> int:
        return self.spec.centre.size

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: the sum of the half widths, or of the whole widths when a record is replaced."""
        return int(self.halves.sum()) * neighbours.records

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: half the box's diagonal, or all of it when a record is replaced."""
        square = sum(int(half) ** 2 for half in self.halves)
        return square * neighbours.records**2

    @property
    def bound(self) -> int:
        return int(self.halves.max())

    def is_plausible(self, values: IntArray, records: range) -> bool:
        reach = self.halves * records[-1]
        return bool(((values >= -reach) & (values <= reach)).all())

    def describe(self, study: Study) -> QueryDescription:
        return describe_numbers(self, study, [f"{column.name}, sum" for column in study.columns])
