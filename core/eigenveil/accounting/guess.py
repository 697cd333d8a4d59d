"""What a guarantee means to one patient: how often somebody who guesses can be right.

Somebody knows all records but one, holds two worlds that differ in that one for equally likely, sees all
that is released, and guesses. With releases P and Q in these worlds the best guess is right with probability
(1 + TV(P, Q)) / 2, TV being their total variation: the hockey-stick divergence at epsilon 0. Whoever holds
one world for likelier gains less: the risk R of the best guess is concave in the prior p and 0 at its ends,
so R(p) >= 2 min(p, 1-p) R(1/2), and the gain, min(p, 1-p) - R(p), is at most that at 1/2. Worlds that are
mixtures (of all records that a patient may have) are no farther apart than the farthest two in them.

- mu-Gaussian DP: the trade-off is that of N(0, 1) against N(mu, 1), of which TV = 2 Phi(mu/2) - 1, so the
  guess is right with probability Phi(mu/2); that is exact (Dong, Roth & Su 2022, "Gaussian differential
  privacy", Corollary 2.13 at epsilon 0).
- rho-zCDP: KL(P, Q) <= rho (its order 1), hence TV <= sqrt(rho/2) (Pinsker) and TV <= sqrt(1 - e^-rho)
  (Bretagnolle & Huber 1979); a mechanism's own delta adds at most itself to TV.
- (epsilon, delta)-DP: P(S) - Q(S) <= (e^epsilon - 1) Q(S) + delta for S and for its complement with P and Q
  exchanged, hence TV <= (e^epsilon - 1 + 2 delta) / (e^epsilon + 1) (Kairouz, Oh & Viswanath 2015).

All are rounded up: by balls that hold the true value, never by a float.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from eigenveil.accounting.zcdp import check_delta, check_epsilon

if TYPE_CHECKING:
    from flint import arb

STEPS = 10**6  # what is returned is rounded up to a millionth
PRECISION = 128


def most_right_gaussian(mu_squared: Fraction) -> Fraction:
    """The probability under mu-Gaussian DP."""
    from flint import arb, ctx, fmpq

    with ctx.workprec(PRECISION):
        mu = arb(fmpq(mu_squared.numerator, mu_squared.denominator)).sqrt()
        return _up((-mu / arb(8).sqrt()).erfc() / 2)


def most_right_zcdp(rho: Fraction, own_delta: Fraction = Fraction(0)) -> Fraction:
    """The probability under rho-zCDP, approximate by `own_delta`."""
    from flint import arb, ctx, fmpq

    with ctx.workprec(PRECISION):
        exactly = arb(fmpq(rho.numerator, rho.denominator))
        own = arb(fmpq(own_delta.numerator, own_delta.denominator))
        bounds = ((exactly / 2).sqrt(), (1 - (-exactly).exp()).sqrt())
        return min(_up((1 + bound + own) / 2) for bound in bounds)


def most_right(epsilon: float, delta: float) -> Fraction:
    """The probability under (epsilon, delta)-DP; `delta` may be 0."""
    from flint import arb, ctx

    check_epsilon(epsilon)
    if delta:
        check_delta(delta)
    with ctx.workprec(PRECISION):
        grown = arb(epsilon).exp()
        return _up((1 + (grown - 1 + 2 * arb(delta)) / (grown + 1)) / 2)


def _up(probability: arb) -> Fraction:
    """A probability in millionths, rounded up: no float is between."""
    mantissa, exponent = (probability * STEPS).upper().man_exp()
    return min(Fraction(1), Fraction(math.ceil(int(mantissa) * Fraction(2) ** int(exponent)), STEPS))
