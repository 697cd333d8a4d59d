"""The public geometry of subspace-approx: points, the grid's offset, and what a cell says of a subspace.

All of it follows from a question's own fields, so a site and the coordinator agree on it.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

from eigenveil.numerics.blas import one_thread
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.numerics.linalg import fix_signs
from eigenveil.numerics.normal import quantiles
from eigenveil.queries.fingerprints import CELL_BITS, Cells

POINT_STEP = 2.0**-20  # points lie on a grid, so that another mathematical library gives the same ones


def points(cells: Cells) -> FloatArray:
    """Public points, normal in every direction. Shape: (q, d)."""
    return np.asarray(np.rint(quantiles(_uniform(cells, b"points")) / POINT_STEP) * POINT_STEP)


def offsets(cells: Cells) -> FloatArray:
    """Where the grid begins, uniform within a cell. Shape: (q, d)."""
    return _uniform(cells, b"offsets") * width(cells)


def _uniform(cells: Cells, purpose: bytes) -> FloatArray:
    """Public numbers in (0, 1) that look uniform and follow from the key. Shape: (q, d)."""
    label = b"eigenveil/cells/v1\n" + purpose + cells.key.astype("<i8").tobytes()
    data = hashlib.shake_256(label).digest(4 * cells.size)
    numbers: FloatArray = (np.frombuffer(data, dtype="<u4").astype(np.float64) + 0.5) / 2**32
    return numbers.reshape(cells.points, -1)


def width(cells: Cells) -> float:
    return cells.width * 2.0**-CELL_BITS


def cell_of(moved: FloatArray, cells: Cells) -> IntArray:
    """The cell that points fall in. Shape: (q, d) -> (q d,)."""
    return np.floor((moved + offsets(cells)) / width(cells)).astype(np.int64).reshape(-1)


def middle_of(cell: IntArray, cells: Cells) -> FloatArray:
    """The points in the middle of a cell. Shape: (q d,) -> (q, d)."""
    return np.asarray((cell.reshape(cells.points, -1) + 0.5) * width(cells) - offsets(cells))


def leading(moved: FloatArray, k: int) -> FloatArray:
    """The k directions in which points spread most. Shape: (q, d) -> (k, d), orthonormal."""
    with one_thread():
        _, _, vectors = np.linalg.svd(moved, full_matrices=False)
    return fix_signs(vectors[:k].T).T


def width_for(error: float, d: int, k: int, q: int) -> int:
    """The width, in 2^-32, at which rounding to a cell turns the subspace by a sine of about `error`.

    The least singular value of the q-by-k part of the moved points that carries the subspace is about
    sqrt(q) - sqrt(k - 1), as the points are normal.
    """
    side = error * math.sqrt(12) * (math.sqrt(q) - math.sqrt(k - 1)) / _across(d, k)
    units = math.floor(side * 2.0**CELL_BITS)
    return min(max(units, 2**8), 2**40)


def error_of(moved: FloatArray, cells: Cells) -> float:
    """The sine that rounding to a cell turned the subspace by, about, as its middle shows. Shape: (q, d).

    A coordinate is off by a uniform within a cell, of variance width^2 / 12.
    """
    with one_thread():
        carried = float(np.linalg.svd(moved, compute_uv=False)[cells.rank - 1])
    off = width(cells) / math.sqrt(12) * _across(cells.centre.size, cells.rank)
    return off / max(carried, off)


def _across(d: int, k: int) -> float:
    """Largest singular value of k-by-(d - k) independent numbers of variance 1, about."""
    return max(1.0, math.sqrt(d - k) + math.sqrt(k) - 1)


def ratio_for(cells: Cells, records: float) -> float:
    """The largest lambda_{k+1} / lambda_k at which most subsamples of `records` records agree, about.

    A coordinate of a moved point differs between subsamples by sqrt(2 k ratio / records); q d coordinates
    must all fall in one cell, each fails with about that over the width.
    """
    spread = width(cells) / (4 * cells.size)
    return spread**2 * max(records, 1.0) / (2 * cells.rank)
