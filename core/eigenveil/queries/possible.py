"""What the answer of an honest site can be: checks that every query's `possible` is made of.

`records` is a range in which the site's number of records lies; it holds one number where that is known.
Where floats compare, they lean to the site's side by more than they can be wrong: an honest answer always
passes. Sums are far below the 2**62 that `check_no_overflow` allows once every entry is `within`.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Sequence

import numpy as np

from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.numerics.linalg import rows_above
from eigenveil.queries.contract import Contract
from eigenveil.queries.limits import Clipped, within

PANEL = 128  # rows of a matrix that are factored at once
UNIT = 2.0**-53  # half a float64's step: the most that one operation is off by, relatively


def most(records: range) -> int:
    return records[-1]


def at_most(counts: IntArray, total: int) -> bool:
    """Whether these are counts of no more than `total` in all."""
    return bool((counts >= 0).all()) and sum(map(int, counts)) <= total


def is_short(values: IntArray, length: int) -> bool:
    """Whether a vector is no longer than `length`.

    Floats: m squares of rounded integers and their sum are off by less than (m + 4) 2**-52, relatively.
    """
    if not within(values, length):
        return False
    rounded = values.astype(np.float64).reshape(-1)
    slack = 1 + (rounded.size + 8) * 4 * UNIT
    return float(rounded @ rounded) <= float(length) ** 2 * slack


def is_histogram(query: object, counts: IntArray, records: range) -> bool:
    """Whether every record can be in one bin."""
    return bool((counts >= 0).all()) and sum(map(int, counts)) in records


def is_gram_of(query: Clipped, triangle: IntArray, records: range) -> bool:
    """`is_gram` of the query's columns and radius."""
    return is_gram(triangle, query.centre.size, query.radius, records)


def is_gram(triangle: IntArray, d: int, radius: int, records: range) -> bool:
    """Whether vectors no longer than `radius`, one a record, can have these sums of products.

    Shape: triangle (d (d + 1) / 2,), the diagonal, then the strict upper triangle row by row.
    """
    diagonal = triangle[:d]
    limit = most(records) * radius**2
    if not bool((diagonal >= 0).all()) or sum(map(int, diagonal)) > limit or not within(triangle, limit):
        return False
    if not diagonal.any():
        return not triangle.any()
    squares = diagonal.astype(np.float64)
    for i, row in enumerate(rows_above(d)):
        products = np.square(triangle[row], dtype=np.float64)
        if not bool((products <= squares[i] * squares[i + 1 :] * (1 + 16 * UNIT)).all()):
            return False
    return _is_semidefinite(triangle, d)


def _is_semidefinite(triangle: IntArray, d: int) -> bool:
    """Whether rounded integers may come from a positive semidefinite matrix.

    Cholesky's method runs to its end in floats if the least eigenvalue is above (d + 2) 2**-53 trace or so
    [Rump 2006, Demmel 1989]. Rounding moved no eigenvalue by more than 2**-53 trace. Adding ten times that
    to the diagonal leaves no honest matrix behind, and lets pass eigenvalues down to minus as much.
    """
    shift = 10 * (d + 4) * UNIT * math.fsum(triangle[:d])
    blocks = [_room(first, min(PANEL, d - first)) for first in range(0, d, PANEL)]
    above, scratch = rows_above(d), np.empty((PANEL, min(PANEL, d)))
    try:
        for first in range(0, d, PANEL):
            panel = _panel(triangle, above, first, d, shift)
            _factor(panel, blocks.pop(0), blocks, scratch)
    except np.linalg.LinAlgError:
        return False
    return True


def _room(rows: int, columns: int) -> FloatArray:
    """Memory of its own, which is none until it is written to, and given back at once."""
    return np.frombuffer(mmap.mmap(-1, 8 * max(1, rows * columns)))[: rows * columns].reshape(rows, columns)


def _panel(triangle: IntArray, above: Iterator[slice], first: int, d: int, shift: float) -> FloatArray:
    """The next PANEL rows from the diagonal on, to which `shift` is added. Shape: (m, rest)."""
    panel = np.zeros((min(PANEL, d - first), d - first))
    for i in range(len(panel)):
        panel[i, i] = float(triangle[first + i]) + shift
        panel[i, i + 1 :] = triangle[next(above)]
    return panel


def _factor(panel: FloatArray, mine: FloatArray, blocks: Sequence[FloatArray], scratch: FloatArray) -> None:
    """The same rows of Cholesky's upper factor, written to `blocks`: what is known of it, PANEL columns each.

    `mine` are those columns in which the panel begins: nobody needs them after it. So no more than half of
    the factor is in memory at any time. Raises LinAlgError, there is none.
    """
    first, rows = mine.shape
    parts = np.split(panel, range(rows, panel.shape[1], PANEL), axis=1)
    for part, known in zip(parts, (mine, *blocks), strict=True):
        part -= np.matmul(mine.T, known[:first], out=scratch[:rows, : part.shape[1]])
    own = np.linalg.cholesky(parts[0], upper=True)
    right = panel[:, rows:]
    for i in range(rows if blocks else 0):
        right[i] -= own[:i, i] @ right[:i]
        right[i] /= own[i, i]
    for part, known in zip(parts[1:], blocks, strict=True):
        known[first : first + rows] = part


def falling(largest: int, length: int) -> IntArray:
    """Imagined numbers, the i-th about `largest` / i. Shape: (length,)."""
    return frozen((largest // (1 + np.arange(length))).astype(np.int64))


def falling_sum(query: Contract, records: int) -> IntArray:
    """The imagined sum of vectors that are an eighth of the query's bound long, or less. Shape: (length,)."""
    return falling(records * query.bound // 8, query.length)
