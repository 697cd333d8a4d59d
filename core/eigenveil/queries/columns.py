"""Queries about every column at once, by which columns are standardised, and the frame that this gives [P29].

A frame is public integers: rows that are seen through it are on a grid of the same size, whose middle and
whose step are no longer those of the public bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eigenveil.accounting.neighbours import Neighbours
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.queries.contract import Kind
from eigenveil.queries.describe import Description, numbered
from eigenveil.queries.limits import WEIGHT, check_floor, check_whole, freeze, need, root_up, within
from eigenveil.queries.possible import falling_sum, is_short, most
from eigenveil.study.grid import S
from eigenveil.study.study import MAX_COLUMNS, Study

FRAME_BITS = 20
LEAST_FACTOR, MOST_FACTOR = 2 ** (FRAME_BITS - 3), 2 ** (FRAME_BITS + 10)

HALF = 32  # bins on either side of the middle one
BIN_BITS = 7
BIN: int = 2**BIN_BITS  # grid steps: HALF of them are S
BINS = 2 * HALF + 1
SQUARE_BITS, VALUE_BITS = 10, 1  # what is left off a square, and off a value beside it
MOST_SQUARE = S**2 >> SQUARE_BITS
MOST_RADIUS = 2**20  # with it (WEIGHT R)^2 stays below 2^62


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frame:
    """How rows are seen: x'_j = clip(rint((x_j - middles_j) factors_j / 2^FRAME_BITS), -S, S).

    Any frame of these limits maps one record to one record of the same grid [P29].

    Shape: middles (d,) in grid steps, factors (d,) in parts of 2^FRAME_BITS.

    Raises:
        RequestError: code `plan-overflow`: it is none.
    """

    middles: IntArray
    factors: IntArray

    def __post_init__(self) -> None:
        freeze(self, "middles", "factors")
        need(
            self.middles.ndim == 1 and self.middles.shape == self.factors.shape and self.middles.size > 0,
            "a frame has one middle and one factor a column",
        )
        need(within(self.middles, S), f"the middles of a frame must lie in [-{S}, {S}]")
        inside = bool(((self.factors >= LEAST_FACTOR) & (self.factors <= MOST_FACTOR)).all())
        need(inside, f"the factors of a frame must lie between {LEAST_FACTOR} and {MOST_FACTOR}")

    @property
    def columns(self) -> int:
        return self.middles.size

    @property
    def grid(self) -> tuple[FloatArray, FloatArray]:
        """Where the grid's middle is seen, and how wide its step, both in grid steps. Shape: twice (d,)."""
        return self.middles.astype(np.float64), 2.0**FRAME_BITS / self.factors

    @property
    def arrays(self) -> tuple[IntArray, IntArray]:
        """What is hashed of it, in this order."""
        return self.middles, self.factors


def same_frame(one: Frame | None, other: Frame | None) -> bool:
    """Whether both show rows alike. Frames are made by operations that are exact everywhere, so that no
    machine rounds one otherwise."""
    if one is None or other is None:
        return one is other
    return all(map(np.array_equal, one.arrays, other.arrays))


def _check_columns(columns: int) -> None:
    check_whole("number of columns", columns, 1, MAX_COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnHistograms:
    """A histogram of each column over its public bounds: bin floor((x_j + S + BIN / 2) / BIN) of 0 to 2 HALF.

    Shape: answer (BINS d,), column by column.
    """

    kind: ClassVar[Kind] = "column_histograms"
    meaning: ClassVar[str] = "how many records have which value in each column (65 bins a column)"
    bound: ClassVar[int] = 1
    centre: ClassVar[None] = None
    columns: int

    def __post_init__(self) -> None:
        _check_columns(self.columns)

    @property
    def length(self) -> int:
        return BINS * self.columns

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: one count in each of d histograms, or two when a record is replaced."""
        return self.columns * neighbours.records

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: as in L1, every count moves by one."""
        return self.l1(neighbours)

    def possible(self, values: IntArray, records: range) -> bool:
        """Every record is once in every column's histogram."""
        if not within(values, most(records)) or bool((values < 0).any()):
            return False
        totals = values.reshape(self.columns, BINS).sum(axis=1)
        return bool((totals == totals[0]).all()) and int(totals[0]) in records

    def check_honest(self) -> None:
        """Its bins are public: there is only one such question."""

    def imagined(self, records: int) -> IntArray:
        """Columns spread over a few bins about their middle."""
        few = np.zeros(BINS, dtype=np.int64)
        few[HALF - 7 : HALF + 8] = records // 15
        few[HALF] += records - int(few.sum())
        return frozen(np.tile(few, self.columns))

    def describe(self, study: Study) -> Description:
        return Description(
            labels=[f"{one.name}, bin {i + 1} of {BINS}" for one in study.columns for i in range(BINS)],
            unit="one record; the bins of a column lie evenly between its public bounds",
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnMoments:
    """Sum of t v, v = (rint(x_j^2 / 2^SQUARE_BITS), rint(x_j / 2^VALUE_BITS)) over the columns j of a row as
    its frame shows it, t = floor(WEIGHT min(1, R / ||v||)): every column's square and value, as one vector
    that is shortened to at most R.

    Shape: answer (2 d,), squares first, in units of 1 / WEIGHT.
    """

    kind: ClassVar[Kind] = "column_moments"
    meaning: ClassVar[str] = (
        "each column's values and squared values, added up, all of a record shortened to a public radius"
    )
    centre: ClassVar[None] = None
    columns: int
    radius: int

    imagined = falling_sum

    def __post_init__(self) -> None:
        _check_columns(self.columns)
        check_whole("clip radius", self.radius, 1, MOST_RADIUS)

    @property
    def length(self) -> int:
        return 2 * self.columns

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: sqrt(2 d) times the one in L2."""
        return root_up(self.length * self.l2_squared(neighbours))

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: a record adds a vector of norm <= WEIGHT R; two such differ by 2 WEIGHT R."""
        return (WEIGHT * self.radius * neighbours.records) ** 2

    @property
    def bound(self) -> int:
        return WEIGHT * self.radius

    def possible(self, values: IntArray, records: range) -> bool:
        squares = values[: self.columns]
        return bool((squares >= 0).all()) and is_short(values, most(records) * self.bound)

    def check_honest(self) -> None:
        """The record that is longest counts, if only by 1 / WEIGHT."""
        check_floor(self.radius, least_radius(self.columns))

    def describe(self, study: Study) -> Description:
        return numbered(
            self,
            study,
            [f"{one.name}{what}, added up" for what in (" squared", "") for one in study.columns],
        )


def least_radius(columns: int) -> int:
    """The least radius at which the weight of the longest vector that there can be is not 0."""
    longest = columns * (MOST_SQUARE**2 + (S >> VALUE_BITS) ** 2)
    return -(-root_up(longest) // WEIGHT)
