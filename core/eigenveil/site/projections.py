"""The private side of subspace-approx: what a subsample's leading directions do to public points.

Floats, but of a subsample alone: its rows are put into one order (that of their bytes), and decomposed on one
thread. Whatever rounding does there, it does not know the records of other subsamples [P15].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from eigenveil.numerics.blas import one_thread
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.queries import fingerprints as geometry
from eigenveil.queries.fingerprints import Cells, fingerprint
from eigenveil.site.modular_spans import subsamples_of
from eigenveil.study.grid import GridRows

NEGLIGIBLE = 1e-9  # of the largest singular value: below it, a direction is not one of the data


def directions(rows: GridRows, query: Cells) -> Iterator[FloatArray]:
    """The leading directions of each subsample about the centre, at most `query.rank`. Shape: (r, d) each."""
    for mine in subsamples_of(rows, query.count, query.key):
        yield leading(rows[mine], query.centre, query.rank)


def leading(rows: GridRows, centre: IntArray, most: int) -> FloatArray:
    """Right singular vectors of rows about a centre, at most `most`. Shape: (m, d) -> (r, d).

    Sensitivity: a function of these rows as a multiset.
    """
    if not len(rows):
        return np.zeros((0, centre.size))
    ordered = sorted(rows, key=lambda row: bytes(row.tobytes()))
    z = np.array(ordered, dtype=np.float64) - centre
    _, sizes, vectors = np.linalg.svd(z, full_matrices=False)
    seen = int((sizes > NEGLIGIBLE * sizes[0]).sum())
    return np.asarray(vectors[: min(seen, most)])


def cell(vectors: FloatArray, k: int, query: Cells, points: FloatArray) -> IntArray | None:
    """The cell of the projector onto the first k directions; None if there are fewer. Shape: -> (q d,)."""
    if len(vectors) < k:
        return None
    return geometry.cell_of((points @ vectors[:k].T) @ vectors[:k], query)


def votes(rows: GridRows, query: Cells, dimensions: Sequence[int]) -> IntArray:
    """The fingerprint of each subsample's cell in each of the dimensions, zeros where it has none.

    Shape: (4 subsamples dimensions,).
    """
    points = geometry.points(query)
    out = np.zeros((len(dimensions), query.count, 4), dtype=np.int64)
    with one_thread():
        for place, vectors in enumerate(directions(rows, query)):
            for i, k in enumerate(dimensions):
                found = cell(vectors, k, query, points)
                if found is not None:
                    out[i, place] = fingerprint(found)
    return out.reshape(-1)


def preimage(rows: GridRows, query: Cells, wanted: IntArray) -> IntArray | None:
    """The cell that `wanted` is the fingerprint of, if a subsample here is in it. Shape: (q d,)."""
    points = geometry.points(query)
    with one_thread():
        for vectors in directions(rows, query):
            found = cell(vectors, query.rank, query, points)
            if found is not None and (fingerprint(found) == wanted).all():
                return found
    return None
