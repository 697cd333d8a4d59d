"""Queries about the cross covariance of leading directions and the rest: how long, and its clipped sum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eigenveil.accounting.neighbours import Neighbours
from eigenveil.numerics.encoding import EXACT, IntArray, frozen
from eigenveil.queries.contract import Kind
from eigenveil.queries.describe import Description, histogram, numbered
from eigenveil.queries.limits import (
    DIRECTION_LIMIT,
    GRADIENT_LIMIT,
    WEIGHT,
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
from eigenveil.queries.possible import is_histogram, is_short, most
from eigenveil.queries.rows import all_in_the_middle, one_bin
from eigenveil.study.study import Study

INNER_BITS = 22  # what a row has of a direction keeps 8 bits behind the point; then it is taken off the row:
OUTER_BITS = 28  # 2^22 2^28 is a direction of norm 2^20, twice, and WEIGHT
LONGEST = DIRECTION_LIMIT**2 * 9 // 8  # the square of the largest singular value of the directions
FARTHEST = (
    GRADIENT_LIMIT // 16
)  # that the longest part there can be comes to at least, before it is shortened


def rest_norm_limit(d: int) -> int:
    """The largest possible norm of the rest of a centred row, rounded up: 2 S sqrt(d), and sqrt(d) for what
    rounding adds [P28]."""
    return row_norm_limit(d) + root_up(d)


def least_cross_radius(d: int, k: int) -> int:
    """The least clip radius of b a': shortened to it, a record as long as there can be still has some
    coefficient of at least 1, if it had one before.

    Truncation may add sqrt(k) ||b||, which the coefficients leave free (`clipping`). As much again is for
    them, as in `least_gradient_radius`.
    """
    return min(2 * root_up(k) * rest_norm_limit(d) + 1, GRADIENT_LIMIT)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CrossSpec:
    """What a row z about the centre has of k leading directions, and what is left of it.

    With y = z U, the row along p nearly orthonormal directions of norm DIRECTION_LIMIT, leading ones first:
    leading part a_i = scales_i y_i / 2**shift; rest b = rint(z - c U^T / 2**OUTER_BITS), integers, where
    c_j = rint(w_j y_j / 2**INNER_BITS), w_j = WEIGHT for the leading directions and WEIGHT - kept_j for the
    spare ones: b has nothing of the leading directions, the part kept_j / WEIGHT of what z has of a spare
    one, and all that z has outside of them.

    Shape: centre (d,), directions U (d, p), scales (k,), kept (p - k,).
    """

    centre: IntArray
    directions: IntArray
    scales: IntArray
    kept: IntArray
    shift: int

    def __post_init__(self) -> None:
        freeze(self, "centre", "directions", "scales", "kept")
        check_centre(self.centre)
        d = self.centre.size
        need(
            self.directions.ndim == 2
            and self.directions.shape[0] == d
            and self.directions.shape[1] == self.scales.size + self.kept.size <= d
            and self.scales.ndim == self.kept.ndim == 1
            and self.scales.size >= 1,
            "directions must be a d-by-p matrix, a column for each scale and part kept, 1 <= k <= p <= d",
        )
        reach = root_up(row_norm_limit(d) ** 2 * LONGEST)  # of y: Cauchy-Schwarz
        need(reach * WEIGHT < EXACT, f"{d} columns are too many for exact products")
        check_whole("shift", self.shift, 0, 60)
        need(bool((self.scales >= 1).all()) and within(self.scales, WEIGHT), f"scales lie in 1 to {WEIGHT}")
        need(bool((self.kept >= 0).all()) and within(self.kept, WEIGHT), f"parts kept lie in 0 to {WEIGHT}")
        need(
            within(self.directions, DIRECTION_LIMIT) and _squared_reach(self.directions) <= LONGEST,
            f"directions must be orthogonal, and no longer than {DIRECTION_LIMIT}, but for an eighth",
        )

    @property
    def k(self) -> int:
        return self.scales.size

    @property
    def farthest(self) -> int:
        """2**shift ||a|| ||b|| of the longest row there can be, if it lay along the leading direction that is
        stretched most, and its rest were as long: what no shift of an honest study makes small."""
        leading = self.directions[:, : self.k]
        longest = int(((leading * leading).sum(axis=0) * self.scales**2).max())
        d = self.centre.size
        return math.isqrt(longest) * row_norm_limit(d) * rest_norm_limit(d)


def _squared_reach(directions: IntArray) -> int:
    """A bound of the square of the largest singular value: the largest row sum of |U^T U|; exact.

    Columns that are too long are said first: of the others no product is beyond LONGEST.
    """
    norms2 = (directions * directions).sum(axis=0)
    if int(norms2.max()) > LONGEST:
        return int(norms2.max())
    floats = directions.astype(np.float64)
    return int(np.abs((floats.T @ floats).astype(np.int64)).sum(axis=0).max())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CrossNorms:
    """Histogram of ||a|| ||b||, bins as in `RowNorms`.

    Shape: edges (bins - 1,); answer (bins,).
    """

    kind: ClassVar[Kind] = "cross_norms"
    meaning: ClassVar[str] = (
        "how many records weigh how much in what relates the leading directions to the rest (a histogram)"
    )
    bound: ClassVar[int] = 1
    spec: CrossSpec
    edges: IntArray

    l1 = l2_squared = one_bin
    possible = is_histogram
    check_honest = check_bins
    imagined = all_in_the_middle

    def __post_init__(self) -> None:
        freeze(self, "edges")
        check_edges(self.edges)

    @property
    def centre(self) -> IntArray:
        return self.spec.centre

    @property
    def length(self) -> int:
        return self.edges.size + 1

    def describe(self, study: Study) -> Description:
        return histogram(self.edges, "a record's leading part times its rest, as lengths, scaled to integers")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CrossCovariance:
    """Sum of b a'^T over the records, a' integers close to min(1, R / (||a|| ||b||)) a.

    Shape: answer (d k,), the d-by-k matrix row by row.
    """

    kind: ClassVar[Kind] = "cross_covariance"
    meaning: ClassVar[str] = (
        "the sum over the records of each column, less what the leading directions explain of it, times the "
        "record's place along each leading direction, each record shortened to a public radius"
    )
    spec: CrossSpec
    radius: int

    def __post_init__(self) -> None:
        check_whole("cross covariance radius", self.radius, 1, GRADIENT_LIMIT)

    @property
    def centre(self) -> IntArray:
        return self.spec.centre

    @property
    def length(self) -> int:
        return self.spec.centre.size * self.spec.k

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: sqrt(d k) times the one in L2."""
        return root_up(self.length * self.l2_squared(neighbours))

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: a record adds b a'^T, ||b|| ||a'|| <= R; two such differ by 2 R."""
        return (self.radius * neighbours.records) ** 2

    @property
    def bound(self) -> int:
        return self.radius

    def possible(self, values: IntArray, records: range) -> bool:
        return is_short(values, most(records) * self.radius)

    def check_honest(self) -> None:
        """Neither the radius nor the shift leaves the farthest records without a coefficient."""
        check_floor(self.radius, least_cross_radius(self.spec.centre.size, self.spec.k))
        need(
            self.spec.farthest >= FARTHEST << self.spec.shift,
            f"a shift of {self.spec.shift} leaves too little of records",
        )

    def imagined(self, records: int) -> IntArray:
        """Directions that were right: nothing turns them."""
        return frozen(np.zeros(self.length, dtype=np.int64))

    def describe(self, study: Study) -> Description:
        directions = range(1, self.spec.k + 1)
        together = [
            f"{column.name} with leading direction {i}, beyond what the leading directions explain"
            for column in study.columns
            for i in directions
        ]
        return numbered(self, study, together)
