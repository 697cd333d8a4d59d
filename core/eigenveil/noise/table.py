"""A law's quantile in float64: a polynomial on each piece of (0, 1/2), and a proven bound of its error.

A tail probability v is read as the float64 nearest to its first 63 bits. Each of the 20 highest octaves of
that float has 32 pieces of equal width. On each the quantile is its Taylor polynomial about the centre, by
Horner's rule in x, the distance from the centre in units of the octave. All operations are additions and
multiplications of IEEE 754 binary64, so that every machine computes the same. The bound is derived in [P26].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from flint import arb, ctx

from eigenveil.noise.quantiles import Quantile
from eigenveil.numerics.encoding import FloatArray

OCTAVES, PIECE_BITS, DEGREE = 20, 5, 8
PIECES = OCTAVES << PIECE_BITS
TAIL_BITS = 63  # of the first word: v = tail / 2^64
LOWEST = TAIL_BITS - OCTAVES  # the exponent of the lowest octave of a tail
HALF_WIDTH = 2.0 ** -(PIECE_BITS + 1)  # of a piece: the largest |x|
ULP = 2.0**-53  # the relative error of one rounding
PRECISION = 80
SHARP = 2.0**-48  # at the middle of the law, all bounds of balls as narrow as asked for are below


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Polynomials and bounds, a column a piece. The first and last column stand for all that lies below
    and above: there is no polynomial, and the bound is infinite.

    Shape: coefficients (DEGREE + 1, PIECES + 2), errors (PIECES + 2,).
    """

    coefficients: FloatArray
    errors: FloatArray


@cache
def table(quantile: Quantile) -> Table:
    """The table of a law.

    Precision is a setting of the whole process, and another thread may lower it meanwhile. The bounds hold
    nevertheless, but would leave every draw in doubt for as long as the process lives.
    """
    while True:
        built = _build(quantile)
        if built.errors[-2] < SHARP:
            return built


def _build(quantile: Quantile) -> Table:
    """Derivatives fall with v: on a piece, and a little below, they are at most what they are at the centre
    of the piece before."""
    coefficients, off = np.zeros((DEGREE + 1, PIECES)), np.zeros((DEGREE + 1, PIECES))
    slope, rest = np.zeros(PIECES), np.zeros(PIECES)
    with ctx.workprec(PRECISION):
        before = quantile.taylor(centre(-1), range(DEGREE + 2))
        for i in range(PIECES):
            one = unit(i)
            units = [one**n for n in range(DEGREE + 2)]
            slope[i], rest[i] = (upper(before[n] * units[n]) for n in (1, DEGREE + 1))
            before = quantile.taylor(centre(i), range(DEGREE + 2))
            for n in range(DEGREE + 1):
                exact = before[n] * units[n]
                coefficients[n, i] = float(exact)
                off[n, i] = upper(exact - arb(coefficients[n, i]))
    return _bounded(coefficients, off, slope, rest)


def unit(i: int) -> arb:
    """The octave of piece i begins at this probability, and x is counted in it."""
    return arb((1, LOWEST + (i >> PIECE_BITS) - TAIL_BITS - 1))


def centre(i: int) -> arb:
    """The middle of piece i, as a probability."""
    piece = i % (1 << PIECE_BITS)
    return unit(i) * arb((2 * piece + 1, -PIECE_BITS - 1)) + unit(i)


def upper(value: arb) -> float:
    """A float above every magnitude in a ball."""
    return math.nextafter(float(value.abs_upper()), math.inf)


def _bounded(coefficients: FloatArray, off: FloatArray, slope: FloatArray, rest: FloatArray) -> Table:
    """How far scale * q + shift may be off, in units of the scale; what the shift adds is the sampler's.

    All terms are non-negative and few, so that what rounding does to them here, and second orders of ULP, are
    far below the relative 2^-20 that is added in the end.
    """
    reach, rounding = np.abs(coefficients[-1]), np.zeros(PIECES)
    for row in coefficients[-2::-1]:  # one product and one sum: `reach` bounds what comes out
        product = HALF_WIDTH * reach
        reach = np.abs(row) + product
        rounding = HALF_WIDTH * rounding + ULP * (product + reach)
    powers = HALF_WIDTH ** np.arange(DEGREE + 2)
    remainder = rest * powers[-1]
    represented = powers[:-1] @ off
    # To the nearest float it is half a unit in the last place; and v is anything up to the next word.
    first_bits = LOWEST + (np.arange(PIECES) >> PIECE_BITS)
    read = slope * (ULP + 2.0**-first_bits)
    scaled = 2 * ULP * reach  # times the scale, plus the shift
    errors = (remainder + represented + rounding + read + scaled) * (1 + 2.0**-20)
    return Table(
        coefficients=np.pad(coefficients, ((0, 0), (1, 1))),
        errors=np.pad(errors, 1, constant_values=np.inf),
    )
