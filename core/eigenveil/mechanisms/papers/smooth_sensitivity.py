"""Release of the leading subspace with noise scaled to its smooth or tested sensitivity."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from eigenveil.accounting.gaussian import noise_multiplier
from eigenveil.accounting.zcdp import mu
from eigenveil.mechanisms.result import MechanismResult, required_delta
from eigenveil.noise.distributions import cauchy, haar
from eigenveil.noise.source import NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import FloatArray, IntArray, add_noise, frozen
from eigenveil.protocol.query import NoiseDistribution, PricedQuery
from eigenveil.queries.papers.trusted import (
    CAUCHY,
    ENTRY_STEPS,
    GAP_STEPS,
    GAUSSIAN,
    PROPOSE_TEST_RELEASE,
    EigenspaceSensitivity,
    Subspace,
    leading_subspace_and_gap,
    person_weight,
)
from eigenveil.study.study import Study

TEST_SHARE = 0.2  # of epsilon, for the bound of the gap
MAX_SUBSPACE_NOISE = 2.0**15  # limit of the noise on an entry of a unit vector; beyond it nothing is released
LARGEST_VALUE = 2**61  # larger numbers are released as this


def release_subspace(
    priced: PricedQuery, query: Subspace, total: IntArray, study: Study, noise: NoiseSource
) -> MechanismResult:
    """Release the noised subspace by the query's mechanism; a public basis if k = d.
    Sensitivity: `EigenspaceSensitivity`: `smooth` (a smooth bound), or `local` at a tested gap.
    Privacy: [P19] with [P20] (smooth) or [P21] (tested).
    Cost: epsilon = sqrt(2 rho), and priced.atto_delta unless Cauchy.

    Raises:
        RequestError: the query has no delta."""
    d, k = query.centre.size, query.count
    epsilon = mu(priced.micro_rho)
    delta = 0.0 if query.mechanism == CAUCHY else required_delta(priced, query.mechanism)
    if k == d:
        return _published(to_fixed_point(np.eye(d)).tolist(), int(query.mechanism == PROPOSE_TEST_RELEASE))
    unit = person_weight(query, study.max_sites_per_person)
    bounds = EigenspaceSensitivity.of(query, study.neighbours, unit)
    vectors, gap = leading_subspace_and_gap(query, total, unit)
    entries = to_fixed_point(vectors @ haar(k, noise))
    if query.mechanism == GAUSSIAN:
        # Its scale is secret, so no sigma is stated; its limit is public.
        if gaussian_scale(bounds, 0.0, epsilon, delta, d * k) > MAX_SUBSPACE_NOISE:
            return _published([0] * (d * k))
        spread = gaussian_scale(bounds, gap, epsilon, delta, d * k)
        return _published(add_noise(entries, _normal(d * k, spread, noise)).tolist())
    if query.mechanism == CAUCHY:
        drawn = cauchy(d * k, math.ceil(cauchy_scale(bounds, gap, epsilon, d * k) * ENTRY_STEPS), noise)
        return _published([v + z for v, z in zip(entries.tolist(), drawn, strict=True)])
    return _tested(entries, bounds, gap, epsilon, delta, noise)


def to_fixed_point(vectors: FloatArray) -> IntArray:
    """Return unit vectors in steps of 1 / ENTRY_STEPS, row by row. Shape: (d, k) -> (d k,)."""
    return frozen(np.rint(vectors * ENTRY_STEPS).astype(np.int64).reshape(-1))


def gaussian_scale(
    bounds: EigenspaceSensitivity, gap: float, epsilon: float, delta: float, size: int
) -> float:
    """Return 5 U sqrt(2 ln(2 / delta)) / epsilon, beta = epsilon / (4 (d k + ln(2 / delta))), size = d k.

    These constants hold up to epsilon = ln(2 / delta) / 2 but not for all beyond, so no more is used [P20].
    """
    tail = math.log(2 / delta)
    used = min(epsilon, tail / 2)
    smooth = bounds.smooth(gap, used / (4 * (size + tail))) + bounds.float_slack
    return 5 * smooth * math.sqrt(2 * tail) / used


def cauchy_scale(bounds: EigenspaceSensitivity, gap: float, epsilon: float, size: int) -> float:
    """Return 6 sqrt(d k) U / epsilon, beta = epsilon / (6 d k): L1 is at most sqrt(d k) times L2 [P20]."""
    smooth = bounds.smooth(gap, epsilon / (6 * size)) + bounds.float_slack
    return 6 * math.sqrt(size) * smooth / epsilon


def _published(values: Sequence[int], tested: int = 0, sigma: float = 0.0) -> MechanismResult:
    """Return noised values limited to 2^61. The limit is applied after the noise, as post-processing."""
    limited = (min(max(v, -LARGEST_VALUE), LARGEST_VALUE) for v in values)
    return MechanismResult(frozen([*limited, tested]), sigma)


def _normal(count: int, spread: float, noise: NoiseSource) -> IntArray:
    return noise.draw(NoiseSpec.of(count, math.nextafter(spread * ENTRY_STEPS, math.inf)))


def gap_noise(bounds: EigenspaceSensitivity, epsilon: float, delta: float) -> tuple[float, int]:
    """Return the scale of the gap's noise in steps, and the margin below the gap that fails with delta.

    Sensitivity: one person changes the gap by `step`, and its floor in steps by one step more. With
    r = exp(-1 / scale), noise exceeds x >= 0 with probability r^(x + 1) / (1 + r)."""
    scale = (bounds.step * GAP_STEPS + 1) / epsilon
    noise_tail = scale * -math.log(delta * (1 + math.exp(-1 / scale)))
    return scale, max(math.ceil(noise_tail * (1 + 2.0**-40)), 0)


def _tested(
    entries: IntArray,
    bounds: EigenspaceSensitivity,
    gap: float,
    epsilon: float,
    delta: float,
    noise: NoiseSource,
) -> MechanismResult:
    """Propose a lower bound of the gap, test it with a fifth of epsilon, release with the rest [P21]."""
    scale, margin = gap_noise(bounds, TEST_SHARE * epsilon, delta / 2)
    drawn = noise.draw(NoiseSpec.of(1, scale, NoiseDistribution.LAPLACE))
    least = math.floor(gap * GAP_STEPS) + int(drawn[0]) - margin
    local_bound = bounds.local(least / GAP_STEPS)
    spread = (local_bound + bounds.float_slack) * noise_multiplier((1 - TEST_SHARE) * epsilon, delta / 2)
    if local_bound >= bounds.cap or spread > MAX_SUBSPACE_NOISE:
        return _published([0] * entries.size)
    values = add_noise(entries, _normal(entries.size, spread, noise)).tolist()
    return _published(values, least, spread * ENTRY_STEPS)
