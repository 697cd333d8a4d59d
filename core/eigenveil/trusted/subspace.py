"""Release of the leading subspace with noise scaled to how far one person can turn it."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from eigenveil.accounting import ATTO, MICRO, micro_rho_for
from eigenveil.asks import VECTOR
from eigenveil.asks.turned import CAUCHY, GAP_STEPS, GAUSSIAN, Subspace
from eigenveil.errors import Code, RequestError
from eigenveil.ints import FloatArray, IntArray, frozen
from eigenveil.noise import Block, NoiseSource, NoiseSpec
from eigenveil.query import Law, Query
from eigenveil.study import Study
from eigenveil.trusted.cauchy import cauchy
from eigenveil.trusted.haar import haar
from eigenveil.trusted.outcome import Outcome
from eigenveil.trusted.turning import Turning, decompose, turning, weight

TEST_SHARE = 0.2  # of epsilon, for the gap's bound
WIDEST = 2.0**40  # noise on an entry of a unit vector beyond which nothing is left to say


def release(query: Query, ask: Subspace, total: IntArray, study: Study, noise: NoiseSource) -> Outcome:
    """The noised subspace by the question's mechanism.

    Neighbours: as the study says.
    Sensitivity: `Turning.smooth` (a smooth bound) or `Turning.local` at a tested gap.
    Privacy: [P19] with [P20] (smooth) or [P21] (tested).
    Cost: epsilon = sqrt(2 rho), and query.atto_delta unless Cauchy.
    """
    unit = weight(ask, study.max_sites_per_person)
    bounds = turning(ask, study.neighbours, unit)
    vectors, gap = decompose(ask, total, unit)
    epsilon, delta = math.sqrt(2 * query.micro_rho / MICRO), query.atto_delta / ATTO
    if ask.mechanism != CAUCHY and delta <= 0:
        raise RequestError(Code.BAD_STUDY, f"{ask.mechanism} needs a delta of its own")
    entries = on_grid(vectors @ haar(ask.count, noise))
    if ask.mechanism == GAUSSIAN:
        return _published(
            entries + _normal(entries.size, gaussian_scale(bounds, gap, epsilon, delta, ask), noise)
        )
    if ask.mechanism == CAUCHY:
        scale = math.ceil(cauchy_scale(bounds, gap, epsilon, ask) * VECTOR)
        return _published(entries + cauchy(entries.size, scale, noise))
    return _tested(entries, bounds, gap, epsilon, delta, noise)


def on_grid(vectors: FloatArray) -> IntArray:
    """Unit vectors in steps of 1 / VECTOR, row by row. Shape: (d, k) -> (d k,)."""
    return frozen(np.rint(vectors * VECTOR).astype(np.int64).reshape(-1))


def gaussian_scale(bounds: Turning, gap: float, epsilon: float, delta: float, ask: Subspace) -> float:
    """5 U sqrt(2 ln(2 / delta)) / epsilon with beta = epsilon / (4 (d k + ln(2 / delta))) [P20]."""
    size, tail = ask.centre.size * ask.count, math.log(2 / delta)
    smooth = bounds.smooth(gap, epsilon / (4 * (size + tail))) + bounds.blur
    return 5 * smooth * math.sqrt(2 * tail) / epsilon


def cauchy_scale(bounds: Turning, gap: float, epsilon: float, ask: Subspace) -> float:
    """6 sqrt(d k) U / epsilon with beta = epsilon / (6 d k): L1 is at most sqrt(d k) times L2 [P20]."""
    size = ask.centre.size * ask.count
    smooth = bounds.smooth(gap, epsilon / (6 * size)) + bounds.blur
    return 6 * math.sqrt(size) * smooth / epsilon


def _normal(count: int, scale: float, noise: NoiseSource) -> IntArray:
    block = Block(count=count, scale=math.nextafter(min(scale, WIDEST) * VECTOR, math.inf))
    return noise.draw(NoiseSpec(blocks=(block,)))


def _published(entries: IntArray) -> Outcome:
    """The scale of this noise is a secret, so no sigma is stated."""
    return Outcome(values=frozen(np.append(entries, 0)), sigma=0.0)


def gap_noise(bounds: Turning, epsilon: float, delta: float) -> tuple[float, int]:
    """Scale of the gap's noise in steps, and how much is taken off to stay below the gap but for delta.

    Sensitivity: one person moves the gap by `step`, its floor in steps by one more step than that.
    """
    scale = (bounds.step * GAP_STEPS + 1) / epsilon
    return scale, math.ceil(scale * math.log(1 / delta)) + 1


def _tested(
    entries: IntArray, bounds: Turning, gap: float, epsilon: float, delta: float, noise: NoiseSource
) -> Outcome:
    """Propose: the gap is at least this. Test: with a fifth of epsilon. Release: with the rest [P21]."""
    scale, margin = gap_noise(bounds, TEST_SHARE * epsilon, delta / 2)
    drawn = noise.draw(NoiseSpec(blocks=(Block(count=1, scale=scale, law=Law.LAPLACE),)))
    least = math.floor(gap * GAP_STEPS) + int(drawn[0]) - margin
    reach = bounds.local(least / GAP_STEPS)
    nothing = frozen(np.zeros(entries.size + 1, dtype=np.int64))
    if reach >= bounds.cap > 0:
        return Outcome(values=nothing, sigma=0.0)
    rho = Fraction(micro_rho_for((1 - TEST_SHARE) * epsilon, delta / 2), MICRO)
    spread = math.sqrt(Fraction(reach + bounds.blur) ** 2 / (2 * rho))
    noised = entries + _normal(entries.size, spread, noise)
    values = frozen(np.append(noised, max(least, 1)))
    return Outcome(values=values, sigma=spread * VECTOR)
