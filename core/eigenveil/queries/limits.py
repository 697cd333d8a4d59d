"""Limits and checks that every query shares, and the public floors that no honest study passes [P25].

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
WEIGHT: int = 2**WEIGHT_BITS  # a record of a clipped sum is multiplied by 0..WEIGHT, then added
OFFSET_BITS = 12
OFFSET_STEPS: int = 2**OFFSET_BITS  # a record takes off 0..OFFSET_STEPS times the public matrix `offset`
DIRECTION_LIMIT = 2**20
GRADIENT_LIMIT = 2**29  # keeps every exact norm check of a gradient below 2**62
OFFSET_LIMIT = GRADIENT_LIMIT // OFFSET_STEPS
EDGE_LIMIT = 2**62
MOST_RECORDS = 2**41  # that one sum may be over
SUM_LIMIT = 2**62  # sums stay below it; the other half of int64 is room for noise

BINS = 40  # of a histogram of norms, on the public grid of `eigenveil.algorithms.shared.clip_radius`
PER_OCTAVE = 4
OCTAVE = 2.0 ** (1 / PER_OCTAVE)  # from one edge to the next
APART = 0.25 * BINS  # what rounding and keeping edges apart add up to
ROUNDING = 2.0**-40  # of edges so large that a float64 has no unit of 1 any more


class Clipped(Protocol):
    """A query about rows that are seen from a public centre and shortened to a radius."""

    @property
    def centre(self) -> IntArray: ...
    @property
    def radius(self) -> int: ...


class Binned(Protocol):
    """A query for a histogram."""

    @property
    def edges(self) -> IntArray: ...


def need(condition: bool, message: str) -> None:
    """Refuse what no question may say (code `plan-overflow`)."""
    if not condition:
        raise RequestError(Code.OVERFLOW, message)


def freeze(owner: object, *names: str) -> None:
    """Make the named arrays of a value read-only int64 copies."""
    for name in names:
        object.__setattr__(owner, name, frozen(getattr(owner, name)))


def row_norm_limit(d: int) -> int:
    """The largest possible norm of a centred integer row, rounded up: 2 S sqrt(d)."""
    return 2 * S * (math.isqrt(d - 1) + 1)


def within(values: IntArray, limit: int) -> bool:
    """Every |value| <= limit; np.abs would let -2**63 through, which has no absolute value in int64.
    Nothing as long as `values` is made."""
    return not values.size or (int(values.min()) >= -limit and int(values.max()) <= limit)


def check_centre(centre: IntArray) -> None:
    """A public centre: one entry a column, inside the row box."""
    need(centre.ndim == 1 and centre.size > 0, "the centre must be a vector with one entry a column")
    need(within(centre, S), f"the centre must lie in the row box, [-{S}, {S}]")


def check_whole(name: str, value: int, least: int, most: int) -> None:
    """A Python integer within limits: a numpy integer would wrap around in `l2_squared`."""
    fits = type(value) is int and least <= value <= most
    need(fits, f"{name} {value} must lie between {least} and {most}, as a whole number of type int")


def check_clipped(query: Clipped) -> None:
    """A public centre, which it freezes, and a clip radius of rows: from 1 to the largest possible norm."""
    freeze(query, "centre")
    check_centre(query.centre)
    check_whole("clip radius", query.radius, 1, row_norm_limit(query.centre.size))


def check_edges(edges: IntArray) -> None:
    """Bin edges: positive, rising, at most 1024."""
    need(edges.ndim == 1 and 1 <= edges.size <= 1024, "a histogram has between 1 and 1024 edges")
    inside = bool(((edges > 0) & (edges < EDGE_LIMIT)).all())
    rising = inside and bool((np.diff(edges) > 0).all())
    need(rising, "histogram edges must be positive, increasing and below 2**62")


def root_up(square: int) -> int:
    """The least integer whose square is at least `square`."""
    return math.isqrt(square - 1) + 1 if square > 0 else 0


def triangle(d: int) -> int:
    """Entries of an upper triangle with its diagonal."""
    return d * (d + 1) // 2


def least_row_radius(d: int) -> int:
    """The least clip radius of rows: with it the weight of a record of a clipped sum,
    floor(WEIGHT R / ||z||), is at least 1 for the longest row that there can be."""
    return -(-row_norm_limit(d) // WEIGHT)


def check_row_floor(query: Clipped) -> None:
    """A sum over rows is about every record: the farthest is shortened to something that still counts."""
    check_floor(query.radius, least_row_radius(query.centre.size))


def check_floor(radius: int, least: int) -> None:
    """A radius that no study goes below, whatever it was told."""
    need(radius >= least, f"a clip radius of {radius} is below the public floor of {least}")


def check_bins(query: Binned) -> None:
    """A histogram of norms has the bins that the public grid has, at some top."""
    whole = query.edges.size == BINS - 1
    need(whole and on_grid(query.edges), "a histogram of norms has other bins than the public grid")


def on_grid(edges: IntArray) -> bool:
    """Whether these are neighbouring edges of the public grid: quarters of an octave, rounded to integers, or
    kept one apart where they would coincide."""
    apart = np.diff(edges).astype(np.float64)
    wanted = edges[:-1].astype(np.float64) * (OCTAVE - 1)
    return bool((np.abs(apart - wanted) <= APART + wanted * ROUNDING).all())
