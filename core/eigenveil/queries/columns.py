"""Queries that standardise the columns, and the public frame that results [P29]. A frame consists of public
integers. It maps rows to a grid of the same size with another middle and step than those of the public
bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.queries.contract import (
    ClippedVectors,
    QueryDescription,
    QueryKind,
    check_public,
    describe_numbers,
    mark,
)
from eigenveil.queries.limits import (
    WEIGHT,
    ceil_sqrt,
    check_floor,
    check_whole,
    freeze,
    require,
    within_limit,
)
from eigenveil.study.grid import S
from eigenveil.study.study import MAX_COLUMNS, Study

FRAME_BITS = 20
LEAST_FACTOR, MOST_FACTOR = 2 ** (FRAME_BITS - 3), 2 ** (FRAME_BITS + 10)

HALF = 32  # bins on either side of the middle one
BIN_BITS = 7
BIN: int = 2**BIN_BITS  # grid steps: HALF of them are S
BINS = 2 * HALF + 1
SQUARE_BITS, VALUE_BITS = 10, 1  # bits dropped from a square, and from a value beside it
MOST_SQUARE = S**2 >> SQUARE_BITS
MAX_MOMENTS_RADIUS = 2**20  # with it (WEIGHT R)^2 stays below 2^62


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frame:
    """Affine map of rows: x'_j = clip(rint((x_j - middles_j) factors_j / 2^FRAME_BITS), -S, S). Any frame
    within these limits maps one record to one record of the same grid [P29].
    Shape: middles (d,) in grid steps, factors (d,) in parts of 2^FRAME_BITS.
    Raises RequestError: code `plan-overflow`: a value is outside the limits."""

    middles: IntArray
    factors: IntArray

    def __post_init__(self) -> None:
        freeze(self, "middles", "factors")
        require(
            self.middles.ndim == 1 and self.middles.shape == self.factors.shape and self.middles.size > 0,
            "a frame needs one middle and one factor for each column",
        )
        require(within_limit(self.middles, S), f"the middles of a frame must lie in [-{S}, {S}]")
        inside = bool(((self.factors >= LEAST_FACTOR) & (self.factors <= MOST_FACTOR)).all())
        require(inside, f"the factors of a frame must lie between {LEAST_FACTOR} and {MOST_FACTOR}")

    @property
    def columns(self) -> int:
        return self.middles.size

    @property
    def grid(self) -> tuple[FloatArray, FloatArray]:
        """Return the middle of the mapped grid and its step, both in grid steps. Shape: twice (d,)."""
        return self.middles.astype(np.float64), 2.0**FRAME_BITS / self.factors

    @property
    def arrays(self) -> tuple[IntArray, IntArray]:
        """Return the arrays that are hashed, in this order."""
        return self.middles, self.factors


def same_frame(one: Frame | None, other: Frame | None) -> bool:
    """Return True if both frames map rows alike. Frames are exact, so every machine computes the same one."""
    if one is None or other is None:
        return one is other
    return all(map(np.array_equal, one.arrays, other.arrays))


def _check_columns(columns: int) -> None:
    check_whole("number of columns", columns, 1, MAX_COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnHistograms:
    """Histogram of each column over its public bounds: bin floor((x_j + S + BIN / 2) / BIN) of 0 to 2 HALF.
    Shape: answer (BINS d,), column by column."""

    kind: ClassVar[QueryKind] = "column_histograms"
    label: ClassVar[str] = "values of each column, counted"
    lay_meaning: ClassVar[str] = mark(
        "how many patients have which value, for each measurement: counts in 65 steps"
    )
    meaning: ClassVar[str] = "the number of records in each of 65 value ranges of each column"
    bound: ClassVar[int] = 1
    columns: int

    check_honest = check_public

    def __post_init__(self) -> None:
        _check_columns(self.columns)

    @property
    def length(self) -> int:
        return BINS * self.columns

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: one count in each of d histograms, or two when a record is replaced."""
        return self.columns * neighbours.records

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: as in L1, each count changes by one."""
        return self.l1(neighbours)

    def is_plausible(self, values: IntArray, records: range) -> bool:
        """True if each column's histogram can count each record once."""
        if not within_limit(values, records[-1]) or bool((values < 0).any()):
            return False
        totals = values.reshape(self.columns, BINS).sum(axis=1)
        return bool((totals == totals[0]).all()) and int(totals[0]) in records

    def assumed_release(self, records: int) -> IntArray:
        """Return columns spread over a few bins about their middle."""
        few = np.zeros(BINS, dtype=np.int64)
        few[HALF - 7 : HALF + 8] = records // 15
        few[HALF] += records - int(few.sum())
        return frozen(np.tile(few, self.columns))

    def describe(self, study: Study) -> QueryDescription:
        return QueryDescription(
            labels=[f"{one.name}, bin {i + 1} of {BINS}" for one in study.columns for i in range(BINS)],
            unit="one record; the bins of a column lie evenly between its public bounds",
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnMoments(ClippedVectors):
    """Sum over rows of each column's square and value, as one vector clipped to norm R. With v = (rint(x_j^2
    / 2^SQUARE_BITS), rint(x_j / 2^VALUE_BITS)) over the columns j of a row in its frame, the sum is of t v
    with t = floor(WEIGHT min(1, R / ||v||)).
    Shape: answer (2 d,), squares first, in units of 1 / WEIGHT."""

    kind: ClassVar[QueryKind] = "column_moments"
    label: ClassVar[str] = "sums and squares of each column"
    lay_meaning: ClassVar[str] = mark(
        "for each measurement, the sums over all patients of its values and their squares"
    )
    meaning: ClassVar[str] = (
        "the sums of each column's values and squared values, each record clipped to a public radius"
    )
    weight: ClassVar[int] = WEIGHT
    columns: int
    radius: int

    def __post_init__(self) -> None:
        _check_columns(self.columns)
        check_whole("clip radius", self.radius, 1, MAX_MOMENTS_RADIUS)

    @property
    def length(self) -> int:
        return 2 * self.columns

    def is_plausible(self, values: IntArray, records: range) -> bool:
        squares = values[: self.columns]
        return bool((squares >= 0).all()) and ClippedVectors.is_plausible(self, values, records)

    def check_honest(self) -> None:
        """Refuse a radius at which the record of the largest norm would have weight 0."""
        check_floor(self.radius, least_moments_radius(self.columns))

    def describe(self, study: Study) -> QueryDescription:
        labels = [f"{one.name}{what}, sum" for what in (" squared", "") for one in study.columns]
        return describe_numbers(self, study, labels)


def least_moments_radius(columns: int) -> int:
    """Return the least radius at which the vector of the largest possible norm has a weight above 0."""
    return -(-ceil_sqrt(columns * (MOST_SQUARE**2 + (S >> VALUE_BITS) ** 2)) // WEIGHT)
