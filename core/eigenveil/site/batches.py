"""Batches of records by their values, never by their positions [P9], and the single-pass queries on them. A
gradient is exact: |z . w| < 2**46 as a float64 product of integers, |z_j (z . w)| < 2**59 in int64. A
subset's vote depends on the set of its records alone, so one record more changes one vote [P22]."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from eigenveil.numerics.encoding import ExactSum, FloatArray, IntArray, frozen
from eigenveil.numerics.linalg import single_blas_thread
from eigenveil.queries import CoordinateClippedSum, CoordinateHistograms, EigenvalueVotes, GradientSpec
from eigenveil.queries.papers.single_pass import VOTE_LIMIT
from eigenveil.site.record_view import CHUNK_ENTRIES, RecordView
from eigenveil.study.grid import GridRows

BLOCK_ENTRIES = 2**17  # entries of a block
HASH_RANGE = 2**62  # number of batches that makes the batch a plain hash


def assign_batches(rows: GridRows, batches: int, key: IntArray, unit: int = 1) -> IntArray:
    """Return each record's batch: a keyed hash of the record and its occurrence number, modulo `batches`. The
    occurrence number counts equal records. One record more adds one (record, number) pair and changes no
    other record's batch; batches by position would move every record behind it. The guarantee only needs a
    function of the pair, and the key is public. The hash is a mixed random linear form modulo 2^64, so that
    batches have about equal sizes (proto/PROTOCOL.md, R13; core/decisions/0013).
    Shape: rows (n, d) stored integers, which times `unit` are on the grid, key (4,) -> (n,) in [0, batches).
    Cost: about 40 bytes a record while equal records are counted, 16 after that."""
    multipliers = _hash_multipliers(key, rows.shape[1] + 1)
    mixed: NDArray[np.uint64] = _occurrence_numbers(rows).view(np.uint64)
    mixed *= multipliers[0]
    multipliers = multipliers[1:] * np.uint64(unit)
    for here in _chunks(rows):
        mixed[here] += rows[here].astype(np.int64).view(np.uint64) @ multipliers
    for shift, multiplier in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # splitmix64's finalizer
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(multiplier)
    mixed ^= mixed >> np.uint64(31)
    return np.asarray(mixed % np.uint64(batches), dtype=np.int64)


def _hash_multipliers(key: IntArray, count: int) -> NDArray[np.uint64]:
    """Return odd multipliers derived from a key. Shape: (count,)."""
    text = hashlib.shake_256(b"eigenveil/deal/v1" + key.astype("<i8").tobytes()).digest(8 * count)
    return np.frombuffer(text, dtype="<u8") | np.uint64(1)


def _occurrence_numbers(rows: GridRows) -> IntArray:
    """Return each record's number among equal records, in file order. Shape: (n, d) -> (n,)."""
    if not len(rows):
        return np.zeros(0, dtype=np.int64)
    whole_row = np.dtype((np.void, rows.itemsize * rows.shape[1]))
    row_bytes = np.ascontiguousarray(rows).view(whole_row).reshape(-1)
    order = np.argsort(row_bytes, kind="stable")
    begin = np.ones(len(rows), dtype=np.bool_)
    for here in _chunks(rows):
        ranked = rows[order[max(here.start - 1, 0) : here.stop]]
        begin[max(here.start, 1) : here.stop] = (ranked[1:] != ranked[:-1]).any(axis=1)
    begins = np.flatnonzero(begin)
    numbers = np.empty(len(rows), dtype=np.int64)
    numbers[order] = np.arange(len(rows)) - np.repeat(begins, np.diff(np.r_[begins, len(rows)]))
    return numbers


def _chunks(rows: GridRows) -> Iterator[slice]:
    """Return consecutive blocks of the rows that fit into the cache."""
    size = max(1, BLOCK_ENTRIES // rows.shape[1])
    return (slice(start, min(start + size, len(rows))) for start in range(0, len(rows), size))


def shuffle_slots(records: int, slots: int, key: IntArray, secret: bytes) -> IntArray:
    """Return the record in each slot: the first `slots` of a random order of records and empty positions.
    Positions from `records` on are empty. The order is that of a hash keyed with a secret of the site and the
    key of the pass. Without the secret it is indistinguishable from a uniform order, and it is the same each
    time [P24].
    Shape: key (4,) -> (slots,)."""
    salt = key.astype("<i8").tobytes()
    positions = range(max(records, slots))
    messages = (salt + position.to_bytes(8, "little") for position in positions)
    hashes = [hashlib.blake2b(name, digest_size=16, key=secret).digest() for name in messages]
    return np.array(sorted(positions, key=hashes.__getitem__)[:slots], dtype=np.int64)


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
    occurrence number and a public key [P9] [P22].
    Cost: the memory of `assign_batches`, and 24 bytes a record."""
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
    Exactness: differences of at most 2 VOTE_LIMIT, multiplied."""
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
