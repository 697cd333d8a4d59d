"""Rows as a frame shows them, and the queries about every column: one record at a time, in integers [P29]."""

from __future__ import annotations

import numpy as np

from eigenveil.numerics.encoding import IntArray, check_exact, frozen
from eigenveil.queries.columns import (
    BIN,
    BIN_BITS,
    BINS,
    FRAME_BITS,
    HALF,
    SQUARE_BITS,
    VALUE_BITS,
    ColumnHistograms,
    ColumnMoments,
    Frame,
)
from eigenveil.site.clipping import weights
from eigenveil.study.grid import GridRows, S

CACHED = 2**17  # entries worked on at a time


def seen(rows: GridRows, frame: Frame) -> GridRows:
    """The rows as the frame shows them. Shape: (n, d) -> (n, d).

    Exact: |x - m| <= 2 S = 2^13 and a factor of at most 2^30 have a product below 2^53, which a power of two
    divides exactly, and rint of an exact number is a function of that number.

    Neighbours: each row is a function of that record and of the public frame.
    Privacy: none by itself; it goes on to a query [P29].
    """
    out, size = np.empty(rows.shape, dtype=np.int16), max(1, CACHED // rows.shape[1])
    factors = frame.factors.astype(np.float64) * 2.0**-FRAME_BITS
    for start in range(0, len(rows), size):
        part = rows[start : start + size].astype(np.float64)
        part -= frame.middles
        part *= factors
        np.rint(part, out=part)
        out[start : start + size] = np.clip(part, -S, S, out=part)
    out.setflags(write=False)
    return out


def column_histograms(rows: GridRows, query: ColumnHistograms) -> IntArray:
    """Counts of records by bin, column after column. Shape: rows (n, d) -> (BINS d,)."""
    first = np.arange(query.columns) * BINS + HALF
    counts, size = np.zeros(query.length, dtype=np.int64), max(1, CACHED // query.columns)
    for start in range(0, len(rows), size):
        bins = ((rows[start : start + size] + BIN // 2) >> BIN_BITS) + first
        counts += np.bincount(bins.reshape(-1), minlength=query.length)
    return frozen(counts)


def column_moments(rows: GridRows, query: ColumnMoments) -> IntArray:
    """Sum of t v (see `clipping.weights`). Shape: rows (n, d) -> (2 d,)."""
    size = max(1, CACHED // query.columns)
    check_exact(size * float(query.bound))
    total = np.zeros(query.length, dtype=np.int64)
    for start in range(0, len(rows), size):
        x = rows[start : start + size].astype(np.float64)
        v = np.hstack([np.rint(x * x / 2**SQUARE_BITS), np.rint(x / 2**VALUE_BITS)])
        t = weights(np.vecdot(v, v).astype(np.int64), query.radius)
        total += (t.astype(np.float64) @ v).astype(np.int64)
    return frozen(total)
