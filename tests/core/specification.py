"""The noise that a release of each kind must draw, from core/PRIVACY.md, in exact arithmetic. Nothing of the
product is imported here, and no sensitivity is asked of a query: only its public numbers are read (columns,
radius, edges...). Squares of scales are fractions; what is not rational is an interval of 200 bits (arb), of
which the safe end is taken. `test_drawn` holds every release to it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from flint import arb, ctx, fmpq

from tests.core.conversions import local_rho, mu_for

ctx.prec = 200

EXACT = Fraction(1, 10**12)  # how much larger a square may be than it must, where nothing is rounded up
ROUNDED = Fraction(1, 10**4)  # where a sensitivity or a budget is rounded to whole numbers first
FLOAT = Fraction(1, 2**48)  # relative error of eigenvalues, a dimension
COUNTS = {
    "count",
    "row-norms",
    "gradient-norms",
    "cross-norms",
    "eigenvalue-votes",
    "coordinates",
    "block-ranks",
}
COUNTS |= {"column-histograms"}


def real(x: Fraction | int) -> arb:
    return arb(fmpq(*Fraction(x).as_integer_ratio()))


def least(x: arb) -> Fraction:
    """The lower end of an interval, exactly."""
    mantissa, exponent = x.lower().man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def up(x: arb) -> int:
    """The least whole number that is no less."""
    return math.ceil(least(x))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Protection (`adds`: add-remove, else replace-one; persons at `sites` sites) and the price."""

    adds: bool
    sites: int
    micro_rho: int
    atto_delta: int = 0

    @property
    def pair(self) -> int:
        """Records that change: one more or less, or one out and one in."""
        return 1 if self.adds else 2

    @property
    def rho(self) -> Fraction:
        return Fraction(self.micro_rho, 10**6)

    @property
    def epsilon(self) -> arb:
        """Of a pure mechanism at this price [P4]."""
        return real(2 * self.rho).sqrt()

    @property
    def delta(self) -> arb:
        return real(Fraction(self.atto_delta, 10**18))


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """`count` numbers of a law, whose scale (sigma, or b of Laplace) has a square of at least `square` and
    not more than a part `room` of it beyond. No square: whatever it is."""

    distribution: str
    count: int
    square: Fraction
    room: Fraction = EXACT

    def is_drawn(self, distribution: str, count: int, scale: float) -> bool:
        fits = self.square <= Fraction(scale) ** 2 <= self.square * (1 + self.room)
        return (distribution, count) == (self.distribution, self.count) and fits


# ---- [P2] [P10] [P22] [P23]: how far the record of one person at one site moves an answer


def squared_l2(kind: str, query: Any, s: Setting) -> int:
    """The square of the sensitivity in L2 (Frobenius for a matrix)."""
    match kind:
        case "count":
            return 1
        case "row-norms" | "gradient-norms" | "cross-norms" | "block-ranks":
            return s.pair
        case "clipped-sum" | "column-moments":
            return (2**10 * query.radius * s.pair) ** 2
        case "column-histograms":
            return int(query.columns) * s.pair
        case "squared-norm-sum":
            return int(query.radius**4)
        case "gram" | "spectrum":
            return int(query.radius**4) * s.pair
        case "gradient" | "shuffled-record" | "cross-covariance":
            return int((query.radius * s.pair) ** 2)
        case "eigenvalue-votes":
            return 2 * s.pair**2
        case "coordinates":
            return int(query.spec.centre.size) * s.pair
        case "coordinate-clipped-sum":
            return sum(int(half) ** 2 for half in query.halves) * s.pair**2
        case _:
            raise AssertionError(kind)


def squared_l1(kind: str, query: Any, s: Setting) -> Fraction:
    """The square of the sensitivity in L1."""
    match kind:
        case "clipped-sum":
            return Fraction(query.centre.size * squared_l2(kind, query, s))
        case "column-moments":
            return Fraction(2 * query.columns * squared_l2(kind, query, s))
        case "gradient":
            return Fraction(query.spec.directions.size * squared_l2(kind, query, s))
        case "cross-covariance":
            entries = query.spec.centre.size * query.spec.scales.size
            return Fraction(entries * squared_l2(kind, query, s))
        case "squared-norm-sum":
            return Fraction(query.radius**4)
        case "gram":
            d = query.centre.size  # half of all |entries| and of the trace
            most = real(Fraction(d + 1, 2)) if s.adds else (arb(2).sqrt() * d + 2) / 2
            return least(most**2) * int(query.radius) ** 4
        case "spectrum":
            return Fraction((query.radius**2 * s.pair) ** 2)
        case "eigenvalue-votes":
            return Fraction((2 * s.pair) ** 2)
        case "coordinate-clipped-sum":
            return Fraction((sum(int(half) for half in query.halves) * s.pair) ** 2)
        case "count":
            return Fraction(1)
        case _:  # counts that move by one each
            return Fraction(squared_l2(kind, query, s) ** 2)


