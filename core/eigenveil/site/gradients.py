"""The queries about gradients: how long they are, and their clipped sum, over pieces of the rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eigenveil.numerics.encoding import FloatArray, IntArray, check_exact, frozen
from eigenveil.queries import Gradient, GradientNorms, GradientSpec
from eigenveil.queries.limits import GRADIENT_LIMIT
from eigenveil.site import clipping
from eigenveil.site.clipping import gradient_coefficients
from eigenveil.site.rows import CentredRows
from eigenveil.study.grid import S


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Side:
    """The public matrices of a spec, side by side so that one product serves both.

    Shape: matrix (d, k) = W, or (d, 2 k) = [W, offset] where offset is not 0; offset2 = ||offset||_F^2.
    """

    matrix: FloatArray
    k: int
    offset2: float
    scale: float

    def project(self, z: FloatArray) -> tuple[FloatArray, FloatArray | None]:
        """a = z W / 2**shift (exact: a power of two) and z offset (None where offset = 0)."""
        product = z @ self.matrix
        z_offset = product[:, self.k :] if self.offset2 else None
        return product[:, : self.k] * self.scale, z_offset


def _side(spec: GradientSpec) -> _Side:
    given = [spec.directions, spec.offset] if spec.offset.any() else [spec.directions]
    matrix = np.hstack(given).astype(np.float64)
    check_exact(2.0 * S * spec.centre.size * float(np.abs(matrix).max(initial=0.0)))
    return _Side(
        matrix=matrix,
        k=spec.directions.shape[1],
        offset2=float((spec.offset**2).sum()),
        scale=2.0**-spec.shift,
    )


def gradient_norms(rows: CentredRows, query: GradientNorms, chunk: int) -> IntArray:
    """Counts of records by 2**shift times the norm of their z_offset gradient."""
    side, edges = _side(query.spec), query.edges.astype(np.float64)
    counts = np.zeros(query.length, dtype=np.int64)
    for piece in rows.pieces(chunk):
        a, z_offset = side.project(piece.z)
        norm = clipping.gradient_norms(a, z_offset, piece.norm, side.offset2) / side.scale
        counts += np.bincount(np.searchsorted(edges, norm, side="right"), minlength=query.length)
    return frozen(counts)


def gradient(rows: CentredRows, query: Gradient, chunk: int) -> IntArray:
    """Sum of z b^T - u offset (see `clipping.gradient_coefficients`), the d-by-k matrix row by row.

    Exactness: ||z b^T||_F <= R + OFFSET_STEPS ||offset||_F <= 2 GRADIENT_LIMIT for every kept record, so a
    chunk's sums of absolute products stay below chunk * 2**30.
    """
    check_exact(chunk * 2.0 * GRADIENT_LIMIT)
    side = _side(query.spec)
    total = np.zeros(query.spec.directions.shape, dtype=np.int64)
    offsets = 0
    for piece in rows.pieces(chunk):
        a, z_offset = side.project(piece.z)
        b, u = gradient_coefficients(a, z_offset, piece.norm, piece.norm2, side.offset2, query.radius)
        total += (piece.z.T @ b).astype(np.int64)
        offsets += 0 if u is None else int(u.sum())
    return frozen((total - offsets * query.spec.offset).reshape(-1))
