"""The queries about leading directions and the rest: lengths and the clipped sum, over pieces of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from eigenveil.numerics.encoding import FloatArray, IntArray, check_exact, frozen
from eigenveil.queries import CrossCovariance, CrossNorms, CrossSpec
from eigenveil.queries.cross_covariance import INNER_BITS, OUTER_BITS
from eigenveil.queries.limits import GRADIENT_LIMIT, WEIGHT
from eigenveil.site import clipping
from eigenveil.site.clipping import gradient_coefficients
from eigenveil.site.rows import GridPiece, spans
from eigenveil.study.grid import GridRows

CACHED = 2**15  # entries of a piece: it passes through the cache six times
WIDE = 64  # rows at least, so that a product with many columns is one of matrices


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Parts:
    """What records have of the leading directions, and the rest of them.

    Shape: a (m, k) = a, b (m, d) = b, integer-valued, norm2 (m,) = ||b||^2, norm (m,) = ||b||.
    """

    a: FloatArray
    b: FloatArray
    norm2: IntArray
    norm: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Split:
    """A spec, ready for products; what is scaled is scaled by powers of two, which is exact.

    Shape: along (d, p) = U, back (p, d) = U^T / 2**OUTER_BITS, stretch (k,) and taken (p,).
    """

    centre: IntArray
    along: FloatArray
    back: FloatArray
    stretch: FloatArray
    taken: FloatArray

    def __call__(self, rows: GridRows) -> _Parts:
        """Exact: PRIVACY.md [P28] bounds every sum of absolute products below 2**53 units."""
        z = np.subtract(rows, self.centre.astype(np.int16), out=np.empty(rows.shape))
        y = z @ self.along
        a = y[:, : self.stretch.size] * self.stretch
        y *= self.taken
        np.rint(y, out=y)
        z -= y @ self.back
        np.rint(z, out=z)
        norm2 = np.vecdot(z, z)
        return _Parts(a=a, b=z, norm2=norm2.astype(np.int64), norm=np.sqrt(norm2))


def _split(spec: CrossSpec) -> _Split:
    along = spec.directions.astype(np.float64)
    return _Split(
        centre=spec.centre,
        along=along,
        back=np.ascontiguousarray(along.T) * 2.0**-OUTER_BITS,
        stretch=spec.scales.astype(np.float64) * 2.0**-spec.shift,
        taken=np.concatenate([np.full(spec.k, WEIGHT), WEIGHT - spec.kept]) * 2.0**-INNER_BITS,
    )


def _parts(rows: GridPiece, spec: CrossSpec, chunk: int) -> Iterator[_Parts]:
    size = min(chunk, max(WIDE, CACHED // spec.centre.size))
    return map(_split(spec), spans(rows.rows, size))


def cross_norms(rows: GridPiece, query: CrossNorms, chunk: int) -> IntArray:
    """Counts of records by ||a|| ||b||."""
    edges, counts = query.edges.astype(np.float64), np.zeros(query.length, dtype=np.int64)
    for part in _parts(rows, query.spec, chunk):
        norm = clipping.gradient_norms(part.a, None, part.norm, 0.0)
        counts += np.bincount(np.searchsorted(edges, norm, side="right"), minlength=query.length)
    return frozen(counts)


def cross_covariance(rows: GridPiece, query: CrossCovariance, chunk: int) -> IntArray:
    """Sum of b a'^T, a' from `clipping.gradient_coefficients` with b in z's place: d by k, row by row.

    Exactness: ||b|| ||a'|| <= R <= GRADIENT_LIMIT, so a chunk's sums of absolute products stay below
    chunk * 2**29.
    """
    check_exact(chunk * float(GRADIENT_LIMIT))
    total = np.zeros((query.spec.centre.size, query.spec.k), dtype=np.int64)
    for part in _parts(rows, query.spec, chunk):
        short, _ = gradient_coefficients(part.a, None, part.norm, part.norm2, 0.0, query.radius)
        total += (part.b.T @ short).astype(np.int64)
    return frozen(total.reshape(-1))
