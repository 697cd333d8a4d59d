"""[P32] The sum of rounded shares is the rounding of one Gaussian, but for a factor that nobody sees. Where
the factor is large enough to be seen, at scales that are never drawn, it is computed in balls and held
against the bound; at the scale that is drawn the bound is multiplied out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, arb_poly, ctx, fmpq
from scipy.special import ndtr, ndtri

from eigenveil.planning.choose import MAX_NUMBERS
from eigenveil.protocol.query_limits import MIN_SHARE_SCALE
from eigenveil.study.composition import MASKED_ATTEMPT_DELTA
from eigenveil.study.study import MAX_ATTEMPTS, MAX_MULTIPLICITY, MAX_SITES

ATTO = 10**18
HALF, LARGER, ONE = Fraction(1, 2), Fraction(7, 10), Fraction(1)
SEEN = [(2, HALF), (2, LARGER), (2, ONE), (3, HALF), (3, LARGER), (3, ONE), (5, LARGER)]
FAR = 12  # integers on either side that are looked at


@pytest.fixture(autouse=True)
def precise() -> Iterator[None]:
    with ctx.workprec(800):
        yield


def both(m: int, s: Fraction) -> list[tuple[arb, arb]]:
    """P[X = k] and P[Y = k] for k from -FAR to FAR."""
    reach = 24  # 24 scales and more: what is cut off is below 1e-120
    distribution = rounded_sum(m, s, reach)
    return [(distribution[m * reach + k], rounding_of_one(m, s, k)) for k in range(-FAR, FAR + 1)]


def off(m: int, s: Fraction) -> arb:
    """Largest deviation from 1 of both probabilities' ratio."""
    return max((abs(x / y - 1) for x, y in both(m, s)), key=float)


@pytest.mark.parametrize(("m", "s"), SEEN)
def test_the_probability_of_every_integer_is_within_the_bound(m: int, s: Fraction) -> None:
    assert off(m, s) < eta(m, s)


@pytest.mark.parametrize(("m", "s"), SEEN)
def test_no_event_exceeds_mu_and_three_logarithms_of_the_factor(m: int, s: Fraction) -> None:
    distribution = [float(x) for x, _ in both(m, s)]
    tails = [sum(distribution[i:]) for i in range(len(distribution))]
    more = 3 * max(math.log1p(float(off(m, s))), -math.log1p(-float(off(m, s))))
    for shift in (1, 2):
        pairs = [(tails[i], tails[i + shift]) for i in range(len(tails) - shift)]
        result = [ndtri(a) - ndtri(b) for a, b in pairs if a < 1 - 1e-7 and b > 1e-7]
        assert max(result) <= shift / (math.sqrt(m) * float(s)) + more


def test_a_factor_is_worth_so_much_of_mu() -> None:
    """Once for each of the neighbours: three logarithms in all."""
    z = np.linspace(-8, 8, 3201)
    for r in (1 + 1e-6, 1.001, 1.06):
        assert (np.minimum(r * ndtr(z), 1 - ndtr(-z) / r) <= ndtr(z + 1.5 * math.log(r)) + 1e-15).all()


def grown(scale: float) -> arb:
    """By how much delta grows over all of a study whose shares have this scale, in attos, at most: at every
    epsilon."""
    numbers = MAX_NUMBERS * MAX_ATTEMPTS * MAX_MULTIPLICITY
    least = 1 - eta(MAX_SITES, Fraction(scale))
    if not least > 0:
        return arb("inf")
    ratio = (1 / least) ** numbers
    return (ratio**2 - 1 + ratio - 1) * ATTO


def test_at_the_least_share_scale_rounding_costs_less_than_the_delta_of_an_attempt() -> None:
    """Planted: half the scale would not do."""
    assert grown(MIN_SHARE_SCALE) < MASKED_ATTEMPT_DELTA * arb(10) ** -30
    assert not grown(MIN_SHARE_SCALE / 2) < MASKED_ATTEMPT_DELTA
    assert eta(MAX_SITES, Fraction(MIN_SHARE_SCALE)) < arb("5.3e-66")


# Both distributions of [P32] from their definitions, in interval arithmetic, without code of the product.


def tail(x: arb) -> arb:
    """P[Z > x], Z standard normal."""
    return (x / arb(2).sqrt()).erfc() / 2


def rounded_sum(m: int, s: Fraction, reach: int) -> list[arb]:
    """P[X_1 + ... + X_m = k] for k from -m reach to m reach, X_j = round(N_j), N_j of scale `s`; as if no X_j
    ever left -reach..reach."""
    scale = arb(fmpq(*s.as_integer_ratio()))
    one = [tail((k - arb(0.5)) / scale) - tail((k + arb(0.5)) / scale) for k in range(-reach, reach + 1)]
    distribution = arb_poly([arb(1)])
    for _ in range(m):
        distribution *= arb_poly(one)
    return [distribution[i] for i in range(2 * m * reach + 1)]


def rounding_of_one(m: int, s: Fraction, k: int) -> arb:
    """P[round(N + U_1 + ... + U_(m-1)) = k]: N of scale sqrt(m) s, U_j uniform on [-1/2, 1/2]. The density of
    N and m uniforms at k is the m-th difference of the m-fold integral of N's density."""
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
