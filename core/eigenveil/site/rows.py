"""The queries about rows: exact sums over chunks of them."""

from __future__ import annotations

import numpy as np

from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.numerics.exact_sum import ExactSum
from eigenveil.numerics.linalg import rows_above
from eigenveil.queries import ClippedSum, Grams, RadiusSearch, RowNorms, SquaredNormSum
from eigenveil.site.kernels.clipping import weights
from eigenveil.site.stored import CACHED, Chunk, Shown

TALL, MULTIPLIED = 2**9, 2**20  # rows of a chunk that is multiplied by itself, unless they have more entries
BLOCK = 2**10  # columns of a Gram matrix that are summed together: nothing is held of what lies below them


def squared_norms(z: Chunk) -> IntArray:
    """||z||^2 in integers. Shape: (m,)."""
    return z.squared_norms().astype(np.int64)


def row_norms(shown: Shown, query: RowNorms | RadiusSearch, chunk: int) -> IntArray:
    """Counts of records by norm; the comparison is ||z||^2 against edge^2 in integers."""
    squares, counts = query.edges**2, np.zeros(query.length, dtype=np.int64)
    for z in shown.chunks(query.centre, chunk):
        bins = np.searchsorted(squares, squared_norms(z), side="right")
        counts += np.bincount(bins, minlength=query.length)
    return frozen(counts)


def squared_norm_sum(shown: Shown, query: SquaredNormSum, chunk: int) -> IntArray:
    """Sum of min(||z||^2, R^2)."""
    most, chunks = query.radius**2, shown.chunks(query.centre, chunk)
    return frozen([sum(int(np.minimum(squared_norms(z), most).sum()) for z in chunks)])


def clipped_sum(shown: Shown, query: ClippedSum, chunk: int) -> IntArray:
    """Sum of t z (see `clipping.weights`)."""
    total = ExactSum((query.length,), query.bound)
    for z in shown.chunks(query.centre, min(chunk, total.most)):
        t = weights(squared_norms(z), query.radius).astype(np.float64)
        total.add(z.combined(t[:, None])[0], len(z))
    return frozen(total.total())


def gram(shown: Shown, query: Grams, chunk: int) -> IntArray:
    """Sum of z z^T over shortened rows: diagonal, then the strict upper triangle row by row.

    Cost: the answer twice at most, and once where there are so few records that floats hold their sums.
    """
    d, bound = query.centre.size, query.radius**2
    sums = [ExactSum((min(BLOCK, d - start), d - start), bound) for start in range(0, d, BLOCK)]
    entries = max(CACHED, min(TALL * d, MULTIPLIED))
    for z in shown.chunks(query.centre, min(chunk, sums[0].most), entries):
        short = z.short(query.radius)
        for start, block in zip(range(0, d, BLOCK), sums, strict=True):
            block.add(short[:, start : start + BLOCK].T @ short[:, start:], len(short))
    out, rows = np.empty(query.length, dtype=np.int64), rows_above(d)
    for start in range(0, d, BLOCK):
        for i, row in enumerate(sums.pop(0).total()):
            out[start + i], out[next(rows)] = row[i], row[i + 1 :]
    out.setflags(write=False)
    return frozen(out)
