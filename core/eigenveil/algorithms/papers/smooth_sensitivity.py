"""smooth-gaussian, smooth-cauchy, propose-test-release: the leading subspace with noise by its sensitivity.

Source: Gonen & Gilad-Bachrach 2018, corrected [P19] [P20]; propose-test-release after Dwork & Lei 2009 [P21].
"""

from __future__ import annotations

import math

import numpy as np

from eigenveil.accounting.zcdp import ATTO, mu
from eigenveil.algorithms.papers.covariance import spectrum
from eigenveil.algorithms.papers.oja import noised_product
from eigenveil.algorithms.recommended.gauss_cov import RowClip, matrix_warnings, prepared
from eigenveil.algorithms.shared.preparation import cost_of_share, noise_distribution
from eigenveil.algorithms.shared.stated_error import centre_sine, gaps_of, has_known_clipping
from eigenveil.numerics.encoding import IntArray
from eigenveil.numerics.linalg import fix_signs, orthonormal, rotated_eigenpairs
from eigenveil.protocol.estimate import Estimate, Steps, no_release
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import PricedQuery
from eigenveil.queries.papers.trusted import (
    CAUCHY,
    ENTRY_STEPS,
    GAP_STEPS,
    PROPOSE_TEST_RELEASE,
    EigenspaceSensitivity,
    Subspace,
    person_weight,
)
from eigenveil.study.grid import S, midpoint

SPECTRUM, AXES = 0.04, 0.04  # shares of epsilon: all eigenvalues, and variances along what was released
VARIANCES = SPECTRUM + AXES
LEAST = 2.5  # gap below which the sensitivity of the subspace is unknown


def smooth_subspace(plan: Plan) -> Steps:
    """Run the family: count, mean, radius, noised eigenvalues, the subspace, variances along its directions.
    Privacy: [P7], [P10], [P19], [P20], [P21]; the coordinator must be trusted with exact sums.
    Cost: the whole epsilon and delta, d (d + 1) + d k integers from every site, 9 rounds (8 unclipped)."""
    d, k = plan.study.dimension, plan.study.components
    # The radius affects this noise as that of a noised matrix, so it is balanced alike.
    clip = yield from prepared(plan, 1.0)
    start = clip.start
    values, _ = yield from spectrum(clip, SPECTRUM)
    vectors, error, paid = np.eye(d), 0.0, 0.0
    warnings: tuple[str, ...] = ()
    if k < d:
        paid = clip.left - VARIANCES
        release = yield _subspace(clip, paid)
        matrix = release.values[:-1].reshape(d, k) / ENTRY_STEPS
        if not matrix.any():
            return no_release(plan, start.records, _too_close(plan, cost_of_share(plan, paid)))
        vectors = orthonormal(matrix)
        person = plan.study.max_sites_per_person * (clip.radius / S) ** 2
        gap = float(values[k - 1] - values[k]) * start.records * clip.retained / person  # of full weight
        known = release.sigma / ENTRY_STEPS
        error = noise_sine(plan, known or noise_sd_at_gap(plan, gap, cost_of_share(plan, paid)))
        warnings = _rounded(plan, gap)
    # The release is rotated at random within its span, so its columns have no meaning. Of one gradient
    # x (x . W) only W^T (x (x . W)) is used (Rayleigh-Ritz).
    noised, scale = yield from noised_product(clip, vectors, clip.left - SPECTRUM - paid)
    along, turn = rotated_eigenpairs(vectors, noised)
    variances = np.maximum(along, 0.0)
    gaps = gaps_of(values, k)
    return Estimate(
        components=fix_signs(vectors @ turn).T,
        explained_variance=variances,
        mean=start.mean,
        records=start.records,
        total_variance=max(float(values.sum()), float(variances.sum())),
        noise_scale=scale,
        sin_error=min(1.0, math.hypot(error, centre_sine(start, gaps))) if has_known_clipping(plan) else None,
        warnings=matrix_warnings(clip, gaps) + warnings,
    )


def _query(plan: Plan, centre: IntArray, radius: int) -> Subspace:
    count, mechanism = plan.study.components, plan.algorithm.value
    return Subspace(centre=centre, radius=radius, records=plan.most_records, count=count, mechanism=mechanism)


def _subspace(clip: RowClip, share: float) -> PricedQuery:
    plan = clip.plan
    query = _query(plan, clip.start.centre, clip.radius)
    delta = 0 if query.mechanism == CAUCHY else plan.atto_delta
    return PricedQuery(
        query=query,
        micro_rho=cost_of_share(plan, share),
        atto_delta=delta,
        distribution=noise_distribution(plan),
    )


def noise_sine(plan: Plan, spread: float) -> float:
    """Return about the sine of the largest angle by which independent noise `spread` rotates k of d columns.

    A Gaussian matrix has norm about sqrt(d - k) + sqrt(k - 1); a Cauchy one about d k, the norm of so many
    Cauchy numbers."""
    d, k = plan.study.dimension, plan.study.components
    tangent = spread * (d * k if plan.algorithm.value == CAUCHY else math.sqrt(d - k) + math.sqrt(k - 1))
    return tangent / math.hypot(1.0, tangent)


def noise_sd_at_gap(plan: Plan, gap: float, micro_rho: int) -> float:
    """Return about the noise sd of an entry at a public gap, as in eigenveil.mechanisms."""
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
    smooth_subspace = max(near, cap * math.exp(-max(room, 0.0) / steps * beta)) + rounding_distance(plan)
    return smooth_subspace * (6 * math.sqrt(size) if heavy else 5 * math.sqrt(2 * tail)) / epsilon


def rounding_distance(plan: Plan) -> float:
    """Return the float and grid error of every distance [P20]; it grows with the study's `max_records`."""
    study = plan.study
    query = _query(plan, midpoint(study), S)  # the radius cancels out
    person = person_weight(query, study.max_sites_per_person)
    return EigenspaceSensitivity.of(query, study.neighbours, person).float_slack


def _rounded(plan: Plan, gap: float) -> tuple[str, ...]:
    sentence = (
        f"rounding is the larger part of the noise: the study allows {plan.most_records} records in total; "
        "lower max_records to the real maximum"
    )
    return () if gap <= LEAST or rounding_distance(plan) < 1 / (2 * gap) else (sentence,)


def _too_close(plan: Plan, micro_rho: int) -> str:
    if plan.algorithm.value != PROPOSE_TEST_RELEASE:
        return "epsilon is too small: the result would be noise alone; raise epsilon"
    epsilon = 0.2 * mu(micro_rho)
    off = (plan.study.neighbours.records + 1 / GAP_STEPS) * math.log(ATTO / plan.atto_delta) / epsilon
    return (
        f"the gap after component {plan.study.components} did not pass the test, which needs about "
        f"{math.ceil(off + LEAST)} records of full norm; use more records, a larger epsilon, or another "
        "number of components"
    )
