"""Queries of the single-pass algorithm [DPPCA]: how widely gradients spread, where they lie, and their sum.

They are about g(z) = floor(z (z . w) / 2**shift), one direction w at a time: d integers a record, exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eigenveil.accounting.neighbours import Neighbours
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.queries.batch import Batch
from eigenveil.queries.contract import Kind
from eigenveil.queries.describe import Description, numbered
from eigenveil.queries.gradients import GradientSpec
from eigenveil.queries.limits import GRADIENT_LIMIT, check_edges, check_whole, freeze, need, within
from eigenveil.queries.possible import at_most, falling_sum, most
from eigenveil.study.study import Study

VOTE_LIMIT = 2**20  # entries of a gradient that votes: products of 2**10 differences stay exact in float64
MOST_SUBSETS = 2**20
MOST_BINS = 256  # a coordinate
MIDDLE_LIMIT = 2**60
WIDTH_LIMIT = 2**52  # canonical JSON has no integers beyond 2**53


def check_one_direction(spec: GradientSpec) -> None:
    """These questions know one direction and no offset."""
    need(spec.k == 1 and not spec.offset.any(), "the question is about one direction alone")


def check_every_record(query: object) -> None:
    """Every record of the batch counts, and no less for where it lies."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Votes:
    """Histogram of how widely the gradients spread: one vote from each of `subsets` subsets at each site.

    Records are dealt into subsets by a keyed hash; within a subset they are paired in hash order, and the
    subset votes for the bin of the top eigenvalue of its pairs' differences' covariance (halved: a difference
    of two has twice the variance). A subset without a pair does not vote. Entries of g are cut off at
    VOTE_LIMIT. Bins as in `RowNorms`.

    Shape: edges (b,) in squared units of g; answer (b + 1,).
    """

    kind: ClassVar[Kind] = "votes"
    meaning: ClassVar[str] = (
        "how many small groups of records pull how unevenly on the current direction (a histogram)"
    )
    bound: ClassVar[int] = 1
    spec: GradientSpec
    edges: IntArray
    subsets: int
    batch: Batch | None = None

    check_honest = check_every_record
    describe = numbered

    def __post_init__(self) -> None:
        freeze(self, "edges")
        check_edges(self.edges)
        check_one_direction(self.spec)
        check_whole("number of subsets", self.subsets, 1, MOST_SUBSETS)

    @property
    def length(self) -> int:
        return self.edges.size + 1

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: a record is in one subset and moves its vote; a replaced one is in two."""
        return 2 * neighbours.records

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: one vote moves, 1^2 + 1^2; two votes move the same way, 2^2 + 2^2."""
        return 2 * neighbours.records**2

    def possible(self, values: IntArray, records: range) -> bool:
        """A subset votes if it holds two records."""
        return at_most(values, min(self.subsets, most(records) // 2))

    def imagined(self, records: int) -> IntArray:
        return frozen(self.subsets * (np.arange(self.length) == self.length // 2))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coordinates:
    """A histogram of each coordinate of the gradients: bin floor(g_j / width) + half, the end bins open.

    Shape: answer (2 half d,), coordinate by coordinate.
    """

    kind: ClassVar[Kind] = "coordinates"
    meaning: ClassVar[str] = (
        "where the records' pulls on the current direction lie, column by column (histograms)"
    )
    bound: ClassVar[int] = 1
    spec: GradientSpec
    width: int
    half: int
    batch: Batch | None = None

    check_honest = check_every_record
    describe = numbered

    def __post_init__(self) -> None:
        check_one_direction(self.spec)
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
        """Sensitivity: as in L1, every count moves by one."""
        return self.l1(neighbours)

    def possible(self, values: IntArray, records: range) -> bool:
        """Every record is once in every coordinate's histogram."""
        each = values.reshape(self.histograms, -1)
        if not at_most(each[0], most(records)) or not within(values, most(records)):
            return False
        total = int(each[0].sum())
        same = bool((values >= 0).all()) and bool((each.sum(axis=1) == total).all())
        return same and (self.batch is not None or total in records)

    def imagined(self, records: int) -> IntArray:
        inside = np.arange(self.length) % (2 * self.half) == self.half
        return frozen(records // (1 if self.batch is None else self.batch.batches) * inside)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoordinateClippedSum:
    """Sum of g - middles, coordinate j cut off at +-halves[j].

    Shape: middles (d,), halves (d,) from 0 on; answer (d,).
    """

    kind: ClassVar[Kind] = "boxed"
    meaning: ClassVar[str] = (
        "the sum of the records' pulls on the current direction, each cut off at a public box"
    )
    spec: GradientSpec
    middles: IntArray
    halves: IntArray
    batch: Batch | None = None

    check_honest = check_every_record
    imagined = falling_sum

    def __post_init__(self) -> None:
        freeze(self, "middles", "halves")
        check_one_direction(self.spec)
        d = self.spec.centre.size
        need(self.middles.shape == self.halves.shape == (d,), "a box has one middle and one half a column")
        need(within(self.middles, MIDDLE_LIMIT), f"the middles must have entries of at most {MIDDLE_LIMIT}")
        inside = bool((self.halves >= 0).all()) and within(self.halves, GRADIENT_LIMIT)
        need(inside and bool(self.halves.any()), f"halves must lie between 0 and {GRADIENT_LIMIT}, not all 0")

    @property
    def length(self) -> int:
        return self.spec.centre.size

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: the halves added up, or the whole sides when a record is replaced."""
        return int(self.halves.sum()) * neighbours.records

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: half the box's diagonal, or all of it when a record is replaced."""
        square = sum(int(half) ** 2 for half in self.halves)
        return square * neighbours.records**2

    @property
    def bound(self) -> int:
        return int(self.halves.max())

    def possible(self, values: IntArray, records: range) -> bool:
        reach = self.halves * most(records)
        return bool(((values >= -reach) & (values <= reach)).all())

    def describe(self, study: Study) -> Description:
        return numbered(self, study, [f"{column.name}, added up" for column in study.columns])
