"""Limits and plausibility checks common to all queries, and the public floors of every honest study [P25].
Symbols (see core/PRIVACY.md): d columns, k directions, z = integer row minus the public centre, R = clip
radius, S = 2**ROW_BITS (a row entry lies in [-S, S])."""

from __future__ import annotations

import math

import numpy as np

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.numerics.linalg import UNIT, HalvesMap, is_semidefinite, upper_triangle_rows
from eigenveil.study.grid import S

WEIGHT_BITS = 10
WEIGHT: int = 2**WEIGHT_BITS  # a clipped sum multiplies each record by 0..WEIGHT
OFFSET_BITS = 12
OFFSET_STEPS: int = 2**OFFSET_BITS  # a record subtracts 0..OFFSET_STEPS times the public matrix `offset`
DIRECTION_LIMIT = 2**20
GRADIENT_LIMIT = 2**29  # keeps every exact norm check of a gradient below 2**62
OFFSET_LIMIT = GRADIENT_LIMIT // OFFSET_STEPS
EDGE_LIMIT = 2**62
MOST_RECORDS = 2**41  # limit of the records in one sum
SUM_LIMIT = 2**62  # sums stay below it; the rest of int64 is for noise

BINS = 40  # of a histogram of norms, on the public grid of `eigenveil.algorithms.shared.clip_radius`
PER_OCTAVE = 4
OCTAVE = 2.0 ** (1 / PER_OCTAVE)  # from one edge to the next
EDGE_TOLERANCE = 0.25 * BINS  # largest effect of rounding and of separating equal edges
ROUNDING = 2.0**-40  # for edges so large that float64 no longer resolves 1


def require(condition: bool, message: str) -> None:
    """Raise RequestError (code `plan-overflow`) if the condition is False."""
    if not condition:
        raise RequestError(Code.OVERFLOW, message)


def freeze(owner: object, *names: str) -> None:
    """Replace the named arrays of a value by read-only int64 copies."""
    for name in names:
        object.__setattr__(owner, name, frozen(getattr(owner, name)))


def row_norm_limit(d: int) -> int:
    """Return the largest possible norm of a centred integer row, rounded up: 2 S sqrt(d)."""
    return 2 * S * (math.isqrt(d - 1) + 1)


def within_limit(values: IntArray, limit: int) -> bool:
    """Return True if every |value| <= limit. Allocates no copy; np.abs would overflow at -2**63."""
    return not values.size or (int(values.min()) >= -limit and int(values.max()) <= limit)


def check_centre(centre: IntArray) -> None:
    """Check a public centre: one entry a column, inside the row box."""
    require(
        centre.ndim == 1 and centre.size > 0, "the centre must be a vector with one entry for each column"
    )
    require(within_limit(centre, S), f"the centre must lie in the row box, [-{S}, {S}]")


def check_whole(name: str, value: int, least: int, most: int) -> None:
    """Check a Python integer against limits: a numpy integer would wrap around in `l2_squared`."""
    fits = type(value) is int and least <= value <= most
    require(fits, f"{name} {value} must be a whole number (type int) between {least} and {most}")


def check_edges(edges: IntArray) -> None:
    """Check bin edges: positive, rising, at most 1024."""
    require(edges.ndim == 1 and 1 <= edges.size <= 1024, "a histogram must have 1 to 1024 edges")
    inside = bool(((edges > 0) & (edges < EDGE_LIMIT)).all())
    rising = inside and bool((np.diff(edges) > 0).all())
    require(rising, "histogram edges must be positive, increasing and below 2**62")


def ceil_sqrt(square: int) -> int:
    """Return the least integer with a square of at least `square`."""
    return math.isqrt(square - 1) + 1 if square > 0 else 0


def triangle(d: int) -> int:
    """Return the number of entries of an upper triangle with its diagonal."""
    return d * (d + 1) // 2


def least_row_radius(d: int) -> int:
    """Return the least clip radius of rows: the weight floor(WEIGHT R / ||z||) is 1 or more for every row."""
    return -(-row_norm_limit(d) // WEIGHT)


def check_floor(radius: int, least: int) -> None:
    """Check a clip radius against the public floor."""
    require(radius >= least, f"a clip radius of {radius} is below the public floor of {least}")


def on_norm_grid(edges: IntArray) -> bool:
    """Return True if these are consecutive edges of the public grid. Steps are quarters of an octave, rounded
    to integers; equal edges are separated by 1."""
    spacing = np.diff(edges).astype(np.float64)
    wanted = edges[:-1].astype(np.float64) * (OCTAVE - 1)
    return bool((np.abs(spacing - wanted) <= EDGE_TOLERANCE + wanted * ROUNDING).all())


# Plausibility of a site's answer. `records` is a range for its number of records, with one element if it is
# known. Float comparisons have a tolerance above their own error, in the site's favour: an honest answer
# always passes. Sums are far below the 2**62 that `check_no_overflow` allows once entries are `within_limit`.


def counts_within(counts: IntArray, total: int) -> bool:
    """Return True if these are counts with a sum of at most `total`."""
    return bool((counts >= 0).all()) and sum(map(int, counts)) <= total


def is_within_norm(values: IntArray, length: int) -> bool:
    """Return True if the norm of a vector is at most `length`.
    Floats: the relative error of m squares of rounded integers and their sum is below (m + 4) 2**-52."""
    if not within_limit(values, length):
        return False
    rounded = values.astype(np.float64).reshape(-1)
    return float(rounded @ rounded) <= float(length) ** 2 * (1 + (rounded.size + 8) * 4 * UNIT)


def is_gram(triangle: IntArray, d: int, radius: int, records: range, apply: HalvesMap = map) -> bool:
    """Return True if vectors of norm at most `radius`, one a record, can have these sums of products.
    Shape: triangle (d (d + 1) / 2,), the diagonal, then the strict upper triangle row by row.
    `apply` may process parts of a large one in parallel."""
    diagonal = triangle[:d]
    limit = records[-1] * radius**2
    if (
        not bool((diagonal >= 0).all())
        or sum(map(int, diagonal)) > limit
        or not within_limit(triangle, limit)
    ):
        return False
    if not diagonal.any():
        return not triangle.any()
    squares = diagonal.astype(np.float64)
    for i, row in enumerate(upper_triangle_rows(d)):
        products = np.square(triangle[row], dtype=np.float64)
        if not bool((products <= squares[i] * squares[i + 1 :] * (1 + 16 * UNIT)).all()):
            return False
    return is_semidefinite(triangle, d, apply)
