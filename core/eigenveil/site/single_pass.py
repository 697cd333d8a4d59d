"""The private side of the single-pass queries: integer gradients, and what each record or subset says.

A gradient is exact: |z . w| < 2**46 as a float64 product of integers, |z_j (z . w)| < 2**59 in int64. A
subset's vote depends on that subset's records alone, as a set: a record more moves one vote [P22].
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from eigenveil.numerics.blas import one_thread
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.numerics.exact_sum import ExactSum
from eigenveil.queries import CoordinateClippedSum, Coordinates, GradientSpec, Votes
from eigenveil.queries.single_pass import VOTE_LIMIT
from eigenveil.site.partition import SPREAD, deal
from eigenveil.site.stored import CACHED, Shown


def gradients(z: FloatArray, spec: GradientSpec) -> IntArray:
    """floor(z (z . w) / 2**shift), record by record. Shape: z (m, d) -> (m, d)."""
    along = (z @ spec.directions[:, 0].astype(np.float64)).astype(np.int64)
    out: IntArray = z.astype(np.int64)
    out *= along[:, None]
    out >>= spec.shift
    return out


def coordinates(shown: Shown, query: Coordinates, chunk: int) -> IntArray:
    """Counts of records by coordinate and bin."""
    first = 2 * query.half * np.arange(query.histograms)
    counts = np.zeros(query.length, dtype=np.int64)
    for z in shown.centred(query.spec.centre, chunk):
        bins = np.clip(gradients(z, query.spec) // query.width + query.half, 0, 2 * query.half - 1)
        counts += np.bincount((bins + first).reshape(-1), minlength=query.length)
    return frozen(counts)


def coordinate_clipped_sum(shown: Shown, query: CoordinateClippedSum, chunk: int) -> IntArray:
    """Sum of gradients less the middles, cut off coordinate by coordinate."""
    total = np.zeros(query.length, dtype=np.int64)
    for z in shown.centred(query.spec.centre, chunk):
        off = gradients(z, query.spec) - query.middles
        total += np.clip(off, -query.halves, query.halves).sum(axis=0)
    return frozen(total)


def votes(shown: Shown, query: Votes, chunk: int) -> IntArray:
    """Counts of subsets by the bin of their top eigenvalue.

    Sensitivity: `Votes.l1`; which subset a record is in, and where in it, depends on that record, its number
    among its equals and a public key [P9] [P22].
    Cost: what `deal` holds, and 24 bytes a record.
    """
    key = np.zeros(4, dtype=np.int64) if query.batch is None else query.batch.key
    # By another key than the batch, or the two deals would agree.
    place = deal(shown.all(), SPREAD, ~key, shown.unit)
    subset, turn = place % query.subsets, place // query.subsets
    order = np.lexsort((turn, subset))
    counts = np.zeros(query.length, dtype=np.int64)
    cuts = np.searchsorted(subset[order], np.arange(query.subsets + 1))
    with one_thread():
        for start, stop in pairwise(cuts.tolist()):
            if stop - start >= 2:
                paired = order[start : stop - (stop - start) % 2]
                counts[_bin(shown.only(paired), query, chunk)] += 1
    return frozen(counts)


def _bin(subset: Shown, query: Votes, chunk: int) -> int:
    """The bin of the top eigenvalue of sum (g - g')^T (g - g') / (2 pairs), over neighbours in the order.

    Exactness: differences of at most 2 VOTE_LIMIT, multiplied.
    """
    pairs, d = len(subset) // 2, query.spec.centre.size
    wide = pairs < d  # then the smaller matrix of the two, for which all differences are held
    sums = ExactSum((pairs, pairs) if wide else (d, d), (2 * VOTE_LIMIT) ** 2)
    size = max(2, min(chunk, CACHED // d) // 2 * 2)  # no chunk ends within a pair
    chunks = (_differences(z, query.spec) for z in subset.centred(query.spec.centre, size, size * d))
    for tall in [np.vstack(list(chunks)).T] if wide else chunks:
        for start in range(0, len(tall), sums.most):
            piece = tall[start : start + sums.most]
            sums.add(piece.T @ piece, len(piece))
    top = float(np.linalg.eigvalsh(sums.total().astype(np.float64))[-1]) / (2 * pairs)
    return int(np.searchsorted(query.edges.astype(np.float64), top, side="right"))


def _differences(z: FloatArray, spec: GradientSpec) -> FloatArray:
    """What pairs of neighbours differ by. Shape: (2 m, d) -> (m, d)."""
    g = np.clip(gradients(z, spec), -VOTE_LIMIT, VOTE_LIMIT).astype(np.float64)
    return g[0::2] - g[1::2]
