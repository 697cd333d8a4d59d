"""Dense linear algebra on one BLAS thread, normal quantiles and public pseudo-random normal numbers.

One thread gives the same bits in a replay, and leaves the threads to row blocks. Quantiles are from the
standard library; the public numbers follow from a label, for estimates and examples."""

from __future__ import annotations

import hashlib
import math
import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from statistics import NormalDist

import numpy  # noqa: F401 - loads its BLAS, which ThreadpoolController then finds
import numpy as np
from threadpoolctl import ThreadpoolController

from eigenveil.numerics.encoding import FloatArray, IntArray


@cache
def _libraries() -> ThreadpoolController:
    """Return the BLAS controller. Cached: the search takes as long as a small round."""
    return ThreadpoolController()


def single_blas_thread() -> AbstractContextManager[object]:
    """Return a context in which numpy's linear algebra runs on one thread."""
    limited: AbstractContextManager[object] = _libraries().limit(limits=1)
    return limited


def orthogonal_complement(u: FloatArray) -> FloatArray:
    """Return an orthonormal basis of the complement of u, by a reflection. Shape: (m,) -> (m, m - 1)."""
    v = u.copy()
    v[0] += math.copysign(1.0, u[0])
    reflection: FloatArray = np.eye(u.size) - 2 * np.outer(v, v) / float(v @ v)
    return reflection[:, 1:]


def start_directions(d: int, m: int) -> FloatArray:
    """Return public orthonormal directions that favour no column: signs from a fixed hash. Shape: (d, m)."""
    data = hashlib.shake_256(b"eigenveil/start/v1").digest(-(-d * m // 8))
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8))[: d * m]
    signs: FloatArray = bits.reshape(d, m).astype(np.float64) * 2 - 1
    return orthonormal(signs)


LARGE = 256  # columns from which a matrix is first tested for being diagonal
SLACK = 2.0**-48  # relative error of LAPACK's symmetric eigenvalues, per dimension, with room to spare


def symmetric(upper: FloatArray | IntArray, d: int) -> FloatArray:
    """Return the symmetric matrix of a diagonal and strict upper triangle, row by row. Shape: (d (d + 1) /
    2,) -> (d, d)."""
    out = np.empty((d, d))
    for i, row in enumerate(upper_triangle_rows(d)):
        out[i, i + 1 :] = out[i + 1 :, i] = upper[row]
    np.fill_diagonal(out, upper[:d])
    return out


def upper_triangle_rows(d: int) -> Iterator[slice]:
    """Yield the slice of each row of the strict upper triangle in such a vector. Needs no index arrays."""
    start = d
    for i in range(d):
        yield slice(start, start := start + d - 1 - i)


PANEL = 128  # rows of a matrix factored together
HALVED = 4  # blocks of PANEL columns, from which a panel is updated in halves
HalvesMap = Callable[[Callable[[slice], None], Sequence[slice]], Iterable[None]]  # `map`, or an executor's
UNIT = 2.0**-53  # largest relative error of one float64 operation


def is_semidefinite(triangle: IntArray, d: int, apply: HalvesMap = map) -> bool:
    """Return True if rounded integers may come from a positive semidefinite matrix.

    Cholesky's method in floats succeeds if the least eigenvalue is above about (d + 2) 2**-53 trace [Rump
    2006, Demmel 1989]. Rounding moved no eigenvalue by more than 2**-53 trace. With ten times that on the
    diagonal every honest matrix passes, and so do eigenvalues down to minus as much. `apply` may process the
    halves of a panel in parallel: the floats are the same."""
    shift = 10 * (d + 4) * UNIT * math.fsum(triangle[:d])
    blocks = [_lazy_memory(first, min(PANEL, d - first)) for first in range(0, d, PANEL)]
    above = upper_triangle_rows(d)
    try:
        for first in range(0, d, PANEL):
            _factor(_panel(triangle, above, first, d, shift), blocks.pop(0), blocks, apply)
    except np.linalg.LinAlgError:
        return False
    return True


def _lazy_memory(rows: int, columns: int) -> FloatArray:
    """Return a separately mapped array: its memory is allocated on write and freed at once."""
    return np.frombuffer(mmap.mmap(-1, 8 * max(1, rows * columns)))[: rows * columns].reshape(rows, columns)


def _panel(triangle: IntArray, above: Iterator[slice], first: int, d: int, shift: float) -> FloatArray:
    """Return the next PANEL rows from the diagonal on, plus `shift` on it. Shape: (m, rest)."""
    panel = np.zeros((min(PANEL, d - first), d - first))
    for i in range(len(panel)):
        panel[i, i] = float(triangle[first + i]) + shift
        panel[i, i + 1 :] = triangle[next(above)]
    return panel


