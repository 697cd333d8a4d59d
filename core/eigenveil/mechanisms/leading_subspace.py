"""Release of the leading subspace with noise scaled to how far one person can turn it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from eigenveil.accounting.gaussian import noise_for
from eigenveil.accounting.zcdp import ATTO, mu
from eigenveil.errors import Code, RequestError
from eigenveil.mechanisms.outcome import Outcome
from eigenveil.noise.cauchy import cauchy
from eigenveil.noise.haar import haar
from eigenveil.noise.source import Block, NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import FloatArray, IntArray, added, frozen
from eigenveil.protocol.query import NoiseLaw, RoundQuery
from eigenveil.queries.eigenspace_sensitivity import EigenspaceSensitivity, decompose, weight
from eigenveil.queries.trusted import CAUCHY, FRAME, GAP_STEPS, GAUSSIAN, TESTED, Subspace
from eigenveil.study.study import Study

TEST_SHARE = 0.2  # of epsilon, for the gap's bound
WIDEST = 2.0**15  # noise on an entry of a unit vector beyond which nothing is said at all
FAR = 2**61  # larger numbers are published as this


def release(asked: RoundQuery, query: Subspace, total: IntArray, study: Study, noise: NoiseSource) -> Outcome:
    """The noised subspace by the question's mechanism; a public basis where all directions are asked for.

    Neighbours: as the study says.
    Sensitivity: `EigenspaceSensitivity`: `smooth` (a smooth bound), or `local` at a tested gap.
    Privacy: [P19] with [P20] (smooth) or [P21] (tested).
    Cost: epsilon = sqrt(2 rho), and asked.atto_delta unless Cauchy.

    Raises:
        RequestError: the question has no delta of its own.
    """
    d, k = query.centre.size, query.count
    epsilon, delta = mu(asked.micro_rho), asked.atto_delta / ATTO
    if query.mechanism != CAUCHY and delta <= 0:
        raise RequestError(Code.BAD_STUDY, f"{query.mechanism} needs a delta of its own")
    if k == d:
        return _published([*on_grid(np.eye(d)).tolist()], int(query.mechanism == TESTED))
    unit = weight(query, study.max_sites_per_person)
    bounds = EigenspaceSensitivity.of(query, study.neighbours, unit)
    vectors, gap = decompose(query, total, unit)
    entries = on_grid(vectors @ haar(k, noise))
    if query.mechanism == GAUSSIAN:
        return _gaussian(entries, bounds, gap, epsilon, delta, noise)
    if query.mechanism == CAUCHY:
        scale = math.ceil(cauchy_scale(bounds, gap, epsilon, d * k) * FRAME)
        drawn = cauchy(d * k, scale, noise)
        return _published([v + z for v, z in zip(entries.tolist(), drawn, strict=True)])
    return _tested(entries, bounds, gap, epsilon, delta, noise)


def on_grid(vectors: FloatArray) -> IntArray:
    """Unit vectors in steps of 1 / FRAME, row by row. Shape: (d, k) -> (d k,)."""
    return frozen(np.rint(vectors * FRAME).astype(np.int64).reshape(-1))


def gaussian_scale(
    bounds: EigenspaceSensitivity, gap: float, epsilon: float, delta: float, size: int
) -> float:
    """5 U sqrt(2 ln(2 / delta)) / epsilon with beta = epsilon / (4 (d k + ln(2 / delta))) for size = d k.

    These constants hold up to epsilon = ln(2 / delta) / 2 but not for all beyond, so no more is used [P20].
    """
    tail = math.log(2 / delta)
    used = min(epsilon, tail / 2)
    smooth = bounds.smooth(gap, used / (4 * (size + tail))) + bounds.blur
    return 5 * smooth * math.sqrt(2 * tail) / used


def cauchy_scale(bounds: EigenspaceSensitivity, gap: float, epsilon: float, size: int) -> float:
    """6 sqrt(d k) U / epsilon with beta = epsilon / (6 d k): L1 is at most sqrt(d k) times L2 [P20]."""
    smooth = bounds.smooth(gap, epsilon / (6 * size)) + bounds.blur
    return 6 * math.sqrt(size) * smooth / epsilon


def _published(values: Sequence[int], tested: int = 0, sigma: float = 0.0) -> Outcome:
    """Noised values, cut off to fit: after the noise was added, so that it is post-processing."""
    return Outcome(values=frozen([*(min(max(v, -FAR), FAR) for v in values), tested]), sigma=sigma)


def _gaussian(
    entries: IntArray,
    bounds: EigenspaceSensitivity,
    gap: float,
    epsilon: float,
    delta: float,
    noise: NoiseSource,
) -> Outcome:
    """The scale of this noise is a secret, so no sigma is stated; whether it could be too wide is public."""
    if gaussian_scale(bounds, 0.0, epsilon, delta, entries.size) > WIDEST:
        return _published([0] * entries.size)
    spread = gaussian_scale(bounds, gap, epsilon, delta, entries.size)
    return _published(added(entries, _normal(entries.size, spread, noise)).tolist())


def _normal(count: int, spread: float, noise: NoiseSource) -> IntArray:
    block = Block(count=count, scale=math.nextafter(spread * FRAME, math.inf))
    return noise.draw(NoiseSpec(blocks=(block,)))


def gap_noise(bounds: EigenspaceSensitivity, epsilon: float, delta: float) -> tuple[float, int]:
    """Scale of the gap's noise in steps, and how much is taken off to stay below the gap but for delta.

    Sensitivity: one person moves the gap by `step`, its floor in steps by one more step than that. With
    r = exp(-1 / scale), noise exceeds x >= 0 with probability r^(x + 1) / (1 + r).
    """
    scale = (bounds.step * GAP_STEPS + 1) / epsilon
    silent = scale * -math.log(delta * (1 + math.exp(-1 / scale)))
    return scale, max(math.ceil(silent * (1 + 2.0**-40)), 0)


def _tested(
    entries: IntArray,
    bounds: EigenspaceSensitivity,
    gap: float,
    epsilon: float,
    delta: float,
    noise: NoiseSource,
) -> Outcome:
    """Propose: the gap is at least this. Test: with a fifth of epsilon. Release: with the rest [P21]."""
    nothing = _published([0] * entries.size)
    scale, margin = gap_noise(bounds, TEST_SHARE * epsilon, delta / 2)
    drawn = noise.draw(NoiseSpec(blocks=(Block(count=1, scale=scale, law=NoiseLaw.LAPLACE),)))
    least = math.floor(gap * GAP_STEPS) + int(drawn[0]) - margin
    reach = bounds.local(least / GAP_STEPS)
    spread = (reach + bounds.blur) * noise_for((1 - TEST_SHARE) * epsilon, delta / 2)
    if reach >= bounds.cap or spread > WIDEST:
        return nothing
    values = added(entries, _normal(entries.size, spread, noise))
    return _published(values.tolist(), least, spread * FRAME)
