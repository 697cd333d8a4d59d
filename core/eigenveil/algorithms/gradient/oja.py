"""Oja's rule as it is, without privacy: Algorithm 1 of [DPPCA], for comparisons. It never makes a release."""

from __future__ import annotations

import numpy as np

from eigenveil.algorithms.shared.passes import apart
from eigenveil.algorithms.shared.step_sizes import Rates, spectrum_rates
from eigenveil.numerics.blas import one_thread
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenvalues, fix_signs, start_directions
from eigenveil.study.study import Extraction


def oja(
    rows: FloatArray, k: int, *, rank: Extraction = Extraction.BLOCK, rates: Rates | None = None
) -> FloatArray:
    """One pass over the records in their order, a step a record: w <- w + eta_t x (x . w), normalised.

    Rank k by block (QR after each step) or by deflation (a pass for each component, orthogonal to those
    before). Without `rates`, those of the paper for the data's own spectrum.

    Shape: rows (n, d), centred -> (k, d), orthonormal rows.
    """
    d = rows.shape[1]
    if rates is None:
        longest = float((rows**2).sum(axis=1).max(initial=0.0))
        rates = spectrum_rates(eigenvalues(rows.T @ rows / max(len(rows), 1)), k, longest)
    if rank is Extraction.BLOCK:
        return fix_signs(_pass(rows, start_directions(d, k), np.zeros((d, 0)), rates)).T
    found = np.zeros((d, 0))
    for _ in range(k):
        found = np.hstack([found, _pass(rows, start_directions(d, found.shape[1] + 1)[:, -1:], found, rates)])
    return fix_signs(found).T


def _pass(rows: FloatArray, start: FloatArray, found: FloatArray, rates: Rates) -> FloatArray:
    """Shape: rows (n, d), start (d, m), found (d, j) orthonormal -> (d, m), orthonormal to `found`."""
    w = apart(start, found)
    with one_thread():
        for t, x in enumerate(rows):
            w = w + rates.step(t, 1.0) * np.outer(x, x @ w)
            w, _ = np.linalg.qr(w - found @ (found.T @ w))
    return apart(w, found)
