"""smooth-gaussian, smooth-cauchy and propose-test-release: the leading subspace, noised by its own stability.

Source: Gonen & Gilad-Bachrach 2018, corrected [P19] [P20]; propose-test-release after Dwork & Lei 2009 [P21].
"""

from __future__ import annotations

import math

import numpy as np

from eigenveil.accounting import MICRO
from eigenveil.algorithms.estimate import Estimate, Steps, no_release
from eigenveil.algorithms.matrices import Clip, clip_radius, clip_warning
from eigenveil.algorithms.parts import UNCLIPPED, law, locate, price
from eigenveil.algorithms.separate_cov import spectrum
from eigenveil.asks import VECTOR, S
from eigenveil.asks.turned import CAUCHY, TESTED, Subspace
from eigenveil.ints import FloatArray
from eigenveil.linalg import fix_signs, orthonormal
from eigenveil.plan import Plan
from eigenveil.query import Priced
from eigenveil.study import Neighbours

VARIANCES = 0.08  # share of epsilon for the eigenvalues: they say how far to trust the directions
CAUCHY_NORM = 1.2  # median length of m Cauchy numbers over m: that of the Levy law, sqrt(2 / (0.455 pi))


def smooth(plan: Plan) -> Steps:
    """Count, mean, radius, noised eigenvalues, and the subspace itself.

    Neighbours: as the study says.
    Privacy: [P7], [P10], [P19] to [P21]; two mechanisms need the exact matrix at a trusted coordinator.
    Cost: the whole epsilon and delta, d (d + 1) integers from every site, 8 rounds (7 without clipping).
    """
    d, k = plan.study.dimension, plan.study.components
    start = yield from locate(plan)
    # A wider radius loses turning in proportion, as a noised matrix loses noise; balanced alike.
    clip = yield from clip_radius(plan, start, 1.0)
    values, sigma = yield from spectrum(plan, start, clip, VARIANCES)
    ask = Subspace(
        centre=start.centre,
        radius=clip.radius,
        records=plan.most_records,
        count=k,
        mechanism=plan.algorithm.value,
    )
    paid = price(plan, clip.left - VARIANCES)
    delta = 0 if ask.mechanism == CAUCHY else plan.atto_delta
    release = yield Priced(ask=ask, micro_rho=paid, atto_delta=delta, law=law(plan))
    matrix = release.values[:-1].reshape(d, k) / VECTOR
    if ask.mechanism == TESTED and not release.values[-1]:
        return no_release(d, start.records, _too_close(plan, paid))
    vectors = fix_signs(orthonormal(matrix))
    gap = _gap(plan, values, clip, start.records)
    spread = release.sigma / VECTOR if release.sigma else spread_at(plan, gap, paid)
    # The spectral norm of (d - k)-by-k Gaussian noise; Cauchy noise is its largest entry.
    light = math.sqrt(d - k) + math.sqrt(k)
    reach = CAUCHY_NORM * (d - k) * k if ask.mechanism == CAUCHY else light
    error = min(1.0, spread * reach) if k < d else 0.0
    return Estimate(
        components=vectors.T,
        explained_variance=values[:k],
        mean=start.mean,
        records=start.records,
        total_variance=float(values.sum()),
        noise_scale=sigma,
        sin_error=error if plan.study.radius in (None, UNCLIPPED) else None,
        warnings=clip_warning(clip.kept),
    )


def _gap(plan: Plan, values: FloatArray, clip: Clip, records: float) -> float:
    """The gap behind the k-th noised eigenvalue, in persons of full weight."""
    k = plan.study.components
    if k == len(values):
        return math.inf
    weight = plan.study.max_sites_per_person * (clip.radius / S) ** 2
    return float(values[k - 1] - values[k]) * records * clip.kept / weight


def spread_at(plan: Plan, gap: float, micro_rho: int) -> float:
    """About the noise on an entry at a public gap: as eigenveil.trusted has it, without the last bits."""
    d, k = plan.study.dimension, plan.study.components
    epsilon, size = math.sqrt(2 * micro_rho / MICRO), d * k
    steps = 1 if plan.study.neighbours is Neighbours.ADD_REMOVE else 2
    cap, room = math.sqrt(2 * min(k, d - k)), gap - 1.5 - steps
    near = min(cap, steps / (2 * room)) if room > 0 else cap
    if plan.algorithm.value == CAUCHY:
        far = cap * math.exp(-max(room, 0.0) / steps * epsilon / (6 * size))
        return 6 * math.sqrt(size) * max(near, far) / epsilon
    tail = math.log(2 / max(plan.study.delta, 1e-300))
    far = cap * math.exp(-max(room, 0.0) / steps * epsilon / (4 * (size + tail)))
    return 5 * max(near, far) * math.sqrt(2 * tail) / epsilon


def _too_close(plan: Plan, micro_rho: int) -> str:
    epsilon = 0.2 * math.sqrt(2 * micro_rho / MICRO)
    steps = 1 if plan.study.neighbours is Neighbours.ADD_REMOVE else 2
    least = math.ceil(2.5 + steps * math.log(2 / max(plan.study.delta, np.finfo(float).tiny)) / epsilon)
    return (
        f"the gap behind component {plan.study.components} was not seen to be wide enough: the test "
        f"alone takes off about {least} records of full length; more records, a larger epsilon, or another "
        "number of components would help"
    )
