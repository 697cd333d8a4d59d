"""The private side of the single-pass queries: integer gradients, and what each record or subset says.

A gradient is exact: |z . w| < 2**46 as a float64 product of integers, |z_j (z . w)| < 2**59 in int64. A
subset's vote depends on that subset's records alone, as a set: a record more moves one vote [P22].
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from eigenveil.numerics.blas import one_thread
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.queries import CoordinateClippedSum, Coordinates, GradientSpec, Votes
from eigenveil.queries.single_pass import VOTE_LIMIT
from eigenveil.site.partition import SPREAD, deal
from eigenveil.site.rows import CentredRows
from eigenveil.study.grid import GridRows

EXACT_ROWS = 2**10  # differences of 2**21, squared, that many times: 2**52


def gradients(rows: CentredRows, spec: GradientSpec) -> IntArray:
    """floor(z (z . w) / 2**shift), record by record. Shape: rows (n, d) -> (n, d)."""
    along = (rows.z @ spec.directions[:, 0].astype(np.float64)).astype(np.int64)
    out: IntArray = rows.z.astype(np.int64)
    out *= along[:, None]
    out >>= spec.shift
    return out


def coordinates(rows: CentredRows, query: Coordinates, chunk: int) -> IntArray:
    """Counts of records by coordinate and bin."""
    first = 2 * query.half * np.arange(query.histograms)
    counts = np.zeros(query.length, dtype=np.int64)
    for piece in rows.pieces(chunk):
        bins = np.clip(gradients(piece, query.spec) // query.width + query.half, 0, 2 * query.half - 1)
        counts += np.bincount((bins + first).reshape(-1), minlength=query.length)
    return frozen(counts)


def coordinate_clipped_sum(rows: CentredRows, query: CoordinateClippedSum, chunk: int) -> IntArray:
    """Sum of gradients less the middles, cut off coordinate by coordinate."""
    total = np.zeros(query.length, dtype=np.int64)
    for piece in rows.pieces(chunk):
        off = gradients(piece, query.spec) - query.middles
        total += np.clip(off, -query.halves, query.halves).sum(axis=0)
    return frozen(total)


def votes(rows: CentredRows, records: GridRows, query: Votes) -> IntArray:
    """Counts of subsets by the bin of their top eigenvalue.

    Shape: rows (n, d), records (n, d) int16, the same records in the same order.
    Sensitivity: `Votes.l1`; which subset a record is in, and where in it, depends on that record, its number
    among its equals and a public key [P9] [P22].
    """
    key = np.zeros(4, dtype=np.int64) if query.batch is None else query.batch.key
    place = deal(records, SPREAD, ~key)  # by another key than the batch, or the two deals would agree
    subset, turn = place % query.subsets, place // query.subsets
    order = np.lexsort((turn, subset))
    counts = np.zeros(query.length, dtype=np.int64)
    cuts = np.searchsorted(subset[order], np.arange(query.subsets + 1))
    with one_thread():
        for start, stop in pairwise(cuts.tolist()):
            if stop - start >= 2:
                counts[_bin(rows.only(order[start:stop]), query)] += 1
    return frozen(counts)


def _bin(subset: CentredRows, query: Votes) -> int:
    """The bin of the top eigenvalue of sum (g - g')^T (g - g') / (2 pairs), over neighbours in the order."""
    g = np.clip(gradients(subset, query.spec), -VOTE_LIMIT, VOTE_LIMIT).astype(np.float64)
    pairs = len(g) // 2
    differences = g[0 : 2 * pairs : 2] - g[1 : 2 * pairs : 2]
    tall = differences if pairs >= g.shape[1] else differences.T  # the smaller matrix of the two
    total = np.zeros((tall.shape[1], tall.shape[1]), dtype=np.int64)
    for start in range(0, len(tall), EXACT_ROWS):
        piece = tall[start : start + EXACT_ROWS]
        total += (piece.T @ piece).astype(np.int64)
    top = float(np.linalg.eigvalsh(total.astype(np.float64))[-1]) / (2 * pairs)
    return int(np.searchsorted(query.edges.astype(np.float64), top, side="right"))
