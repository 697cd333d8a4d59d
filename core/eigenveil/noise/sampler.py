"""Exact rounded Gaussian and discrete Laplace integers, by inversion of fair bits [P26].

The first word of a value has its sign (the lowest bit) and the first 63 bits of its tail probability v in
(0, 1/2). Floats propose an integer, which is accepted if their proven error bound allows no other. All other
values are computed in ball arithmetic. A block of values first reads one word each. Then, in order, the
values that are still ambiguous read more words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from flint import arb, ctx, fmpz

from eigenveil.noise.quantiles import (
    LOWEST,
    PIECE_BITS,
    TAIL_BITS,
    ULP,
    Quantile,
    QuantileTable,
    table,
    upper,
)
from eigenveil.numerics.encoding import FloatArray, IntArray, WordArray

AT_ONCE = 2**13  # values in a block, which stays in a core's cache
SPARE = 64  # bits of precision beyond those of v
PRECISION = 128  # of a shift
LARGEST = 2**63 - 1
ONE = np.uint64(1)
MANTISSA = 52
FIRST = ((1023 + LOWEST) << PIECE_BITS) - 1  # the leading bits of a float just below the lowest octave
WITHIN = (1 << (MANTISSA - PIECE_BITS)) - 1
UNIT = 1023 << MANTISSA
CENTRE = 1 + 2.0 ** -(PIECE_BITS + 1)


def integers(
    quantile: Quantile,
    scale: float,
    count: int,
    words: Callable[[int], WordArray],
    out: IntArray | None = None,
) -> IntArray:
    """Return independent draws, in `out` if given. Shape: (count,). `words(n)`: n words of fair bits.

    Privacy: [P26]. An integer beyond 64 bits becomes the largest or the least: at scales up to 2^56, with
    probability below 2^-11000 for Gaussian and below e^-127 for Laplace noise.
    Cost: about 50 ns a value by floats. Ball arithmetic computes a share of 10^-15 scale + 10^-6 (.08 % at a
    scale of 2^40, 21 % at 2^48, all from 2^53), in about 50 us each."""
    drawn = np.empty(count, dtype=np.int64) if out is None else out
    fast = table(quantile)
    moved, off = float_shift(quantile, scale)
    margin = margins(fast, scale, off)
    for start in range(0, count, AT_ONCE):
        piece = drawn[start : start + AT_ONCE]
        first = words(piece.size)
        for i in propose_integers(first, fast.coefficients, scale, moved, margin, piece):
            piece[i] = draw_exactly(quantile, scale, int(first[i]), words)
    return drawn


def float_shift(quantile: Quantile, scale: float) -> tuple[float, float]:
    """Return the shift minus 1/2 as a float, and a bound of its error; floats round to the nearest."""
    with ctx.workprec(PRECISION):
        exact = quantile.shift(scale) - arb(0.5)
        moved = float(exact)
        return moved, upper(exact - arb(moved))


def margins(fast: QuantileTable, scale: float, off: float) -> FloatArray:
    """Return the largest distance from an integer at which a float rounds as the true value does.

    Shape: (PIECES + 2,). The shift, at most 1/2, adds ULP / 2 to the rounding of the sum; the final step
    down exceeds the rounding errors of this computation."""
    return np.nextafter(0.5 - (scale * fast.errors + off + ULP / 2), -np.inf)


def propose_integers(
    words: WordArray, coefficients: FloatArray, scale: float, moved: float, margin: FloatArray, out: IntArray
) -> IntArray:
    """Write the integers that floats propose to `out`, and return the positions of ambiguous ones.

    The difference to the nearest integer is exact below 2^52. From there on it is 0, but then the bound, more
    than two rounding errors, exceeds 1/2."""
    value, piece = evaluate_quantiles(words, coefficients)
    value *= scale
    value += moved
    nearest = np.rint(value)
    out[:] = nearest
    negative = -(words & ONE).view(np.int64)
    out ^= negative
    out -= negative
    value -= nearest
    np.abs(value, out=value)
    return np.flatnonzero(value > margin.take(piece, mode="clip"))


def evaluate_quantiles(words: WordArray, coefficients: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return the quantiles of the words' tails, and the table column of each. Shape: (words.size,) each.
    Values beyond the table have the first or last column."""
    tail = (words >> ONE).view(np.int64).astype(np.float64)
    bits = tail.view(np.int64)
    piece = (bits >> (MANTISSA - PIECE_BITS)) - FIRST
    bits &= WITHIN
    bits |= UNIT
    tail -= CENTRE
    value = coefficients[-1].take(piece, mode="clip")
    for row in coefficients[-2::-1]:
        value *= tail
        value += row.take(piece, mode="clip")
    return value, piece


def draw_exactly(quantile: Quantile, scale: float, word: int, words: Callable[[int], WordArray]) -> int:
    """Return the integer of a value's bits, and read more words until it is unique.

    Each further word leaves two integers possible with 2^-64 times the previous probability. All threads
    share the precision, which does not affect the result: if it is too low, one more word is read."""
    tail, length = word >> 1, TAIL_BITS + 1
    while True:
        with ctx.workprec(length + SPARE):
            least, largest = (magnitude(quantile, scale, tail + end, length) for end in (1, 0))
        if least is not None and least == largest:
            return -least if word & 1 else least
        tail, length = tail << 64 | int(words(1)[0]), length + 64


def magnitude(quantile: Quantile, scale: float, tail: int, length: int) -> int | None:
    """Return floor(scale q(v) + shift) at v = tail / 2^length, or None if the ball allows two integers."""
    exact = arb(scale) * quantile.at(arb((tail, -length))) + quantile.shift(scale)
    whole = exact.floor().unique_fmpz()
    return None if whole is None else int(min(whole, fmpz(LARGEST)))
