"""The private side of exact subspaces: subsamples of records, and their spans as canonical integer matrices.

Spans are taken over the integers modulo p = 2^61 - 1, where elimination is exact and cheap: the reduced row
echelon form of a span is the same whatever order or repetition its records come in. Entries of rows are below
2^14 in magnitude, so they are told apart modulo p.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from flint import nmod_mat

from eigenveil.numerics.encoding import IntArray
from eigenveil.queries.fingerprints import PRIME, Subsamples, fingerprint
from eigenveil.site.partition import deal
from eigenveil.study.grid import GridRows

LOW_BITS = 31
HALF_BITS = 61 - LOW_BITS


def subsamples_of(rows: GridRows, count: int, key: IntArray) -> Iterator[IntArray]:
    """The positions of the records of each subsample; which one a record is in follows from it [P9]."""
    place = deal(rows, count, key)
    order = np.argsort(place, kind="stable")
    cuts = np.searchsorted(place[order], np.arange(count + 1))
    return (order[start:stop] for start, stop in pairwise(cuts.tolist()))


def spans(rows: GridRows, query: Subsamples) -> Iterator[IntArray | None]:
    """The span of each subsample, None where its dimension is above `query.rank`.

    Shape: (r, d) each, r <= query.rank.
    Sensitivity: one record more makes one subsample's span larger by at most one dimension, or leaves it
    [P15].
    """
    for mine in subsamples_of(rows, query.count, query.key):
        yield span(rows[mine] - query.centre, query.rank)


def span(z: IntArray, most: int) -> IntArray | None:
    """The reduced row echelon form of all of z modulo p, without zero rows; None if it has more than `most`.

    Records are taken in only as long as they add a dimension; all others are checked to lie in the span.

    Shape: z (m, d), |entries| <= 2^13 -> (r, d), entries in [0, p).
    """
    found = reduced(z[: most + 1])
    while len(found) <= most:
        outside = ~inside(z, found)
        if not outside.any():
            return found
        found = reduced(np.vstack([found, z[outside][: most + 1 - len(found)]]))
    return None


def reduced(rows: IntArray) -> IntArray:
    """Reduced row echelon form modulo p, without zero rows. Shape: (m, d) -> (r, d), entries in [0, p)."""
    m, d = rows.shape
    if m == 0:
        return np.zeros((0, d), dtype=np.int64)
    form, rank = nmod_mat(m, d, rows.ravel().tolist(), PRIME).rref()
    entries = np.array([int(entry) for entry in form.entries()], dtype=np.int64)
    return entries.reshape(m, d)[:rank]


def pivots(form: IntArray) -> IntArray:
    """The column of each row's leading 1. Shape: (r, d) -> (r,)."""
    return np.asarray((form != 0).argmax(axis=1), dtype=np.int64)


def inside(z: IntArray, form: IntArray) -> IntArray:
    """Whether each row lies in a span: z = z[pivots] form, modulo p. Shape: z (m, d), form (r, d) -> (m,)
    bool.

    Exactness: form is split into halves below 2^31; with |z| <= 2^13 and r <= 256 both float64 products stay
    below 2^52. As 2^61 = 1 modulo p, the upper product h counts as (h >> 30) + (h mod 2^30) 2^31, so that
    everything stays above -p and below 2 p, where only 0 and p are 0.
    """
    leading = z[:, pivots(form)].astype(np.float64)
    upper = (leading @ (form >> LOW_BITS).astype(np.float64)).astype(np.int64)
    lower = (leading @ (form & (2**LOW_BITS - 1)).astype(np.float64)).astype(np.int64)
    rest = (upper >> HALF_BITS) + ((upper & (2**HALF_BITS - 1)) << LOW_BITS) + lower - z
    return np.asarray(((rest == 0) | (rest == PRIME)).all(axis=1))


def votes(rows: GridRows, query: Subsamples) -> IntArray:
    """The fingerprint of each subsample's span of dimension exactly `query.rank`; zeros elsewhere.

    Shape: (4 subsamples,).
    """
    out = np.zeros((query.count, 4), dtype=np.int64)
    for place, found in enumerate(spans(rows, query)):
        if found is not None and len(found) == query.rank:
            out[place] = fingerprint(found)
    return out.reshape(-1)


def ranks(rows: GridRows, query: Subsamples) -> IntArray:
    """How many subsamples have a span of dimension at most i. Shape: (query.rank + 1,)."""
    sizes = [len(found) for found in spans(rows, query) if found is not None]
    return np.asarray(np.cumsum(np.bincount(np.array(sizes, dtype=np.int64), minlength=query.rank + 1)))


def preimage(rows: GridRows, query: Subsamples, wanted: IntArray) -> IntArray | None:
    """The span that `wanted` is the fingerprint of, if a subsample here has it. Shape: (query.rank d,)."""
    for found in spans(rows, query):
        if found is not None and len(found) == query.rank and (fingerprint(found) == wanted).all():
            return found.reshape(-1)
    return None
