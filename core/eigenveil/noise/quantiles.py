"""The two laws of noise as quantiles, in ball arithmetic: a value comes with a radius that holds the truth.

A magnitude is floor(scale * q(v) + shift) with v uniform in (0, 1/2), a tail probability on one side [P26].
Each q falls from infinity to q(1/2) = 0, and the magnitude of each of its derivatives falls with v as well.
Shifts lie in [0, 1/2].
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from flint import arb, arb_poly


class Gaussian:
    """The normal law rounded to the nearest integer: q = -Phi^-1."""

    def at(self, tail: arb) -> arb:
        """q(tail)."""
        return arb(2).sqrt() * (2 * tail).erfcinv()

    def taylor(self, tail: arb, orders: Iterable[int]) -> list[arb]:
        """The coefficients of q about `tail`, of order n: (-1)^n P_n(q) / (n! phi(q)^n)."""
        q = self.at(tail)
        slope = -(2 * arb.pi()).sqrt() * (q * q / 2).exp()
        return [_numerator(n)(q) * slope**n / arb.fac_ui(n) for n in orders]

    def shift(self, scale: float) -> arb:
        """To the nearest is down from one half more."""
        return arb(0.5)


@cache
def _numerator(n: int) -> arb_poly:
    """P_0 = q and, as dq / dv = -1 / phi(q), P_(n + 1) = P_n' + n q P_n: no coefficient is negative."""
    if n == 0:
        return arb_poly([0, 1])
    before = _numerator(n - 1)
    return before.derivative() + arb_poly([0, n - 1]) * before


class Laplace:
    """The discrete law with probabilities in proportion to r^|x|, r = exp(-1 / scale): q = -ln(2 v).

    A magnitude is at least k exactly where v < r^k / (1 + r), that is k < scale (-ln v - ln(1 + r)).
    """

    def at(self, tail: arb) -> arb:
        """q(tail)."""
        return -(2 * tail).log()

    def taylor(self, tail: arb, orders: Iterable[int]) -> list[arb]:
        """The coefficients of q about `tail`, of order n: (-1 / v)^n / n."""
        return [(-1 / tail) ** n / n if n else self.at(tail) for n in orders]

    def shift(self, scale: float) -> arb:
        """scale (ln 2 - ln(1 + r)), in terms that do not cancel where r is nearly 1."""
        return -arb(scale) * ((-1 / arb(scale)).expm1() / 2).log1p()


Quantile = Gaussian | Laplace
GAUSSIAN, LAPLACE = Gaussian(), Laplace()
