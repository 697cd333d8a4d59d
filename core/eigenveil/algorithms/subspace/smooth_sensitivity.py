"""smooth-gaussian, smooth-cauchy and propose-test-release: the leading subspace, noised by its own stability.

Source: Gonen & Gilad-Bachrach 2018, corrected [P19] [P20]; propose-test-release after Dwork & Lei 2009 [P21].
"""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np

from eigenveil.accounting.zcdp import ATTO, mu
from eigenveil.algorithms.covariance.noised_gram import Clip, clip_warning, prepared
from eigenveil.algorithms.covariance.separate_cov import spectrum
from eigenveil.algorithms.gradient.noisy_power import noised_product
from eigenveil.algorithms.shared.preparation import UNCLIPPED, Centred, law, price
from eigenveil.algorithms.shared.stated_error import centre_sine, centre_warning, gaps_of
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, fix_signs, orthonormal
from eigenveil.protocol.estimate import Estimate, Steps, no_release
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import PricedQuery
from eigenveil.protocol.release import Release
from eigenveil.queries.eigenspace_sensitivity import EigenspaceSensitivity, weight
from eigenveil.queries.trusted import CAUCHY, FRAME, GAP_STEPS, TESTED, Subspace
from eigenveil.study.grid import S, midpoint
from eigenveil.study.radius import quantile

SPECTRUM, AXES = 0.04, 0.04  # shares of epsilon: all eigenvalues, and variances along what was released
VARIANCES = SPECTRUM + AXES
LEAST = 2.5  # gap below which nothing is known of how far one record turns the subspace


def smooth(plan: Plan) -> Steps:
    """Count, mean, radius, noised eigenvalues, the subspace, and the variances along its directions.

    Neighbours: as the study says.
    Privacy: [P7], [P10], [P19], [P20], [P21]; the coordinator must be trusted with exact sums.
    Cost: the whole epsilon and delta, d (d + 1) + d k integers from every site, 9 rounds (8 unclipped).
    """
    d, k = plan.study.dimension, plan.study.components
    # A wider radius loses turning in proportion, as a noised matrix loses noise; balanced alike.
    start, clip = yield from prepared(plan, 1.0)
    values, _ = yield from spectrum(plan, start, clip, SPECTRUM)
    vectors, error, paid = np.eye(d), 0.0, 0.0
    warnings: tuple[str, ...] = ()
    if k < d:
        paid = clip.left - VARIANCES
        release = yield _subspace(plan, start, clip, paid)
        matrix = release.values[:-1].reshape(d, k) / FRAME
        if not matrix.any():
            return no_release(plan, start.records, _too_close(plan, price(plan, paid)))
        vectors = orthonormal(matrix)
        gap = _gap(plan, values, clip, start.records)
        spread = release.sigma / FRAME if release.sigma else spread_at(plan, gap, price(plan, paid))
        error = turned(plan, spread)
        warnings = _rounded(plan, gap)
    vectors, variances, scale = yield from _axes(plan, start, clip, vectors, clip.left - SPECTRUM - paid)
    centre = centre_sine(start, gaps_of(values, k))
    return Estimate(
        components=vectors.T,
        explained_variance=variances,
        mean=start.mean,
        records=start.records,
        total_variance=max(float(values.sum()), float(variances.sum())),
        noise_scale=scale,
        sin_error=min(1.0, math.hypot(error, centre))
        if quantile(plan.study.radius) in (None, UNCLIPPED)
        else None,
        warnings=clip_warning(clip.kept) + centre_warning(centre) + warnings,
    )


def _subspace(plan: Plan, start: Centred, clip: Clip, share: float) -> PricedQuery:
    query = Subspace(
        centre=start.centre,
        radius=clip.radius,
        records=plan.most_records,
        count=plan.study.components,
        mechanism=plan.algorithm.value,
    )
    delta = 0 if query.mechanism == CAUCHY else plan.atto_delta
    return PricedQuery(query=query, micro_rho=price(plan, share), atto_delta=delta, law=law(plan))


