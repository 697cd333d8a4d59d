"""What no query of an honest study passes, whatever releases its algorithm was fed [P25].

Releases are noised, so an algorithm may come to any query; and a coordinator may state releases that
were never drawn, to steer the next query onto one person. These bounds hold all the same: a sum is about
every record, because even the record farthest from the centre is shortened to something that still counts,
a centre lies where records can, and a histogram has the bins that the grid has.
"""

from __future__ import annotations

import numpy as np

from eigenveil.numerics.encoding import IntArray
from eigenveil.queries import Query, centre_of, columns_of
from eigenveil.queries.limits import need
from eigenveil.study.grid import steps
from eigenveil.study.study import Study


def box(study: Study) -> IntArray:
    """The farthest grid point of each column from the middle of its public bounds. Shape: (d,)."""
    half = np.array([column.half_range for column in study.columns])
    return np.ceil(half / steps(study)).astype(np.int64)


def check_bounds(query: Query, most: IntArray) -> None:
    """Insist that a query stays within what an honest study may ask. Shape: most (d,), its study's `box`.

    Through any frame rows lie in the box of the grid, which is that of the bounds where columns are scaled.

    Raises:
        RequestError: code `plan-overflow`.
    """
    centre = centre_of(query)
    need(
        columns_of(query) in {None, most.size}, "a question is about another number of columns than its study"
    )
    if centre is not None:
        need(bool((np.abs(centre) <= most).all()), "a centre lies outside of the public bounds")
    query.check_honest()
