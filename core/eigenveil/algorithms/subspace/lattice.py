"""From a span modulo p back to the real subspace that whole-numbered records lie in, or "cannot be told".

The records of a subsample are vectors of whole numbers, at most S in magnitude, so seen on k pivot columns
and r others they are short vectors of the lattice of all whole-numbered vectors that lie in the span modulo
p. That lattice has dimension k + r and volume p^r; a reduced basis of it (LLL) whose last r vectors stand at
least `longest` apart from what comes before them holds all vectors of that length in its first k. So the
records lie in the span of these k, over the real numbers as well: proven, not guessed. Fractions with small
numerators, by which one usually recovers rational numbers, would already fail at k = 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from flint import fmpz_mat

from eigenveil.numerics.blas import one_thread
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.numerics.linalg import fix_signs, orthonormal
from eigenveil.queries.fingerprints import PRIME
from eigenveil.study.grid import S

BESIDE = 4  # columns looked at together, beyond k
ROOM = 2.0  # for the float lengths of a reduced basis, far more than their error


def real_basis(form: IntArray) -> FloatArray | None:
    """An orthonormal basis of the real subspace of records in [-S, S] that span `form` modulo p; None if that
    does not determine it.

    Shape: (k, d), a reduced row echelon form modulo p -> (k, d).
    """
    k, d = form.shape
    leading = (form != 0).argmax(axis=1)
    basis = np.zeros((k, d))
    basis[np.arange(k), leading] = 1.0
    with one_thread():
        for columns in _groups(np.setdiff1d(np.arange(d), leading), k + BESIDE):
            found = _ratios(form[:, columns])
            if found is None:
                return None
            basis[:, columns] = found
    return fix_signs(orthonormal(basis.T)).T


def _groups(columns: IntArray, size: int) -> Iterator[IntArray]:
    """Columns in groups of `size`; the last group is as large as the others where there are enough."""
    for start in range(0, len(columns), size):
        yield columns[max(0, min(start, len(columns) - size)) :][:size]


def _ratios(entries: IntArray) -> FloatArray | None:
    """The real matrix M with x = x_pivots M on these columns. Shape: (k, r), modulo p -> (k, r)."""
    k, r = entries.shape
    identity, zero = np.eye(k, dtype=np.int64), np.zeros((r, k), dtype=np.int64)
    rows = np.block([[identity, entries], [zero, PRIME * np.eye(r, dtype=np.int64)]])
    reduced = fmpz_mat(rows.tolist()).lll().tolist()
    basis = np.array([[float(int(entry)) for entry in row] for row in reduced])
    apart = np.abs(np.diag(np.linalg.qr(basis.T)[1]))
    longest = S * math.sqrt(k + r)
    if apart[k:].min() <= ROOM * longest:
        return None
    return np.linalg.solve(basis[:k, :k], basis[:k, k:])
