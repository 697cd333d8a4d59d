"""Sums of rounded Gaussians, and what [P32] says they are nearly: both laws from their definitions, in balls.

Nothing of the product is imported here.
"""

from __future__ import annotations

import math
from fractions import Fraction

from flint import arb, arb_poly, fmpq


def tail(x: arb) -> arb:
    """P[Z > x], Z standard normal."""
    return (x / arb(2).sqrt()).erfc() / 2


def rounded_sum(m: int, s: Fraction, reach: int) -> list[arb]:
    """P[X_1 + ... + X_m = k] for k from -m reach to m reach, X_j = round(N_j), N_j of scale `s`; as if no X_j
    ever left -reach..reach."""
    scale = arb(fmpq(*s.as_integer_ratio()))
    one = [tail((k - arb(0.5)) / scale) - tail((k + arb(0.5)) / scale) for k in range(-reach, reach + 1)]
    law = arb_poly([arb(1)])
    for _ in range(m):
        law *= arb_poly(one)
    return [law[i] for i in range(2 * m * reach + 1)]


def rounding_of_one(m: int, s: Fraction, k: int) -> arb:
    """P[round(N + U_1 + ... + U_(m-1)) = k]: N of scale sqrt(m) s, U_j uniform on [-1/2, 1/2].

    The density of N and m uniforms at k is the m-th difference of the m-fold integral of N's density.
    """
    scale = arb(fmpq(*s.as_integer_ratio())) * arb(m).sqrt()
    terms = ((-1) ** j * math.comb(m, j) * integral(m, (k + arb(m) / 2 - j) / scale) for j in range(m + 1))
    return sum(terms, arb(0)) * scale ** (m - 1)


def integral(times: int, x: arb) -> arb:
    """The standard normal density, integrated so many `times` up to x: n I_(n+1) = x I_n + I_(n-1)."""
    before, now = (-x * x / 2).exp() / (2 * arb.pi()).sqrt(), tail(-x)
    for n in range(1, times):
        before, now = now, (x * now + before) / n
    return now


def theta(s: Fraction) -> arb:
    """sum over all integers k of exp(-pi^2 s^2 k^2), and no less."""
    square = arb.pi() ** 2 * arb(fmpq(*(s * s).as_integer_ratio()))
    rest = (-square * 64).exp() * 4  # terms fall by more than a half from k = 8 on, on either side
    return 1 + 2 * sum(((-square * k * k).exp() for k in range(1, 8)), arb(0)) + rest


def eta(m: int, s: Fraction) -> arb:
    """The bound of [P32] for how far the ratio of both laws is off 1."""
    return theta(s) ** m - 1
