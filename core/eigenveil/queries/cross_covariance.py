"""Queries for the cross covariance of leading directions and the rest: norms and clipped sum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eigenveil.numerics.encoding import EXACT, IntArray, frozen
from eigenveil.queries.contract import (
    ClippedVectors,
    NormBins,
    QueryDescription,
    QueryKind,
    describe_numbers,
    mark,
)
from eigenveil.queries.limits import (
    DIRECTION_LIMIT,
    GRADIENT_LIMIT,
    WEIGHT,
    ceil_sqrt,
    check_centre,
    check_floor,
    check_whole,
    freeze,
    require,
    row_norm_limit,
    within_limit,
)
from eigenveil.study.study import Study

INNER_BITS = 22  # a coefficient of a row keeps 8 bits behind the point; then its part is subtracted:
OUTER_BITS = 28  # 2^22 2^28 = two directions of norm 2^20 times WEIGHT
MOST_FRACTION_BITS = 7  # of a rest; one more, and the rounding of its coefficients could lengthen it too far
MAX_SQUARED_SINGULAR_VALUE = DIRECTION_LIMIT**2 * 9 // 8  # of the directions
LEAST_UNSHIFTED_NORM = GRADIENT_LIMIT // 16  # of the largest possible product of norms, before clipping


def rest_norm_limit(d: int, fraction_bits: int = 0) -> int:
    """Return the largest possible norm of a centred row's rest in units of 2**-fraction_bits, rounded up.
    2 S sqrt(d) steps, and sqrt(d) units for rounding [P28]."""
    return (row_norm_limit(d) << fraction_bits) + ceil_sqrt(d)


def least_cross_radius(d: int, k: int, fraction_bits: int = 0) -> int:
    """Return the least clip radius of b a'. A record of the largest possible norm, clipped to it, keeps some
    coefficient of at least 1 if it had one before. Truncation may add sqrt(k) ||b||, which the coefficients
    leave free (`clipping`). As much again is for them, as in `least_gradient_radius`."""
    return min(2 * ceil_sqrt(k) * rest_norm_limit(d, fraction_bits) + 1, GRADIENT_LIMIT)


def most_fraction_bits(d: int, k: int) -> int:
    """Return the most fraction bits with an exact squared norm of a rest and a least radius that leaves half
    of the range of radii."""
    fitting = (
        bits
        for bits in range(MOST_FRACTION_BITS, 0, -1)
        if _is_exact(d, bits) and least_cross_radius(d, k, bits) <= GRADIENT_LIMIT // 2
    )
    return next(fitting, 0)


def _is_exact(d: int, fraction_bits: int) -> bool:
    return rest_norm_limit(d, fraction_bits) ** 2 < EXACT


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CrossSpec:
    """Decomposition of a row z about the centre into its part along k leading directions and the rest. With y
    = z U, the row along p nearly orthonormal directions of norm DIRECTION_LIMIT, leading ones first: leading
    part a_i = scales_i y_i / 2**shift; rest b = rint(2**fraction_bits (z - c U^T / 2**OUTER_BITS)), integers,
    where c_j = rint(w_j y_j / 2**INNER_BITS), w_j = WEIGHT for the leading directions and WEIGHT - retained_j
    for the spare ones. So b has no part along the leading directions, retained_j / WEIGHT of z along spare
    direction j, and all of z outside of them. In a column where the leading part is below half a unit of b,
    rounding does not remove it.
    Shape: centre (d,), directions U (d, p), scales (k,), retained (p - k,)."""

    centre: IntArray
    directions: IntArray
    scales: IntArray
    retained: IntArray
    shift: int
    fraction_bits: int = 0

    def __post_init__(self) -> None:
        freeze(self, "centre", "directions", "scales", "retained")
        check_centre(self.centre)
        d = self.centre.size
        require(
            self.directions.ndim == 2
            and self.directions.shape[0] == d
            and self.directions.shape[1] == self.scales.size + self.retained.size <= d
            and self.scales.ndim == self.retained.ndim == 1
            and self.scales.size >= 1,
            "directions must be a d-by-p matrix, a column per entry of scales and retained, 1 <= k <= p <= d",
        )
        reach = ceil_sqrt(row_norm_limit(d) ** 2 * MAX_SQUARED_SINGULAR_VALUE)  # limit of y by Cauchy-Schwarz
        require(reach * WEIGHT < EXACT, f"{d} columns are too many for exact products")
        check_whole("shift", self.shift, 0, 60)
        check_whole("fraction bits", self.fraction_bits, 0, MOST_FRACTION_BITS)
        require(_is_exact(d, self.fraction_bits), f"{d} columns are too many for these fraction bits")
        require(
            bool((self.scales >= 1).all()) and within_limit(self.scales, WEIGHT),
            f"scales must be 1 to {WEIGHT}",
        )
        require(
            bool((self.retained >= 0).all()) and within_limit(self.retained, WEIGHT),
            f"retained must be 0 to {WEIGHT}",
        )
        require(
            within_limit(self.directions, DIRECTION_LIMIT)
            and _squared_reach(self.directions) <= MAX_SQUARED_SINGULAR_VALUE,
            f"directions must be nearly orthogonal, with norms of at most {DIRECTION_LIMIT} within an eighth",
        )

    @property
    def k(self) -> int:
        return self.scales.size

    @property
    def unshifted_norm_limit(self) -> int:
        """Return the largest possible 2**shift ||a|| ||b||. For a row of the largest norm along the leading
        direction of the largest scale, with a rest as large. No shift of an honest study makes it small."""
        leading = self.directions[:, : self.k]
        longest = int(((leading * leading).sum(axis=0) * self.scales**2).max())
        d = self.centre.size
        return math.isqrt(longest) * row_norm_limit(d) * rest_norm_limit(d, self.fraction_bits)


def _squared_reach(directions: IntArray) -> int:
    """Return a bound of the squared largest singular value: the largest row sum of |U^T U|; exact. Columns
    beyond the limit are returned first; products of the others cannot overflow."""
    norms2 = (directions * directions).sum(axis=0)
    if int(norms2.max()) > MAX_SQUARED_SINGULAR_VALUE:
        return int(norms2.max())
    floats = directions.astype(np.float64)
    return int(np.abs((floats.T @ floats).astype(np.int64)).sum(axis=0).max())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CrossNorms(NormBins):
    """Histogram of ||a|| ||b||, in floats; with fraction bits, of b as it is before rounding."""

    kind: ClassVar[QueryKind] = "cross_norms"
    label: ClassVar[str] = "weights of the records, counted"
    lay_meaning: ClassVar[str] = mark(
        "patients sorted into steps by how much they count for what comes next: only the number in each step"
    )
    meaning: ClassVar[str] = (
        "a histogram of the records' contributions to the cross covariance of leading directions and the rest"
    )
    edge_meaning: ClassVar[str] = "norms of a record's leading part times its rest, scaled to integers"
    spec: CrossSpec
    edges: IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CrossCovariance(ClippedVectors):
    """Sum of b a'^T over the records, a' integers close to min(1, R / (||a|| ||b||)) a.
    Shape: answer (d k,), the d-by-k matrix row by row."""

    kind: ClassVar[QueryKind] = "cross_covariance"
    label: ClassVar[str] = "products of columns with leading directions"
    lay_meaning: ClassVar[str] = mark(
        "sums over all patients of products of measurements with the directions found"
    )
    meaning: ClassVar[str] = (
        "the sum over the records of each column's part that the leading directions do not explain times the "
        "record's coordinate along each leading direction, each record clipped to a public radius"
    )
    weight: ClassVar[int] = 1
    spec: CrossSpec
    radius: int

    def __post_init__(self) -> None:
        check_whole("cross covariance radius", self.radius, 1, GRADIENT_LIMIT)

    @property
    def length(self) -> int:
        return self.spec.centre.size * self.spec.k

    def check_honest(self) -> None:
        """Refuse a radius or a shift that would leave the farthest records without a coefficient."""
        spec = self.spec
        require(
            spec.fraction_bits <= most_fraction_bits(spec.centre.size, spec.k),
            "so many fraction bits leave no radius for the farthest records",
        )
        check_floor(self.radius, least_cross_radius(spec.centre.size, spec.k, spec.fraction_bits))
        require(
            spec.unshifted_norm_limit >= LEAST_UNSHIFTED_NORM << spec.shift,
            f"a shift of {spec.shift} rounds the records' parts to almost nothing",
        )

    def assumed_release(self, records: int) -> IntArray:
        """Return zeros: the assumed directions are right already."""
        return frozen(np.zeros(self.length, dtype=np.int64))

    def describe(self, study: Study) -> QueryDescription:
        directions = range(1, self.spec.k + 1)
        labels = [
            f"{column.name} with leading direction {i}, beyond what the leading directions explain"
            for column in study.columns
            for i in directions
        ]
        return describe_numbers(self, study, labels)
