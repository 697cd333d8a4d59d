"""Private side of the single-pass queries: integer gradients, and the votes of records and subsets.

A gradient is exact: |z . w| < 2**46 as a float64 product of integers, |z_j (z . w)| < 2**59 in int64. A
subset's vote depends on the set of its records alone, so one record more changes one vote [P22].
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from eigenveil.numerics.encoding import ExactSum, FloatArray, IntArray, frozen
from eigenveil.numerics.linalg import single_blas_thread
from eigenveil.queries import CoordinateClippedSum, CoordinateHistograms, EigenvalueVotes, GradientSpec
from eigenveil.queries.papers.single_pass import VOTE_LIMIT
from eigenveil.site.batches import HASH_RANGE, assign_batches
from eigenveil.site.record_view import CHUNK_ENTRIES, RecordView


def integer_gradients(z: FloatArray, spec: GradientSpec) -> IntArray:
    """Return floor(z (z . w) / 2**shift) of each record. Shape: z (m, d) -> (m, d)."""
    along = (z @ spec.directions[:, 0].astype(np.float64)).astype(np.int64)
    out: IntArray = z.astype(np.int64)
    out *= along[:, None]
    out >>= spec.shift
    return out


def coordinates(view: RecordView, query: CoordinateHistograms, chunk: int) -> IntArray:
    """Return the counts of records by coordinate and bin."""
    first = 2 * query.half * np.arange(query.histograms)
    counts = np.zeros(query.length, dtype=np.int64)
    for z in view.centred(query.spec.centre, chunk):
        bins = np.clip(integer_gradients(z, query.spec) // query.width + query.half, 0, 2 * query.half - 1)
        counts += np.bincount((bins + first).reshape(-1), minlength=query.length)
    return frozen(counts)


def coordinate_clipped_sum(view: RecordView, query: CoordinateClippedSum, chunk: int) -> IntArray:
    """Return the sum of gradients minus the middles, clipped coordinate by coordinate."""
    total = np.zeros(query.length, dtype=np.int64)
    for z in view.centred(query.spec.centre, chunk):
        off = integer_gradients(z, query.spec) - query.middles
        total += np.clip(off, -query.halves, query.halves).sum(axis=0)
    return frozen(total)


def votes(view: RecordView, query: EigenvalueVotes, chunk: int) -> IntArray:
    """Return the counts of subsets by the bin of their top eigenvalue.

    Sensitivity: `EigenvalueVotes.l1`; a record's subset and its rank there depend on that record, its
    occurrence number
    and a public key [P9] [P22].
    Cost: the memory of `assign_batches`, and 24 bytes a record.
    """
    key = np.zeros(4, dtype=np.int64) if query.batch is None else query.batch.key
    # Another key than the batch's: with the same one the two assignments would coincide.
    hashes = assign_batches(view.all_rows(), HASH_RANGE, ~key, view.unit)
    subset, rank = hashes % query.subsets, hashes // query.subsets
    order = np.lexsort((rank, subset))
    counts = np.zeros(query.length, dtype=np.int64)
    cuts = np.searchsorted(subset[order], np.arange(query.subsets + 1))
    with single_blas_thread():
        for start, stop in pairwise(cuts.tolist()):
            if stop - start >= 2:
                paired = order[start : stop - (stop - start) % 2]
                counts[_eigenvalue_bin(view.select(paired), query, chunk)] += 1
    return frozen(counts)


def _eigenvalue_bin(subset: RecordView, query: EigenvalueVotes, chunk: int) -> int:
    """Return the bin of the top eigenvalue of sum (g - g')^T (g - g') / (2 pairs) over adjacent records.

    Exactness: differences of at most 2 VOTE_LIMIT, multiplied.
    """
    pairs, d = len(subset) // 2, query.spec.centre.size
    wide = pairs < d  # use the smaller of the two Gram matrices; it needs all differences in memory
    sums = ExactSum((pairs, pairs) if wide else (d, d), (2 * VOTE_LIMIT) ** 2)
    size = max(2, min(chunk, CHUNK_ENTRIES // d) // 2 * 2)  # no chunk ends within a pair
    chunks = (_differences(z, query.spec) for z in subset.centred(query.spec.centre, size, size * d))
    for tall in [np.vstack(list(chunks)).T] if wide else chunks:
        for start in range(0, len(tall), sums.most):
            piece = tall[start : start + sums.most]
            sums.add(piece.T @ piece, len(piece))
    top = float(np.linalg.eigvalsh(sums.total().astype(np.float64))[-1]) / (2 * pairs)
    return int(np.searchsorted(query.edges.astype(np.float64), top, side="right"))


def _differences(z: FloatArray, spec: GradientSpec) -> FloatArray:
    """Return the differences of adjacent pairs. Shape: (2 m, d) -> (m, d)."""
    g = np.clip(integer_gradients(z, spec), -VOTE_LIMIT, VOTE_LIMIT).astype(np.float64)
    return g[0::2] - g[1::2]
