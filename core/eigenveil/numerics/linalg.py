"""Dense linear algebra of the public side, on one BLAS thread so that a replay gives the same bits."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

import numpy as np

from eigenveil.numerics.blas import one_thread
from eigenveil.numerics.encoding import FloatArray, IntArray


def complement(u: FloatArray) -> FloatArray:
    """An orthonormal basis of what is at right angles to u, by a reflection. Shape: (m,) -> (m, m - 1)."""
    v = u.copy()
    v[0] += math.copysign(1.0, u[0])
    reflection: FloatArray = np.eye(u.size) - 2 * np.outer(v, v) / float(v @ v)
    return reflection[:, 1:]


def start_directions(d: int, m: int) -> FloatArray:
    """Public orthonormal directions that favour no column: random signs from a fixed hash. Shape: (d, m)."""
    data = hashlib.shake_256(b"eigenveil/start/v1").digest(-(-d * m // 8))
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8))[: d * m]
    signs: FloatArray = bits.reshape(d, m).astype(np.float64) * 2 - 1
    return orthonormal(signs)


LARGE = 1024  # columns, from which on a decomposition is worth a look at the matrix before
SLACK = 2.0**-48  # relative error of LAPACK's symmetric eigenvalues, per dimension, with room to spare


def symmetric(upper: FloatArray | IntArray, d: int) -> FloatArray:
    """The matrix whose diagonal and strict upper triangle, row by row, are given.

    Shape: (d (d + 1) / 2,) -> (d, d).
    """
    out = np.empty((d, d))
    for i, row in enumerate(rows_above(d)):
        out[i, i + 1 :] = out[i + 1 :, i] = upper[row]
    np.fill_diagonal(out, upper[:d])
    return out


def rows_above(d: int) -> Iterator[slice]:
    """Where each row of the strict upper triangle lies in such a vector: indices of all of it would be twice
    as long as that."""
    start = d
    for i in range(d):
        yield slice(start, start := start + d - 1 - i)


def eigenpairs(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues (d,), falling, and eigenvectors as columns (d, d), signs by `fix_signs`."""
    with one_thread():
        values, vectors = np.linalg.eigh(matrix)
    return values[::-1].copy(), fix_signs(vectors[:, ::-1])


def leading(matrix: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    """All eigenvalues (d,), falling, and the first k eigenvectors as columns (d, k), signs by `fix_signs`.

    A large diagonal matrix, as only rehearsals imagine it, is not decomposed: that takes d^3 and much memory.
    """
    d = len(matrix)
    if d >= LARGE and _is_diagonal(matrix):
        order = np.argsort(-np.diagonal(matrix), kind="stable")
        vectors = np.zeros((d, k))
        vectors[order[:k], np.arange(k)] = 1.0
        return np.diagonal(matrix)[order], vectors
    with one_thread():
        values, every = np.linalg.eigh(matrix)
    return values[::-1].copy(), fix_signs(every[:, ::-1][:, :k])


def _is_diagonal(matrix: FloatArray) -> bool:
    """Row by row, and at once no for whatever was noised: a count over all of a large matrix keeps every
    other thread waiting."""
    return not any(row[:i].any() or row[i + 1 :].any() for i, row in enumerate(matrix))


def eigenvalues(matrix: FloatArray) -> FloatArray:
    """Eigenvalues of a symmetric matrix, falling. Shape: (d, d) -> (d,)."""
    with one_thread():
        return np.asarray(np.linalg.eigvalsh(matrix)[::-1], dtype=np.float64)


def noise_edge(scale: float, d: int) -> float:
    """The edge of the spectrum of a symmetric Gaussian d-by-d matrix of off-diagonal sd `scale` / sqrt 2:
    noise alone shows directions of up to this variance."""
    return scale * math.sqrt(2 * d)


def orthonormal(matrix: FloatArray) -> FloatArray:
    """An orthonormal basis of the columns, by QR. Shape: (d, k) -> (d, k)."""
    with one_thread():
        q, _ = np.linalg.qr(matrix)
    return q


def fix_signs(columns: FloatArray) -> FloatArray:
    """Each column with its largest entry (in magnitude, the first of equals) positive."""
    peaks = columns[np.abs(columns).argmax(axis=0), np.arange(columns.shape[1])]
    return columns * np.where(peaks < 0, -1.0, 1.0)


def sin_angle(left: FloatArray, right: FloatArray) -> float:
    """Sine of the largest principal angle between the row spaces of two (k, d) orthonormal matrices.

    1 if `right` is empty; with fewer rows than `left`, how far it sticks out of the space of `left`.
    """
    if not right.size:
        return 1.0
    with one_thread():
        residual = right - (right @ left.T) @ left
        return min(1.0, float(np.linalg.norm(residual, 2)))
