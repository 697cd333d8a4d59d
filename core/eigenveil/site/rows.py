"""Rows about a public centre, and the queries about rows: exact sums over pieces of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from eigenveil.numerics.encoding import EXACT, FloatArray, IntArray, check_exact, frozen
from eigenveil.queries import ClippedSum, Grams, RadiusSearch, RowNorms, SquaredNormSum
from eigenveil.site.clipping import shorten, weights
from eigenveil.study.grid import GridRows

CACHED = 2**18  # entries of a piece that is centred on the fly and looked at once
MULTIPLIED = 2**20  # and of one that is multiplied by itself: a larger product costs less an entry


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CentredRows:
    """Rows minus a public centre.

    Shape: z (n, d) integer-valued float64, norm2 (n,) = ||z||^2, norm (n,) = ||z||.
    """

    z: FloatArray
    norm2: IntArray
    norm: FloatArray

    def only(self, positions: IntArray) -> CentredRows:
        """The records at `positions`, as a copy."""
        return CentredRows(z=self.z[positions], norm2=self.norm2[positions], norm=self.norm[positions])

    def pieces(self, size: int) -> Iterator[CentredRows]:
        """Consecutive pieces of at most `size` rows, as views."""
        for start in range(0, len(self.norm2), size):
            here = slice(start, start + size)
            yield CentredRows(z=self.z[here], norm2=self.norm2[here], norm=self.norm[here])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GridPiece:
    """Rows asked about once: centred piece by piece, in the cache. Shape: rows (n, d), centre (d,)."""

    rows: GridRows
    centre: IntArray

    def pieces(self, size: int, entries: int = CACHED) -> Iterator[CentredRows]:
        """Consecutive pieces of at most `size` rows and about `entries` numbers, each a copy."""
        fits = max(1, entries // self.centre.size)
        return (centred(rows, self.centre) for rows in spans(self.rows, min(size, fits)))


def centred(rows: GridRows, centre: IntArray) -> CentredRows:
    """Rows minus a centre, exact. Shape: rows (m, d), centre (d,)."""
    # Subtracted in int16 (a centred entry is at most 2 S), and made float64 as it is written.
    z = np.subtract(rows, centre.astype(np.int16), out=np.empty(rows.shape))
    norm2 = np.vecdot(z, z)
    return CentredRows(z=z, norm2=norm2.astype(np.int64), norm=np.sqrt(norm2))


def spans(rows: GridRows, size: int) -> Iterator[GridRows]:
    """Consecutive spans of at most `size` rows, as views."""
    return (rows[start : start + size] for start in range(0, len(rows), size))


def row_norms(rows: GridPiece, query: RowNorms | RadiusSearch, chunk: int) -> IntArray:
    """Counts of records by norm; the comparison is ||z||^2 against edge^2 in integers."""
    squares, counts = query.edges**2, np.zeros(query.length, dtype=np.int64)
    for piece in rows.pieces(chunk):
        counts += np.bincount(np.searchsorted(squares, piece.norm2, side="right"), minlength=query.length)
    return frozen(counts)


def squared_norm_sum(rows: GridPiece, query: SquaredNormSum, chunk: int) -> IntArray:
    """Sum of min(||z||^2, R^2)."""
    return frozen([sum(int(np.minimum(piece.norm2, query.radius**2).sum()) for piece in rows.pieces(chunk))])


def clipped_sum(rows: GridPiece, query: ClippedSum, chunk: int) -> IntArray:
    """Sum of t z (see `clipping.weights`)."""
    check_exact(chunk * float(query.bound))
    total = np.zeros(query.length, dtype=np.int64)
    for piece in rows.pieces(chunk):
        total += (weights(piece.norm2, query.radius).astype(np.float64) @ piece.z).astype(np.int64)
    return frozen(total)


def gram(rows: GridPiece, query: Grams, chunk: int) -> IntArray:
    """Sum of z z^T over shortened rows: diagonal, then the strict upper triangle row by row."""
    d = query.centre.size
    most = (EXACT - 1) // query.radius**2  # records whose products add up exactly
    size = max(1, min(chunk, most))
    check_exact(size * float(query.radius) ** 2)
    total, exact, held = np.zeros((d, d), dtype=np.int64), np.zeros((d, d)), 0
    for piece in rows.pieces(size, MULTIPLIED):
        if held + len(piece.norm2) > most:
            total += exact.astype(np.int64)
            exact[:], held = 0.0, 0
        short = shorten(piece.z, piece.norm2, query.radius)
        exact += short.T @ short
        held += len(short)
    total += exact.astype(np.int64)
    return frozen(np.concatenate([np.diagonal(total), total[np.triu_indices(d, 1)]]))
