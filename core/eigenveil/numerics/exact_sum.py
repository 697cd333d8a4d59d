"""Sums of float64 products of integers, exact at any number of records."""

from __future__ import annotations

import numpy as np

from eigenveil.numerics.encoding import EXACT, FloatArray, IntArray, check_exact


class ExactSum:
    """Adds up in float64 as long as no sum of absolute products can reach 2**53, and then in int64.

    `bound` is the most that the products of one record add up to in any entry, in absolute value; no product
    may be of more than `most` records.

    Shape: products and total are of one shape.
    """

    def __init__(self, shape: tuple[int, ...], bound: int) -> None:
        check_exact(float(bound))
        self.most = (EXACT - 1) // max(bound, 1)
        self._total: IntArray | None = None  # not before floats cannot hold the sum
        self._exact = np.zeros(shape)
        self._held = 0

    def add(self, product: FloatArray, records: int) -> None:
        """A product over so many records."""
        if self._held + records > self.most:
            self._flush()
        self._exact += product
        self._held += records

    def total(self) -> IntArray:
        """All that was added; asked once."""
        if self._total is None:
            return self._exact.astype(np.int64)
        self._flush()
        return self._total

    def _flush(self) -> None:
        if self._total is None:
            self._total = self._exact.astype(np.int64)
        else:
            self._total += self._exact.astype(np.int64)
        self._exact[:] = 0.0
        self._held = 0
