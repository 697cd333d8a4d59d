"""What no question of an honest study passes, whatever releases its algorithm was fed [P25].

Releases are noised, so an algorithm may come to any question; and a coordinator may state releases that
were never drawn, to steer the next question onto one person. These bounds hold all the same: a sum is about
every record, because even the record farthest from the centre is shortened to something that still counts,
a centre lies where records can, and a histogram has the bins that the grid has.
"""

from __future__ import annotations

from typing import assert_never

import numpy as np

from eigenveil.algorithms.shared.clip_radius import BINS, PER_OCTAVE
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import IntArray
from eigenveil.queries import (
    BlockRanks,
    CellVotes,
    ClippedSum,
    CoordinateClippedSum,
    Coordinates,
    Count,
    Eigenvectors,
    Gradient,
    GradientNorms,
    Gram,
    OnGradients,
    Preimage,
    Query,
    RadiusSearch,
    RankVotes,
    RowNorms,
    ShuffledRecord,
    SpanGap,
    SpanVotes,
    Spectrum,
    SquaredNormSum,
    Subspace,
    Votes,
)
from eigenveil.queries.gradients import offset_norm2
from eigenveil.queries.limits import GRADIENT_LIMIT, WEIGHT, root_up, row_norm_limit
from eigenveil.study.grid import steps
from eigenveil.study.study import Study

OCTAVE = 2.0 ** (1 / PER_OCTAVE)  # from one edge to the next
APART = 0.25 * BINS  # what rounding and keeping edges apart add up to
ROUNDING = 2.0**-40  # of edges so large that a float64 has no unit of 1 any more


def least_row_radius(d: int) -> int:
    """The least clip radius of rows: with it the weight of a record of a clipped sum,
    floor(WEIGHT R / ||z||), is at least 1 for the longest row that there can be."""
    return -(-row_norm_limit(d) // WEIGHT)


def least_gradient_radius(offset: IntArray) -> int:
    """The least clip radius of gradients z b^T - u offset, b (k,): shortened to it, a record as long as
    there can be still has some coefficient of at least 1, in b or u. Shape: offset (d, k).

    Truncation may add sqrt(k) ||z|| + ||offset||, which the coefficients leave free (`clipping`). As much
    again is for them: with m the larger of max |a| and OFFSET_STEPS, a record is at most m (sqrt(k) ||z|| + ||offset||)
    long, so that m, shortened, is 1 or more. The last 1 is for the rounding of floats.
    """
    d, k = offset.shape
    truncated = root_up(k) * row_norm_limit(d) + root_up(offset_norm2(offset))
    return min(2 * truncated + 1, GRADIENT_LIMIT)


def box(study: Study) -> IntArray:
    """The farthest grid point of each column from the middle of its public bounds. Shape: (d,)."""
    half = np.array([column.half_range for column in study.columns])
    return np.ceil(half / steps(study)).astype(np.int64)


def check_bounds(query: Query, most: IntArray) -> None:
    """Insist that a question stays within what an honest study may ask. Shape: most (d,), its study's `box`.

    Raises:
        RequestError: code `plan-overflow`.
    """
    if isinstance(query, Count):
        return
    centre = query.spec.centre if isinstance(query, OnGradients) else query.centre
    _need(centre.size == most.size, "a question is about another number of columns than its study")
    _need(bool((np.abs(centre) <= most).all()), "a centre lies outside of the public bounds")
    match query:
        case ClippedSum() | SquaredNormSum() | Gram() | Spectrum() | Eigenvectors() | Subspace():
            _check_floor(query.radius, least_row_radius(centre.size))
        case Gradient() | ShuffledRecord():
            _check_floor(query.radius, least_gradient_radius(query.spec.offset))
        case RowNorms() | GradientNorms():
            whole = query.edges.size == BINS - 1
            _need(whole and _on_grid(query.edges), "a histogram of norms has other bins than the public grid")
        case RadiusSearch():
            _need(_on_grid(query.edges), "a search for a radius has other edges than the public grid")
        case Votes() | Coordinates() | CoordinateClippedSum():
            pass  # every record of the part counts, and no less for where it lies
        case BlockRanks() | SpanVotes() | CellVotes() | RankVotes() | SpanGap() | Preimage():
            pass  # public but for the centre
        case _:
            assert_never(query)


def _check_floor(radius: int, least: int) -> None:
    _need(radius >= least, f"a clip radius of {radius} is below the public floor of {least}")


def _on_grid(edges: IntArray) -> bool:
    """Whether these are neighbouring edges of `radius.Grid` at some top: quarters of an octave, rounded to
    integers, or kept one apart where they would coincide."""
    apart = np.diff(edges).astype(np.float64)
    wanted = edges[:-1].astype(np.float64) * (OCTAVE - 1)
    return bool((np.abs(apart - wanted) <= APART + wanted * ROUNDING).all())


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise RequestError(Code.OVERFLOW, message)
