"""The error of the smooth sensitivity family: noise on the leading directions, as loud as the gap allows."""

from __future__ import annotations

import math

import numpy as np

from eigenveil.accounting.gaussian import noise_for
from eigenveil.accounting.zcdp import ATTO, mu
from eigenveil.algorithms.shared.preparation import price
from eigenveil.algorithms.subspace.smooth_sensitivity import VARIANCES, rounding, spread_at
from eigenveil.planning.error_models.covariance import clipped, seen, shortened
from eigenveil.planning.error_models.eigengaps import bent
from eigenveil.planning.error_models.rotation import NOISE, PredictedError, error
from eigenveil.planning.error_models.spectrum import AssumedSpectrum
from eigenveil.protocol.plan import Plan
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.grid import S

TEST_SHARE = 0.2  # of epsilon, for the gap's bound [P21]


def smooth(plan: Plan, guess: AssumedSpectrum) -> PredictedError:
    """Every entry of the directions gets noise of the same size."""
    clip, assumed = clipped(plan, guess, 1.0)
    kept = shortened(guess, clip.radius)
    _, gaps = seen(assumed, kept)
    if not gaps.size:
        return error(gaps, assumed.beyond.counts)  # k = d
    weight = plan.study.max_sites_per_person * (clip.radius / S) ** 2
    gap = float(np.median(gaps[:, -1, 0])) * assumed.records / weight
    paid = price(plan, clip.left - VARIANCES)
    if plan.algorithm is Algorithm.PROPOSE_TEST_RELEASE:
        spread = _tested(plan, gap, paid)
    else:
        spread = spread_at(plan, gap, paid)
    if plan.algorithm is Algorithm.SMOOTH_CAUCHY:
        # The length of N Cauchy numbers is about N of them, and not sqrt(N).
        spread *= assumed.k * math.sqrt(plan.study.dimension)
    if not math.isfinite(spread):
        return NOISE
    return error(spread**2 + bent(assumed, kept, gaps), assumed.beyond.counts)


def _tested(plan: Plan, gap: float, micro_rho: int) -> float:
    """Sd of the noise after a test of the gap; infinite where the test is likely to fail."""
    step = plan.study.neighbours.records
    epsilon, delta = mu(micro_rho), plan.atto_delta / ATTO
    least = gap - step * math.log(1 / max(delta, 1e-300)) / (TEST_SHARE * epsilon)
    if least - step - 1 <= 0.5:
        return math.inf
    turns = step / (2 * (least - 1 - step)) + rounding(plan)
    return turns * noise_for((1 - TEST_SHARE) * epsilon, delta / 2)
