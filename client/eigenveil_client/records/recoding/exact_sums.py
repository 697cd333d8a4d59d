"""Sums of floats without rounding, many side by side: what they are does not hang on the order of the terms.

A float is a whole number of 53 bits times a power of two. Each is cut into digits of 32 bits at fixed places,
and the digits of one place are added up as integers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eigenveil.numerics.encoding import FloatArray, IntArray

DIGIT = 32  # bits
ONE = 36  # the place of 2^0; the last bit of the least float is at place 1
MASK = np.uint64(2**DIGIT - 1)
WIDE = np.uint64(DIGIT)


class ExactSums:
    """Sums of fewer than 2^30 terms each, and how many terms those are. Only digits at places that some term
    has reached are held."""

    def __init__(self) -> None:
        self._first = ONE
        self._digits: NDArray[np.int64] = np.zeros((0, 0), dtype=np.int64)
        self._terms: IntArray = np.zeros(0, dtype=np.int64)

    def add(self, which: IntArray, values: FloatArray) -> None:
        """Add each of `values` to the sum number `which`. Shape: which and values (n,), all finite."""
        if not len(values):
            return
        significand, exponent = np.frexp(values)
        whole = np.abs(significand * 2.0**53).astype(np.uint64)
        place, bits = np.divmod(exponent.astype(np.int64) - 53 + ONE * DIGIT, DIGIT)
        self._reach(int(place.min()), int(place.max()) + 3, int(which.max()) + 1)
        shift = bits.astype(np.uint64)
        low, high = (whole & MASK) << shift, (whole >> WIDE) << shift
        sign, place = np.where(values < 0, -1, 1), place - self._first
        for step, part in enumerate([low & MASK, (low >> WIDE) + (high & MASK), high >> WIDE]):
            np.add.at(self._digits, (place + step, which), sign * part.astype(np.int64))
        np.add.at(self._terms, which, 1)

    def _reach(self, first: int, end: int, sums: int) -> None:
        """Make room for places from `first` to before `end`, and for `sums` sums."""
        places, held = self._digits.shape
        first, end = min(first, self._first), max(end, self._first + places)
        room = held if sums <= held else max(sums, 2 * held)
        if (first, end - first, room) == (self._first, places, held):
            return
        grown = np.zeros((end - first, room), dtype=np.int64)
        grown[self._first - first :][:places, :held] = self._digits
        self._terms = np.concatenate([self._terms, np.zeros(room - held, dtype=np.int64)])
        self._first, self._digits = first, grown

    def means(self, count: int) -> FloatArray:
        """The mean of the terms of each of the first `count` sums, rounded once; NaN without a term."""
        found, shift = np.full(count, np.nan), DIGIT * (self._first - ONE)
        some = np.flatnonzero(self._terms[:count])
        for which, digits, terms in zip(
            some, self._digits[:, some].T.tolist(), self._terms[some].tolist(), strict=True
        ):
            total = sum(digit << (DIGIT * place) for place, digit in enumerate(digits))
            found[which] = (total << max(shift, 0)) / (terms << max(-shift, 0))  # of integers: rounded once
        return found
