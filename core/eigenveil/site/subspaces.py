"""Private side of the subspace queries: spans, directions and candidates of subsamples, and the dispatch.
Spans are taken over the integers modulo p = 2^61 - 1, where elimination is exact and cheap. The reduced row
echelon form of a span, a canonical integer matrix, does not depend on the order or repetition of its records.
Entries of rows are below 2^14 in magnitude, so they are distinct modulo p."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import assert_never

import numpy as np
from flint import nmod_mat

from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.numerics.linalg import single_blas_thread
from eigenveil.queries import BlockRanks, CellVotes, Preimage, RankVotes, SpanGap, SpanVotes, SubspaceQuery
from eigenveil.queries.papers import fingerprints as geometry
from eigenveil.queries.papers.fingerprints import PRIME, Cells, Pool, Subsamples, fingerprint
from eigenveil.site.batches import HASH_RANGE, assign_batches
from eigenveil.study.grid import GridRows

LOW_BITS = 31
HALF_BITS = 61 - LOW_BITS


def subsamples_of(rows: GridRows, count: int, key: IntArray) -> Iterator[IntArray]:
    """Return the positions of each subsample's records; a record's subsample depends on the record [P9]."""
    place = assign_batches(rows, count, key)
    order = np.argsort(place, kind="stable")
    cuts = np.searchsorted(place[order], np.arange(count + 1))
    return (order[start:stop] for start, stop in pairwise(cuts.tolist()))


def spans(rows: GridRows, query: Subsamples) -> Iterator[IntArray | None]:
    """Yield the span of each subsample; None where its dimension is above `query.rank`.
    Shape: (r, d) each, r <= query.rank.
    Sensitivity: one record more makes one subsample's span larger by at most one dimension, or leaves it
    [P15]."""
    for positions in subsamples_of(rows, query.count, query.key):
        yield span(rows[positions] - query.centre, query.rank)


def span(z: IntArray, most: int) -> IntArray | None:
    """Return the reduced row echelon form of z modulo p, without zero rows; None above `most` rows. Records
    are added only while they add a dimension; the others are checked to lie in the span.
    Shape: z (m, d), |entries| <= 2^13 -> (r, d), entries in [0, p)."""
    found = row_echelon_form(z[: most + 1])
    while len(found) <= most:
        outside = ~in_span(z, found)
        if not outside.any():
            return found
        found = row_echelon_form(np.vstack([found, z[outside][: most + 1 - len(found)]]))
    return None


def row_echelon_form(rows: IntArray) -> IntArray:
    """Return the reduced row echelon form modulo p, without zero rows.
    Shape: (m, d) -> (r, d), entries in [0, p)."""
    m, d = rows.shape
    if m == 0:
        return np.zeros((0, d), dtype=np.int64)
    form, rank = nmod_mat(m, d, rows.ravel().tolist(), PRIME).rref()
    return np.array([int(entry) for entry in form.entries()], dtype=np.int64).reshape(m, d)[:rank]


def in_span(z: IntArray, form: IntArray) -> IntArray:
    """Return True for each row that lies in the span: z = z[pivots] form modulo p.
    Shape: z (m, d), form (r, d) -> (m,) bool.
    Exactness: form is split into halves below 2^31; with |z| <= 2^13 and r <= 256 both float64 products stay
    below 2^52. As 2^61 = 1 modulo p, the upper product h counts as (h >> 30) + (h mod 2^30) 2^31. So the
    total stays above -p and below 2 p, where only 0 and p are 0 modulo p."""
    pivots = (form != 0).argmax(axis=1)  # of each row's leading 1
    leading = z[:, pivots].astype(np.float64)
    upper = (leading @ (form >> LOW_BITS).astype(np.float64)).astype(np.int64)
    lower = (leading @ (form & (2**LOW_BITS - 1)).astype(np.float64)).astype(np.int64)
    rest = (upper >> HALF_BITS) + ((upper & (2**HALF_BITS - 1)) << LOW_BITS) + lower - z
    return np.asarray(((rest == 0) | (rest == PRIME)).all(axis=1))


def span_votes(rows: GridRows, query: Subsamples) -> IntArray:
    """Return the fingerprint of each subsample's span of dimension exactly `query.rank`; zeros elsewhere.
    Shape: (4 subsamples,)."""
    out = np.zeros((query.count, 4), dtype=np.int64)
    for place, found in enumerate(spans(rows, query)):
        if found is not None and len(found) == query.rank:
            out[place] = fingerprint(found)
    return out.reshape(-1)


def rank_counts(rows: GridRows, query: Subsamples) -> IntArray:
    """Return the number of subsamples with a span of dimension at most i. Shape: (query.rank + 1,)."""
    sizes = [len(found) for found in spans(rows, query) if found is not None]
    return np.asarray(np.cumsum(np.bincount(np.array(sizes, dtype=np.int64), minlength=query.rank + 1)))


NEGLIGIBLE = 1e-9  # of the largest singular value: below it a direction counts as absent


def subsample_directions(rows: GridRows, query: Cells) -> Iterator[FloatArray]:
    """Yield at most `query.rank` leading directions of each subsample. Shape: (r, d) each."""
    for positions in subsamples_of(rows, query.count, query.key):
        yield leading_directions(rows[positions], query.centre, query.rank)


def leading_directions(rows: GridRows, centre: IntArray, most: int) -> FloatArray:
    """Return at most `most` right singular vectors of rows about a centre. Shape: (m, d) -> (r, d).
    Sensitivity: a function of these rows as a multiset."""
    if not len(rows):
        return np.zeros((0, centre.size))
    z = np.array(sorted(rows, key=lambda row: bytes(row.tobytes())), dtype=np.float64) - centre
    _, sizes, vectors = np.linalg.svd(z, full_matrices=False)
    numerical_rank = int((sizes > NEGLIGIBLE * sizes[0]).sum())
    return np.asarray(vectors[: min(numerical_rank, most)])


def projector_cell(vectors: FloatArray, k: int, query: Cells, points: FloatArray) -> IntArray | None:
    """Return the cell of the projector onto k directions; None if there are fewer. Shape: (q d,)."""
    if len(vectors) < k:
        return None
    return geometry.cell_of((points @ vectors[:k].T) @ vectors[:k], query)


def cell_votes(rows: GridRows, query: Cells, dimensions: Sequence[int]) -> IntArray:
    """Return the fingerprint of each subsample's cell in each of the dimensions; zeros where it has none. For
    subspace-approx: projections of public points onto a subsample's leading directions. Floating point, but
    of one subsample alone: its rows are sorted by their bytes and decomposed on one thread. So rounding there
    does not depend on the records of other subsamples [P15].
    Shape: (4 subsamples dimensions,)."""
    points = geometry.points(query)
    out = np.zeros((len(dimensions), query.count, 4), dtype=np.int64)
    with single_blas_thread():
        for place, vectors in enumerate(subsample_directions(rows, query)):
            for i, k in enumerate(dimensions):
                found = projector_cell(vectors, k, query, points)
                if found is not None:
                    out[i, place] = fingerprint(found)
    return out.reshape(-1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpanCandidate:
    """Span of records: its basis (r, d), a mask of its records (n,) and the largest count of a subspan."""

    echelon_form: IntArray
    members: IntArray
    largest_subspan_count: int

    @property
    def score(self) -> int:
        """Score u of [SUB]."""
        return int(self.members.sum()) - self.largest_subspan_count


def candidate_spans(rows: GridRows, pool: Pool) -> list[SpanCandidate]:
    """Return every span of dimension `pool.rank` of records, once."""
    z = sampled_records(rows, pool) - pool.centre
    nothing = row_echelon_form(z[:0])
    level = [SpanCandidate(echelon_form=nothing, members=in_span(z, nothing), largest_subspan_count=0)]
    for _ in range(pool.rank):
        above: dict[bytes, SpanCandidate] = {}
        for candidate in level:
            for extended in _extended_spans(z, candidate):
                known = above.get(extended.members.tobytes())
                if known is None or known.largest_subspan_count < extended.largest_subspan_count:
                    above[extended.members.tobytes()] = extended
        level = list(above.values())
    return level


def sampled_records(rows: GridRows, pool: Pool) -> GridRows:
    """Return the first `pool.max_records` records by a hash of their values, whatever their order."""
    if len(rows) <= pool.max_records:
        return rows
    first = np.argsort(assign_batches(rows, HASH_RANGE, pool.key), kind="stable")[: pool.max_records]
    return np.asarray(rows[first])


def _extended_spans(z: IntArray, candidate: SpanCandidate) -> list[SpanCandidate]:
    """Return the spans of one dimension more that contain `candidate`; each other record is in one."""
    left, out, size = ~candidate.members, [], int(candidate.members.sum())
    while left.any():
        echelon_form = row_echelon_form(np.vstack([candidate.echelon_form, z[left.argmax()]]))
        members = in_span(z, echelon_form)
        out.append(SpanCandidate(echelon_form=echelon_form, members=members, largest_subspan_count=size))
        left = left & ~members
    return out


def top_two_scores(rows: GridRows, pool: Pool) -> IntArray:
    """Return the best score, the second best (or 0) and the best span's fingerprint; zeros without a span.
    For subspace-reference, over all spans of k records. Source: [SUB], Algorithm 1: u(s) = |X in s| - sup
    over subspaces t of s of dimension k - 1 of |X in t|. A subspace t that is spanned by records reaches the
    supremum, so the score is exact. Spans are built one dimension at a time, each with its records. A
    subspace that is not a span of records scores 0, so another subspace always has score 0. Ties are broken
    by fingerprint; without a gap nothing is released.
    Shape: (6,).
    Sensitivity: `SpanGap.gap_sensitivity`; one record more raises every score by 0 or 1 [P16]."""
    found = candidate_spans(rows, pool)
    ranked = sorted(((one.score, fingerprint(one.echelon_form).tolist()) for one in found), reverse=True)
    if not ranked:
        return np.zeros(6, dtype=np.int64)
    second = ranked[1][0] if len(ranked) > 1 else 0
    return np.array([ranked[0][0], second, *ranked[0][1]], dtype=np.int64)


def answer(rows: GridRows, query: SubspaceQuery) -> IntArray:
    """Return one site's answer. Shape: rows (n, d) -> (query.length,).
    Privacy: none by itself; it goes to the barrier. Effect of one record: [P15], [P16], [P17]."""
    match query:
        case SpanVotes():
            return frozen(span_votes(rows, query.subsamples))
        case BlockRanks():
            return frozen(rank_counts(rows, query.subsamples))
        case CellVotes():
            return frozen(cell_votes(rows, query.cells, [query.cells.rank]))
        case RankVotes():
            return frozen(cell_votes(rows, query.cells, range(1, query.cells.rank + 1)))
        case SpanGap():
            return frozen(top_two_scores(rows, query.pool))
        case Preimage():
            found = preimage(rows, query)
            return frozen([1, *found] if found is not None else [0] * query.length)
        case _:
            assert_never(query)


def preimage(rows: GridRows, query: Preimage) -> IntArray | None:
    """Return the preimage of the fingerprint among these records, or None. Shape: (query.source.size,)."""
    with single_blas_thread():  # as the votes were computed
        for found in _fingerprinted(rows, query.source):
            if (fingerprint(found) == query.fingerprint).all():
                return found.reshape(-1)
    return None


def _fingerprinted(rows: GridRows, source: Subsamples | Cells | Pool) -> Iterator[IntArray]:
    """Yield the spans or cells of these records that have a fingerprint."""
    match source:
        case Subsamples():
            full = (found for found in spans(rows, source) if found is not None)
            yield from (found for found in full if len(found) == source.rank)
        case Pool():
            yield from (candidate.echelon_form for candidate in candidate_spans(rows, source))
        case Cells():
            points = geometry.points(source)
            for vectors in subsample_directions(rows, source):
                found = projector_cell(vectors, source.rank, source, points)
                if found is not None:
                    yield found
