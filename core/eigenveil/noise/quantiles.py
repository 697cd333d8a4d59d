"""Quantile functions of the two noise distributions, in ball arithmetic and in float64 with proven bounds.

A magnitude is floor(scale * q(v) + shift) with v uniform in (0, 1/2), a one-sided tail probability [P26].
Each q decreases from infinity to q(1/2) = 0, and so does the magnitude of each of its derivatives. Shifts lie
in [0, 1/2]. Ball arithmetic encloses the true value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from flint import arb, arb_poly, ctx

from eigenveil.numerics.encoding import FloatArray


class GaussianQuantile:
    """Normal distribution rounded to the nearest integer: q = -Phi^-1."""

    def at(self, tail: arb) -> arb:
        """q(tail)."""
        return arb(2).sqrt() * (2 * tail).erfcinv()

    def taylor(self, tail: arb) -> list[arb]:
        """Return the Taylor coefficients of q at `tail`, of ORDERS n: (-1)^n P_n(q) / (n! phi(q)^n)."""
        q = self.at(tail)
        slope = -(2 * arb.pi()).sqrt() * (q * q / 2).exp()
        return [_numerator(n)(q) * slope**n / arb.fac_ui(n) for n in ORDERS]

    def shift(self, scale: float) -> arb:
        """Return 1/2, with which floor rounds to the nearest integer."""
        return arb(0.5)


@cache
def _numerator(n: int) -> arb_poly:
    """Return P_n: P_0 = q and, as dq / dv = -1 / phi(q), P_(n + 1) = P_n' + n q P_n. No coefficient < 0."""
    if n == 0:
        return arb_poly([0, 1])
    before = _numerator(n - 1)
    return before.derivative() + arb_poly([0, n - 1]) * before


class LaplaceQuantile:
    """Discrete Laplace distribution, proportional to r^|x| with r = exp(-1 / scale): q = -ln(2 v). A
    magnitude is at least k if and only if v < r^k / (1 + r), that is k < scale (-ln v - ln(1 + r))."""

    def at(self, tail: arb) -> arb:
        """q(tail)."""
        return -(2 * tail).log()

    def taylor(self, tail: arb) -> list[arb]:
        """Return the Taylor coefficients of q at `tail`, of ORDERS n: (-1 / v)^n / n."""
        return [(-1 / tail) ** n / n if n else self.at(tail) for n in ORDERS]

    def shift(self, scale: float) -> arb:
        """Return scale (ln 2 - ln(1 + r)), without cancellation where r is nearly 1."""
        return -arb(scale) * ((-1 / arb(scale)).expm1() / 2).log1p()


Quantile = GaussianQuantile | LaplaceQuantile
GAUSSIAN, LAPLACE = GaussianQuantile(), LaplaceQuantile()


OCTAVES, PIECE_BITS, DEGREE = 20, 5, 8
ORDERS = range(DEGREE + 2)  # the last one bounds the remainder
PIECES = OCTAVES << PIECE_BITS
TAIL_BITS = 63  # of the first word: v = tail / 2^64
LOWEST = TAIL_BITS - OCTAVES  # the exponent of the lowest octave of a tail
HALF_WIDTH = 2.0 ** -(PIECE_BITS + 1)  # of a piece: the largest |x|
ULP = 2.0**-53  # the relative error of one rounding
PRECISION = 80
SHARP = 2.0**-48  # at the median, the error bound is below this if the requested precision was used


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileTable:
    """Polynomials and error bounds, one column per piece.

    A tail probability v is read as the float64 nearest to its first 63 bits. Each of the 20 highest octaves
    of that float, below 1/2, has 32 pieces of equal width. On each, the quantile is its Taylor
    polynomial at the centre, by Horner's rule in x, the distance from the centre in units of the octave. All
    operations are additions and multiplications of IEEE 754 binary64, so all machines give the same result.
    The bound is derived in [P26].

    The first and last column are for values outside all pieces: no polynomial, and an infinite bound.

    Shape: coefficients (DEGREE + 1, PIECES + 2), errors (PIECES + 2,)."""

    coefficients: FloatArray
    errors: FloatArray


@cache
def table(quantile: Quantile) -> QuantileTable:
    """Return the table of a noise distribution.

    The precision is a setting of the process, which another thread may lower meanwhile. The bounds remain
    valid, but too wide to accept any draw, so the table is built again."""
    while True:
        built = _build(quantile)
        if built.errors[-2] < SHARP:
            return built


def _build(quantile: Quantile) -> QuantileTable:
    """Return the table. Derivatives decrease with v, so the centre of the piece before bounds them."""
    coefficients, off = np.zeros((DEGREE + 1, PIECES)), np.zeros((DEGREE + 1, PIECES))
    slope, rest = np.zeros(PIECES), np.zeros(PIECES)
    with ctx.workprec(PRECISION):
        before = quantile.taylor(centre(-1))
        for i in range(PIECES):
            one = unit(i)
            units = [one**n for n in ORDERS]
            slope[i], rest[i] = (upper(before[n] * units[n]) for n in (1, DEGREE + 1))
            before = quantile.taylor(centre(i))
            for n in range(DEGREE + 1):
                exact = before[n] * units[n]
                coefficients[n, i] = float(exact)
                off[n, i] = upper(exact - arb(coefficients[n, i]))
    return _bounded(coefficients, off, slope, rest)


def unit(i: int) -> arb:
    """Return the first probability of the octave of piece i, which is the unit of x."""
    return arb((1, LOWEST + (i >> PIECE_BITS) - TAIL_BITS - 1))


def centre(i: int) -> arb:
    """Return the middle of piece i, as a probability."""
    piece = i % (1 << PIECE_BITS)
    return unit(i) * arb((2 * piece + 1, -PIECE_BITS - 1)) + unit(i)


def upper(value: arb) -> float:
    """Return a float above every magnitude in a ball."""
    return math.nextafter(float(value.abs_upper()), math.inf)


def _bounded(coefficients: FloatArray, off: FloatArray, slope: FloatArray, rest: FloatArray) -> QuantileTable:
    """Return the table with bounds of the error of scale * q + shift, in units of the scale. The sampler adds
    the error of the shift. All terms are non-negative and few. Their rounding errors, and second orders of
    ULP, are far below the relative 2^-20 added at the end."""
    reach, rounding = np.abs(coefficients[-1]), np.zeros(PIECES)
    for row in coefficients[-2::-1]:  # one product and one sum; `reach` bounds the result
        product = HALF_WIDTH * reach
        reach = np.abs(row) + product
        rounding = HALF_WIDTH * rounding + ULP * (product + reach)
    powers = HALF_WIDTH ** np.arange(DEGREE + 2)
    remainder = rest * powers[-1]
    represented = powers[:-1] @ off
    # Half a unit in the last place for the nearest float; v is anything up to the next word.
    first_bits = LOWEST + (np.arange(PIECES) >> PIECE_BITS)
    read = slope * (ULP + 2.0**-first_bits)
    scaled = 2 * ULP * reach  # times the scale, plus the shift
    errors = (remainder + represented + rounding + read + scaled) * (1 + 2.0**-20)
    return QuantileTable(
        coefficients=np.pad(coefficients, ((0, 0), (1, 1))),
        errors=np.pad(errors, 1, constant_values=np.inf),
    )
