"""Limits and checks common to all queries, and the public floors of every honest study [P25].

Symbols (see core/PRIVACY.md): d columns, k directions, z = integer row minus the public centre,
R = clip radius, S = 2**ROW_BITS (a row entry lies in [-S, S]).
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import IntArray, frozen
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


class ClippedQuery(Protocol):
    """A query about rows relative to a public centre, clipped to a radius."""

    @property
    def centre(self) -> IntArray: ...
    @property
    def radius(self) -> int: ...


class BinnedQuery(Protocol):
    """A query for a histogram."""

    @property
    def edges(self) -> IntArray: ...


class RowBins(BinnedQuery, Protocol):
    """A query for a histogram of row norms."""

    @property
    def centre(self) -> IntArray: ...


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


def check_clipped(query: ClippedQuery) -> None:
    """Freeze and check a public centre, and check a clip radius: from 1 to the largest possible row norm."""
    freeze(query, "centre")
    check_centre(query.centre)
    check_whole("clip radius", query.radius, 1, row_norm_limit(query.centre.size))


def check_edges(edges: IntArray) -> None:
    """Check bin edges: positive, rising, at most 1024."""
    require(edges.ndim == 1 and 1 <= edges.size <= 1024, "a histogram must have 1 to 1024 edges")
    inside = bool(((edges > 0) & (edges < EDGE_LIMIT)).all())
    rising = inside and bool((np.diff(edges) > 0).all())
    require(rising, "histogram edges must be positive, increasing and below 2**62")


def check_row_bins(query: RowBins) -> None:
    """Freeze and check the public centre and the edges of a histogram of row norms."""
    freeze(query, "centre", "edges")
    check_centre(query.centre)
    check_edges(query.edges)
    require(int(query.edges[-1]) < 2**31, "row norm edges must stay below 2**31")


def ceil_sqrt(square: int) -> int:
    """Return the least integer with a square of at least `square`."""
    return math.isqrt(square - 1) + 1 if square > 0 else 0


def triangle(d: int) -> int:
    """Return the number of entries of an upper triangle with its diagonal."""
    return d * (d + 1) // 2


def least_row_radius(d: int) -> int:
    """Return the least clip radius of rows: the weight floor(WEIGHT R / ||z||) is 1 or more for every row."""
    return -(-row_norm_limit(d) // WEIGHT)


def check_row_floor(query: ClippedQuery) -> None:
    """Check that even the farthest row, once clipped, still counts in a sum."""
    check_floor(query.radius, least_row_radius(query.centre.size))


def check_floor(radius: int, least: int) -> None:
    """Check a clip radius against the public floor."""
    require(radius >= least, f"a clip radius of {radius} is below the public floor of {least}")


def check_bins(query: BinnedQuery) -> None:
    """Check that a histogram of norms has the bins of the public grid, at some top."""
    whole = query.edges.size == BINS - 1
    require(
        whole and on_norm_grid(query.edges),
        "the bins of a histogram of norms must be those of the public grid",
    )


def on_norm_grid(edges: IntArray) -> bool:
    """Return True if these are consecutive edges of the public grid.

    Steps are quarters of an octave, rounded to integers; equal edges are separated by 1.
    """
    spacing = np.diff(edges).astype(np.float64)
    wanted = edges[:-1].astype(np.float64) * (OCTAVE - 1)
    return bool((np.abs(spacing - wanted) <= EDGE_TOLERANCE + wanted * ROUNDING).all())