def _factor(
    panel: FloatArray, first_block: FloatArray, blocks: Sequence[FloatArray], apply: HalvesMap
) -> None:
    """Write the same rows of Cholesky's upper factor to `blocks` of PANEL columns each. `first_block` holds
    the columns in which the panel begins and is not needed afterwards. So at most half of the factor is in
    memory. Raises LinAlgError if there is no factor."""
    first, rows = first_block.shape
    parts = np.split(panel, range(rows, panel.shape[1], PANEL), axis=1)
    parts[0] -= first_block.T @ first_block[:first]
    factor = np.linalg.cholesky(parts[0], upper=True)

    def update(half: slice) -> None:
        scratch = np.empty((rows, PANEL))
        for part, known in zip(parts[1:][half], blocks[half], strict=True):
            part -= np.matmul(first_block.T, known[:first], out=scratch[:, : part.shape[1]])

    middle, end = len(blocks) // 2, len(blocks)
    halves = [slice(0, middle), slice(middle, end)] if end >= HALVED else [slice(0, end)][:end]
    for _ in apply(update, halves):
        pass
    right = panel[:, rows:]
    for i in range(rows if blocks else 0):
        right[i] -= factor[:i, i] @ right[:i]
        right[i] /= factor[i, i]
    for part, known in zip(parts[1:], blocks, strict=True):
        known[first : first + rows] = part


def eigenpairs(matrix: FloatArray, k: int | None = None) -> tuple[FloatArray, FloatArray]:
    """Return eigenvalues (d,), falling, and the first k or all eigenvectors as columns, by `fix_signs`."""
    with single_blas_thread():
        values, vectors = np.linalg.eigh(matrix)
    return values[::-1].copy(), fix_signs(vectors[:, ::-1][:, :k])


def rotated_eigenpairs(basis: FloatArray, product: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return eigenvalues (k,), falling, and eigenvectors of the symmetric part of basis^T product (Ritz).
    Shape: basis, product (d, k) -> (k,), (k, k)."""
    small = basis.T @ product
    return eigenpairs((small + small.T) / 2)


def leading_eigenpairs(matrix: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    """Return all eigenvalues (d,), falling, and the first k eigenvectors as columns (d, k), by `fix_signs`. A
    large diagonal matrix, as in a dry run, is not decomposed: that would take d^3 operations and memory."""
    d = len(matrix)
    if d >= LARGE and _is_diagonal(matrix):
        order = np.argsort(-np.diagonal(matrix), kind="stable")
        vectors = np.zeros((d, k))
        vectors[order[:k], np.arange(k)] = 1.0
        return np.diagonal(matrix)[order], vectors
    return eigenpairs(matrix, k)


def _is_diagonal(matrix: FloatArray) -> bool:
    """Return True if the matrix is diagonal. Row by row, so a noised matrix fails at its first row."""
    return not any(row[:i].any() or row[i + 1 :].any() for i, row in enumerate(matrix))


def eigenvalues(matrix: FloatArray) -> FloatArray:
    """Return the eigenvalues of a symmetric matrix, falling. A large diagonal matrix, as in a dry run, is not
    decomposed. Shape: (d, d) -> (d,)."""
    if len(matrix) >= LARGE and _is_diagonal(matrix):
        return np.sort(np.diagonal(matrix))[::-1].copy()
    with single_blas_thread():
        return np.asarray(np.linalg.eigvalsh(matrix)[::-1], dtype=np.float64)


def noise_edge(scale: float, d: int) -> float:
    """Return the spectral edge of a symmetric Gaussian d-by-d matrix of off-diagonal sd `scale` / sqrt 2.
    Noise alone shows directions of up to this variance."""
    return scale * math.sqrt(2 * d)


def orthonormal(matrix: FloatArray) -> FloatArray:
    """Return an orthonormal basis of the columns, by QR. Shape: (d, k) -> (d, k)."""
    with single_blas_thread():
        q, _ = np.linalg.qr(matrix)
    return q


def fix_signs(columns: FloatArray) -> FloatArray:
    """Return the columns, each with its largest entry (in magnitude, the first of equals) positive."""
    peaks = columns[np.abs(columns).argmax(axis=0), np.arange(columns.shape[1])]
    return columns * np.where(peaks < 0, -1.0, 1.0)


def sin_angle(left: FloatArray, right: FloatArray) -> float:
    """Return the sine of the largest principal angle between the row spaces of (k, d) orthonormal matrices. 1
    if `right` is empty. With fewer rows than `left`, the angle between `right` and the space of `left`."""
    if not right.size:
        return 1.0
    with single_blas_thread():
        return min(1.0, float(np.linalg.norm(right - (right @ left.T) @ left, 2)))


_QUANTILE = NormalDist().inv_cdf


def normal_quantiles(probabilities: FloatArray) -> FloatArray:
    """Return the standard normal quantiles of probabilities strictly between 0 and 1.

    Each within 2^-50 (1 + |z|) of the exact one, also at probabilities of 2^-105 (Wichura 1988; a test
    compares with ball arithmetic). A quarter of a microsecond each.

    Shape: any; the same."""
    flat = map(_QUANTILE, probabilities.ravel().tolist())
    return np.fromiter(flat, dtype=np.float64, count=probabilities.size).reshape(probabilities.shape)


def public_normals(label: bytes, shape: tuple[int, ...]) -> FloatArray:
    """Return pseudo-random normals, equal at every call and on every machine. Never use them as noise."""
    data = hashlib.shake_256(label).digest(8 * math.prod(shape))
    uniform = (np.frombuffer(data, dtype="<u4").astype(np.float64).reshape(2, -1) + 0.5) / 2**32
    out: FloatArray = np.sqrt(-2 * np.log(uniform[0])) * np.cos(2 * np.pi * uniform[1])
    return out.reshape(shape)