def _axes(
    plan: Plan, start: Centred, clip: Clip, vectors: FloatArray, share: float
) -> Generator[PricedQuery, Release, tuple[FloatArray, FloatArray, float]]:
    """The directions within the released span that the records stretch most, and their variances (k,).

    What was released is turned at random within its span, so its single columns mean nothing. Rayleigh-Ritz:
    one gradient x (x . W), of whose d k noised numbers only W^T (x (x . W)) is read.

    Shape: vectors (d, k) -> (d, k).
    """
    noised, scale = yield from noised_product(plan, start, clip, vectors, share)
    small = vectors.T @ noised
    values, turn = eigenpairs((small + small.T) / 2)
    return fix_signs(vectors @ turn), np.maximum(values, 0.0), scale


def _gap(plan: Plan, values: FloatArray, clip: Clip, records: float) -> float:
    """The gap behind the k-th noised eigenvalue, in persons of full weight."""
    k = plan.study.components
    weight = plan.study.max_sites_per_person * (clip.radius / S) ** 2
    return float(values[k - 1] - values[k]) * records * clip.kept / weight


def turned(plan: Plan, spread: float) -> float:
    """About the sine of the largest angle that independent noise of size `spread` turns k of d columns by.

    A Gaussian matrix stretches by about sqrt(d - k) + sqrt(k - 1); a Cauchy one by about d k, that is what
    the length of so many Cauchy numbers is.
    """
    d, k = plan.study.dimension, plan.study.components
    heavy = plan.algorithm.value == CAUCHY
    tangent = spread * (d * k if heavy else math.sqrt(d - k) + math.sqrt(k - 1))
    return tangent / math.hypot(1.0, tangent)


def spread_at(plan: Plan, gap: float, micro_rho: int) -> float:
    """About the noise on an entry at a public gap: as in eigenveil.mechanisms."""
    d, k = plan.study.dimension, plan.study.components
    epsilon, size = mu(micro_rho), d * k
    steps = plan.study.neighbours.records
    cap, room = math.sqrt(2 * min(k, d - k)), gap - 1.5 - steps
    near = min(cap, steps / (2 * room)) if room > 0 else cap
    heavy = plan.algorithm.value == CAUCHY
    tail = 0.0 if heavy else math.log(2 * ATTO / max(plan.atto_delta, 1))
    if not heavy:
        epsilon = min(epsilon, tail / 2)
    beta = epsilon / (6 * size) if heavy else epsilon / (4 * (size + tail))
    smooth = max(near, cap * math.exp(-max(room, 0.0) / steps * beta)) + rounding(plan)
    return smooth * (6 * math.sqrt(size) if heavy else 5 * math.sqrt(2 * tail)) / epsilon


def rounding(plan: Plan) -> float:
    """What floats and the grid add to every distance [P20]; it grows with the study's `max_records`."""
    study = plan.study
    query = Subspace(
        centre=midpoint(study),
        radius=S,  # it cancels out
        records=plan.most_records,
        count=study.components,
        mechanism=plan.algorithm.value,
    )
    return EigenspaceSensitivity.of(query, study.neighbours, weight(query, study.max_sites_per_person)).blur


def _rounded(plan: Plan, gap: float) -> tuple[str, ...]:
    if gap <= LEAST or rounding(plan) < 1 / (2 * gap):
        return ()
    words = (
        f"rounding is the larger part of the noise: the study allows for {plan.most_records} records in all; "
        "lower max_records to what there can be"
    )
    return (words,)


def _too_close(plan: Plan, micro_rho: int) -> str:
    if plan.algorithm.value != TESTED:
        return "epsilon is so small that nothing could be told apart from noise; raise epsilon"
    epsilon = 0.2 * mu(micro_rho)
    steps = plan.study.neighbours.records
    off = (steps + 1 / GAP_STEPS) * math.log(ATTO / plan.atto_delta) / epsilon
    return (
        f"the gap behind component {plan.study.components} was not seen to be wide enough: the test "
        f"alone takes off about {math.ceil(off + LEAST)} records of full length; more records, a larger "
        "epsilon, or another number of components would help"
    )