def added(kind: str, query: Any, distribution: str, s: Setting) -> tuple[Noise, ...]:
    """Noise on a sum: Delta^2 / (2 rho) in either norm; a matrix is louder on its diagonal [P3]."""
    gaussian = distribution == "gaussian"
    moved = Fraction(squared_l2(kind, query, s)) if gaussian else squared_l1(kind, query, s)
    square = moved * s.sites**2 / (2 * s.rho)
    if distribution == "stability":
        square /= query.spec.centre.size if kind == "coordinates" else 1
        return (Noise(distribution="laplace", count=query.length, square=square),)
    if kind == "gram" and gaussian and not query.flat:
        d = query.centre.size
        diagonal = Noise(distribution=distribution, count=d, square=square)
        return diagonal, Noise(distribution=distribution, count=d * (d - 1) // 2, square=square / 2)
    step = 0 if gaussian else Fraction(3, math.isqrt(math.floor(moved)))  # L1 is rounded up to a whole number
    return (Noise(distribution=distribution, count=query.length, square=square, room=EXACT + step),)


def eigenvalues(query: Any, distribution: str, s: Setting) -> tuple[Noise, ...]:
    """[P10]: as the matrix in L2, R^2 in L1; and what floats and rounding move on both sides."""
    d, trace = query.centre.size, query.records * query.radius**2
    blur = 1 + 2 * d * FLOAT * trace
    gaussian = distribution == "gaussian"
    square = squared_l2("spectrum", query, s) if gaussian else squared_l1("spectrum", query, s)
    moved = real(square).sqrt() * s.sites + real(blur) * (real(d).sqrt() if gaussian else d)
    wanted = least(moved**2) / (2 * s.rho)
    rounded = Fraction(8, math.isqrt(math.floor(square)))  # up to three whole numbers more
    return (Noise(distribution=distribution, count=d, square=wanted, room=EXACT + rounded),)


# ---- [P11] [P15] [P16] [P17]: what is spoken of


def log_inverse(delta: arb) -> arb:
    return -delta.log()


def stability_threshold(kind: str, query: Any, s: Setting) -> int:
    """max(1 + b ln(l1 / delta), l1 + b ln(1 / delta)) with delta at most 1 / (2 b)."""
    l1 = real(squared_l1(kind, query, s)).sqrt() * s.sites
    b = real(added(kind, query, "stability", s)[0].square).sqrt()
    delta = s.delta.min(1 / (2 * b))
    return up((1 + b * (l1 / delta).log()).max(l1 + b * log_inverse(delta)))


def vote_scale(kind: str, s: Setting) -> arb:
    """b = L1 / epsilon: a vote appears or vanishes (span), or changes cells."""
    return real((1 if kind == "span-votes" else 2) * s.pair * s.sites) / s.epsilon


def vote_threshold(kind: str, s: Setting) -> int:
    """The least t with a r^(t - 1) / (1 + r) and r^(t - a) / (1 + r) at most delta, r = exp(-1 / b), for the
    a votes that a person makes appear; delta at most 1 / (2 b)."""
    a, b = s.pair * s.sites, vote_scale(kind, s)
    room = s.delta.min(1 / (2 * b)) * (1 + (-1 / b).exp())
    return max(up(1 + b * (a / room).log()), up(a + b * log_inverse(room)), a + 1)


def lead(query: Any, s: Setting) -> int:
    """D: how far one person moves the lead of a span."""
    return s.sites * (2 if query.pool.truncated else s.pair)


def reach(changed: int, epsilon: arb, delta: arb) -> int:
    """The least A with r^(A + 1) (r^-D - 1) / (1 + r - 2 r^(A + 1)) <= delta, r = exp(-epsilon / D); D at
    least."""
    b = real(changed) / epsilon
    rare = delta * (1 + (-1 / b).exp()) / (epsilon.expm1() + 2 * delta)
    return max(changed, up(b * log_inverse(rare) - 1))


def trial(s: Setting, stop: Fraction) -> tuple[arb, int]:
    """[P17]: a trial has a third of epsilon and, as it ends with probability `stop`, that part of delta.
    Its scale D / epsilon_1, and how far its truncated noise reaches."""
    changed, epsilon = s.pair * s.sites, s.epsilon / 3
    return real(changed) / epsilon, reach(changed, epsilon, s.delta * real(stop))


# ---- [P12] [P13]


def limits(query: Any, s: Setting) -> tuple[Noise, ...]:
    """Scale 2 D / epsilon for the limit and for each count; twice for counts that may move both ways."""
    square = Fraction(4 * s.sites**2) / (2 * s.rho)
    isolated = 1 if s.adds or s.sites == 1 else 4
    return (
        Noise(distribution="laplace", count=1, square=square),
        Noise(distribution="laplace", count=query.edges.size, square=square * isolated),
    )


def steepness(query: Any, s: Setting) -> Fraction:
    """The largest t of exp(t u' C u): epsilon over the range R^2 (2 R^2 replaced) and over the directions."""
    d, square = query.centre.size, query.radius**2
    floats = 4 * 2 * d * FLOAT * query.records * square
    return least(s.epsilon / max(1, min(query.count, d - 1)) / real(s.sites * s.pair * square + floats))


def local_randomiser(query: Any, s: Setting) -> tuple[Noise, ...]:
    """Gaussian noise for one record's gradient against another's, 2 R apart."""
    local = Fraction(local_rho(float(s.epsilon), float(s.delta), query.batch.batches))
    square = Fraction(squared_l2("shuffled-record", query, s)) / (2 * local)
    return (
        Noise(distribution="gaussian", count=query.length, square=square * (1 - EXACT), room=10 * ROUNDED),
    )


def public_noise(kind: str, query: Any, distribution: str, s: Setting) -> tuple[Noise, ...] | None:
    """All that is drawn for a release, where that depends on no answer; None where it does."""
    match kind:
        case "spectrum":
            return eigenvalues(query, distribution, s)
        case "radius-search":
            return limits(query, s)
        case "shuffled-record":
            return local_randomiser(query, s)
        case (
            "eigenvectors" | "subspace" | "span-votes" | "cell-votes" | "rank-votes" | "span-gap" | "preimage"
        ):
            return None
        case _:
            return added(kind, query, distribution, s)


# ---- [P19] [P20] [P21]: turned subspaces, in persons

GRID = 2**40
TEST_STEPS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Turn of the k leading directions of d by a person, at a gap in persons."""

    d: int
    k: int
    step: int  # that a person moves the gap by

    @property
    def cap(self) -> arb:
        """The largest distance of two spans."""
        return real(2 * min(self.k, self.d - self.k)).sqrt()

    @property
    def blur(self) -> arb:
        """Two matrices rounded to the grid, and turned by matrices that are not quite Haar."""
        return 2 * real(self.d * self.k).sqrt() / GRID + real(Fraction(2 * self.k**2, 2**41))

    def local(self, gap: arb) -> arb:
        """phi(1 / (2 (G - 2))), and phi(1 / (2 (G - 3))) more when replaced."""
        if not gap > self.step + real(Fraction(3, 2)):
            return self.cap
        sines = [1 / (2 * (gap - 1 - i)) for i in range(1, self.step + 1)]
        phis = [x * (2 / (1 + (1 - x * x).sqrt())).sqrt() for x in sines]
        return self.cap.min(sum(phis, arb(0)))

    def smooth(self, gap: arb, beta: arb) -> arb:
        """max over j of exp(-beta j) local(G - j step), one j after the other."""
        best = arb(0)
        for j in range(up(gap) // self.step + 2):
            best = best.max((-beta * j).exp() * self.local(gap - j * self.step))
        return best


def secret_gaussian(turn: Turn, gap: arb, s: Setting) -> arb:
    """5 U sqrt(2 L) / e, beta = e / (4 (d k + L)), L = ln(2 / delta), e at most L / 2; in grid steps."""
    tail = (2 / s.delta).log()
    e = s.epsilon.min(tail / 2)
    smooth = turn.smooth(gap, e / (4 * (turn.d * turn.k + tail))) + turn.blur
    return 5 * smooth * (2 * tail).sqrt() / e * GRID


def secret_cauchy(turn: Turn, gap: arb, s: Setting) -> arb:
    """6 sqrt(d k) U / epsilon, beta = epsilon / (6 d k); in steps of the grid."""
    size = turn.d * turn.k
    smooth = turn.smooth(gap, s.epsilon / (6 * size)) + turn.blur
    return 6 * real(size).sqrt() * smooth / s.epsilon * GRID


def tested_gap(turn: Turn, s: Setting) -> tuple[arb, int]:
    """The scale of the gap's noise at a fifth of epsilon, in steps, and the least margin m that the noise
    exceeds with probability r^(m + 1) / (1 + r) <= delta / 2."""
    b = real(TEST_STEPS * turn.step + 1) / (s.epsilon / 5)
    return b, up(b * (2 / (s.delta * (1 + (-1 / b).exp()))).log() - 1)


def tested_noise(turn: Turn, bound: Fraction, s: Setting) -> arb:
    """Gaussian noise for the distance at a tested bound, from four fifths of epsilon and half of delta."""
    mu = mu_for(0.8 * float(s.epsilon), float(s.delta) / 2)
    return (turn.local(real(bound)) + turn.blur) / real(Fraction(mu)) * GRID
