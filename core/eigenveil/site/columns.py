"""The queries about every column: one record at a time, in integers [P29]."""

from __future__ import annotations

import numpy as np

from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.numerics.exact_sum import ExactSum
from eigenveil.queries.columns import (
    BIN,
    BINS,
    HALF,
    SQUARE_BITS,
    VALUE_BITS,
    ColumnHistograms,
    ColumnMoments,
)
from eigenveil.site.kernels.clipping import weights
from eigenveil.site.stored import Shown


def column_histograms(shown: Shown, query: ColumnHistograms, chunk: int) -> IntArray:
    """Counts of records by bin, column after column. Shape: rows (n, d) -> (BINS d,).

    Exact: x + BIN / 2 is a float64 integer, which a power of two divides.
    """
    first = np.arange(query.columns) * BINS + HALF
    counts = np.zeros(query.length, dtype=np.int64)
    for x in shown.centred(np.zeros(query.columns, dtype=np.int64), chunk):
        x /= BIN
        x += 0.5
        bins = np.floor(x, out=x).astype(np.int64)
        bins += first
        counts += np.bincount(bins.reshape(-1), minlength=query.length)
    return frozen(counts)


def column_moments(shown: Shown, query: ColumnMoments, chunk: int) -> IntArray:
    """Sum of t v (see `clipping.weights`). Shape: rows (n, d) -> (2 d,)."""
    total = ExactSum((query.length,), query.bound)
    for x in shown.centred(np.zeros(query.columns, dtype=np.int64), min(chunk, total.most)):
        v = np.hstack([np.rint(x * x / 2**SQUARE_BITS), np.rint(x / 2**VALUE_BITS)])
        t = weights(np.vecdot(v, v).astype(np.int64), query.radius)
        total.add(t.astype(np.float64) @ v, len(v))
    return frozen(total.total())
