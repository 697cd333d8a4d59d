"""Exact rounded Gaussian and discrete Laplace integers: an infinite string of fair bits is inverted [P26].

A value's first word is a sign (the lowest bit) and the first 63 bits of its tail probability v in (0, 1/2).
Floats propose an integer, and it is taken where their proven bound leaves no doubt; all else is settled in
balls. A piece of values reads a word for each first, and then, in their order, as many more as those need
whose words so far leave two integers possible.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from flint import arb, ctx, fmpz

from eigenveil.noise.quantiles import Quantile
from eigenveil.noise.table import LOWEST, PIECE_BITS, TAIL_BITS, ULP, Table, table, upper
from eigenveil.numerics.encoding import FloatArray, IntArray, Words

AT_ONCE = 2**13  # values in a piece: what is computed on them stays in a core's cache
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
    quantile: Quantile, scale: float, count: int, words: Callable[[int], Words], out: IntArray | None = None
) -> IntArray:
    """Independent draws, in `out` if given; `words(n)` are n fresh words of fair bits. Shape: (count,).

    Privacy: [P26]. An integer beyond 64 bits becomes the largest or the least: at scales up to 2^56, with
    probability below 2^-11000 for the Gaussian, below e^-127 for the Laplace law.
    Cost: about 50 ns a value that floats settle. Balls settle 10^-15 scale + 10^-6 of them (.08 % at a scale
    of 2^40, 21 % at 2^48, all from 2^53), in about 50 us each.
    """
    drawn = np.empty(count, dtype=np.int64) if out is None else out
    fast = table(quantile)
    moved, off = shifted(quantile, scale)
    margin = margins(fast, scale, off)
    for start in range(0, count, AT_ONCE):
        piece = drawn[start : start + AT_ONCE]
        first = words(piece.size)
        for i in proposed(first, fast.coefficients, scale, moved, margin, piece):
            piece[i] = settled(quantile, scale, int(first[i]), words)
    return drawn


def shifted(quantile: Quantile, scale: float) -> tuple[float, float]:
    """The shift as a float, less the half by which down differs from to the nearest; and a bound of how far
    off it is."""
    with ctx.workprec(PRECISION):
        exact = quantile.shift(scale) - arb(0.5)
        moved = float(exact)
        return moved, upper(exact - arb(moved))


def margins(fast: Table, scale: float, off: float) -> FloatArray:
    """How far from an integer a float may lie and still round as what it stands for does.

    Shape: (PIECES + 2,). What is added, at most 1/2, adds ULP / 2 to the rounding of the sum; the last step
    down outweighs what is rounded here.
    """
    return np.nextafter(0.5 - (scale * fast.errors + off + ULP / 2), -np.inf)


def proposed(
    words: Words, coefficients: FloatArray, scale: float, moved: float, margin: FloatArray, out: IntArray
) -> IntArray:
    """Write the integers that floats propose to `out`; the places of those that are in doubt.

    The difference to the nearest integer is exact below 2^52. From there on it is 0, but the bound, which is
    more than two roundings of what is rounded here, is beyond 1/2.
    """
    value, piece = evaluated(words, coefficients)
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


def evaluated(words: Words, coefficients: FloatArray) -> tuple[FloatArray, IntArray]:
    """The quantile at the words' tails, and the column of the table that each was taken from; beyond its
    first and last are those. Shape: (words.size,) each."""
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


def settled(quantile: Quantile, scale: float, word: int, words: Callable[[int], Words]) -> int:
    """The integer that a value's bits stand for, with as many more words as it takes: each leaves two
    integers possible with a probability 2^-64 times that of the one before.

    Whatever the precision is, which all threads share, it decides nothing: too little reads a word more.
    """
    tail, length = word >> 1, TAIL_BITS + 1
    while True:
        with ctx.workprec(length + SPARE):
            least, largest = (magnitude(quantile, scale, tail + end, length) for end in (1, 0))
        if least is not None and least == largest:
            return -least if word & 1 else least
        tail, length = tail << 64 | int(words(1)[0]), length + 64


def magnitude(quantile: Quantile, scale: float, tail: int, length: int) -> int | None:
    """floor(scale q(v) + shift) at v = tail / 2^length, None if the ball leaves two integers possible."""
    exact = arb(scale) * quantile.at(arb((tail, -length))) + quantile.shift(scale)
    whole = exact.floor().unique_fmpz()
    return None if whole is None else int(min(whole, fmpz(LARGEST)))
