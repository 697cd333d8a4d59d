"""Leading eigenvectors of an arrow matrix, and the rotation that takes the first axes to them.

An arrow matrix is diagonal but for its first k rows and columns. Time and memory grow with its size times k,
and those of a dense decomposition with the cube of the size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, single_blas_thread

STEPS = 40  # far more than needed where the leading eigenvalues stand apart
TOLERANCE = 2.0**-47  # of a residual, relative to the matrix
LEAST_GAP = 2.0**-26  # of a divisor, relative to the matrix


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DirectRotation:
    """Rotation of m axes that moves the span of the first k to that of the columns (top, bottom), and each
    axis as little as possible. It depends on that span alone. So it is stable to the last bits on every
    machine, unlike eigenvectors of variances that coincide. `top` is symmetric and positive semidefinite.
    Source: Davis, Kahan 1970. Shape: top (k, k), bottom (m - k, k)."""

    top: FloatArray
    bottom: FloatArray

    def applied(self, leading: FloatArray, others: FloatArray, keep: int) -> FloatArray:
        """Return the rotated columns: the leading ones, and the first `keep` others.
        Shape: (d, k), (d, m - k) -> (d, k + keep)."""
        with single_blas_thread():
            along = others @ self.bottom
            part = np.linalg.solve(np.eye(len(self.top)) + self.top, along.T).T
            rest = others[:, :keep] - (leading + part) @ self.bottom[:keep].T
            return np.hstack([leading @ self.top + along, rest])


def leading_rotation(diagonal: FloatArray, arms: FloatArray) -> DirectRotation:
    """Return the rotation to the k leading eigenvectors. Shape: diagonal (m,), falling, arms (m - k, k)."""
    k = arms.shape[1]
    leading = _davidson(diagonal, arms)
    # Of all bases of the span, the one with a symmetric top (polar decomposition).
    left, cosines, right = np.linalg.svd(leading[:k])
    return DirectRotation(top=left * cosines @ left.T, bottom=leading[k:] @ (left @ right).T)


def _davidson(diagonal: FloatArray, arms: FloatArray) -> FloatArray:
    """Return the k leading eigenvectors, by Davidson's method from the first k axes; of the dense matrix if
    it does not converge. Eigenvalues interlace, so the leading ones are in reach of these axes. (m, k)."""
    k = arms.shape[1]
    lead, rest = diagonal[:k, None], diagonal[k:, None]
    size = max(float(np.abs(diagonal).max()), float(np.sqrt((arms**2).sum())))
    space = np.eye(diagonal.size, k)
    with single_blas_thread():
        for _ in range(STEPS):
            image = np.vstack([lead * space[:k] + arms.T @ space[k:], arms @ space[:k] + rest * space[k:]])
            small = space.T @ image
            values, turn = np.linalg.eigh((small + small.T) / 2)
            values, turn = values[::-1][:k], turn[:, ::-1][:, :k]
            found = space @ turn
            residual = image @ turn - found * values
            left = np.sqrt((residual**2).sum(axis=0)) > TOLERANCE * size
            if not left.any():
                return np.asarray(found)
            if space.shape[1] + k > diagonal.size:
                break
            gaps = values[left] - rest
            gaps = np.where(gaps < 0, -1.0, 1.0) * np.maximum(np.abs(gaps), LEAST_GAP * size)
            step = np.vstack([np.zeros((k, int(left.sum()))), residual[k:, left] / gaps])
            space = _extended(space, step)
    dense = np.diag(diagonal)
    dense[k:, :k], dense[:k, k:] = arms, arms.T
    return eigenpairs(dense, k)[1]


def _extended(space: FloatArray, step: FloatArray) -> FloatArray:
    """Return an orthonormal basis of both; twice, because rounding leaves short columns askew."""
    step = step / np.sqrt((step**2).sum(axis=0))
    for _ in range(2):
        step, _ = np.linalg.qr(step - space @ (space.T @ step))
    return np.hstack([space, step])
