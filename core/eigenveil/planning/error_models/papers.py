"""Error models of the papers' reference algorithms. Error model of the smooth sensitivity family: noise on
the leading directions, scaled by the gap."""

from __future__ import annotations

import math

import numpy as np

from eigenveil.accounting.gaussian import noise_multiplier
from eigenveil.accounting.zcdp import ATTO, mu
from eigenveil.algorithms.papers.covariance import adaptive_cov as run_adaptive
from eigenveil.algorithms.papers.oja import CANDIDATES, BatchPass
from eigenveil.algorithms.papers.private_oja import batch_gradient_radius, radius_batches
from eigenveil.algorithms.papers.single_pass import records_needed
from eigenveil.algorithms.papers.smooth_sensitivity import VARIANCES, noise_sd_at_gap, rounding_distance
from eigenveil.algorithms.recommended.dp_pca import VARIANCE_SHARE
from eigenveil.algorithms.shared.preparation import cost_of_share, effective_mu, share_of
from eigenveil.algorithms.shared.query_builders import GradientQueryBuilder
from eigenveil.numerics.encoding import FloatArray
from eigenveil.planning.error_models.assumed_records import AssumedSpectrum, locate_noiseless, run_noiseless
from eigenveil.planning.error_models.perturbation import (
    NOISE,
    AssumedRecords,
    PredictedError,
    clipping_bias,
    predict_sine,
)
from eigenveil.planning.error_models.recommended import (
    GradientModel,
    clipped_records,
    clipped_variances,
    matrix_error,
    retained_shares,
)
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import PricedQuery
from eigenveil.queries import Gram
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.grid import S

EXACT_RATIO = 1e-12  # largest eigenvalue ratio at which subspace-exact works
NEAR_RATIO = 1e-5  # largest eigenvalue ratio at which subsamples agree


def adaptive_cov(plan: Plan, spectrum: AssumedSpectrum) -> PredictedError:
    """Return the error of the matrix of its chosen method on the assumed records."""
    priced_queries: list[PricedQuery] = []
    run_noiseless(plan, run_adaptive(plan), spectrum.lengths * S, priced_queries)
    radius, micro_rho = [
        (one.query.radius, one.micro_rho) for one in priced_queries if isinstance(one.query, Gram)
    ][-1]
    assumed = AssumedRecords(spectrum, plan.study.components, float(plan.study.expected_records))
    return matrix_error(plan, assumed, radius, micro_rho)


def em_cov(plan: Plan, spectrum: AssumedSpectrum) -> PredictedError:
    """Return the error of sampled directions: a mean square tilt of 1 / (2 t gap), t by epsilon."""
    k, d = plan.study.components, plan.study.dimension
    clip, assumed = clipped_records(plan, spectrum, math.sqrt(d) * k / 4)
    retained = retained_shares(spectrum, clip.radius)
    _, gaps = clipped_variances(assumed, retained)
    epsilon = mu(cost_of_share(plan, clip.left / 2)) / max(1, min(k, d - 1))
    moved = plan.study.changed_records * (clip.radius / S) ** 2
    return predict_sine(
        moved / (2 * epsilon * assumed.records * gaps) + clipping_bias(assumed, retained, gaps),
        assumed.beyond.counts,
    )


def private_oja(plan: Plan, spectrum: AssumedSpectrum) -> PredictedError:
    """Return the error of Oja's rule: each step shrinks the tilt and adds the noise of its batch. A batch is
    also a random sample: its components differ from those of all records."""
    start, k = locate_noiseless(plan, spectrum), plan.study.components
    assumed = AssumedRecords(spectrum, k, start.records)
    left = start.left - VARIANCE_SHARE
    once = BatchPass(plan=plan, first=0, micro_rho=share_of(plan.micro_rho, left))
    steps = once.size - len(radius_batches(once.size))
    if steps < 1:  # the only batch gives the radius: the directions stay as they began
        return NOISE
    pulls = GradientModel(assumed, k, pulled=False, scaled=False)
    axes = np.eye(plan.study.dimension, k)
    slope = GradientQueryBuilder(centre=start.centre, directions=axes, offset=np.zeros_like(axes))
    radius = run_noiseless(
        plan,
        batch_gradient_radius(start, once, slope, math.nan),
        pulls.norms * S**2 * slope.integer_scale,
    )
    retained = pulls.retained(radius)
    inside, gaps = pulls.response(retained)
    each = start.records / once.size
    moved, paid = plan.study.changed_records * radius, effective_mu(plan, once.micro_rho)
    noise = moved / (paid * each) / inside[:, None]
    sampled = assumed.product(retained**2) / each / inside[:, None] ** 2
    variances, started = _stepped(noise**2, sampled, gaps / inside[:, None], steps)
    return predict_sine(variances + clipping_bias(assumed, retained, gaps), assumed.beyond.counts, started)


def _stepped(
    noise: FloatArray, sampled: FloatArray, gaps: FloatArray, steps: int
) -> tuple[FloatArray, FloatArray]:
    """Return the variance of a tilt after all steps, and the squared rest of the initial tilt. The samples'
    variance counts only beyond that of the records' own components. Shape: all (r, m, g), relative to the
    strength of the direction."""
    rate, started, shared = CANDIDATES[0], np.ones_like(gaps), np.zeros_like(gaps)
    variances, weights = np.zeros_like(gaps), np.zeros_like(gaps)
    for t in range(steps):
        length = rate.step(t, 1.0)
        shrink = (1 + length * (1 - gaps)) / (1 + length)
        gain = length / (1 + length)
        started, variances = started * shrink**2, variances * shrink**2 + gain**2 * noise
        weights, shared = weights * shrink**2 + gain**2, shared * shrink + gain
    # The records' own tilt weighs each of `steps` batches by 1 / (gap steps).
    inside = np.maximum(weights - 2 * shared / (gaps * steps) + 1 / (gaps**2 * steps), 0.0)
    return variances + inside * sampled, started


def dp_pca_single_pass(plan: Plan, spectrum: AssumedSpectrum) -> PredictedError | None:
    """Return pure noise below the needed number of records; above it, there is no fitted model."""
    return NOISE if plan.study.expected_records < records_needed(plan) else None


def subspace(plan: Plan, spectrum: AssumedSpectrum, *, most: float) -> PredictedError | None:
    """Return pure noise where lambda_{k+1} / lambda_k exceeds `most`; None, as there is no model, below."""
    k = plan.study.components
    beyond = float(spectrum.values[k] / spectrum.values[k - 1]) if k < len(spectrum.values) else 0.0
    return NOISE if beyond > most else None


TEST_SHARE = 0.2  # of epsilon, for the bound of the gap [P21]


def smooth(plan: Plan, spectrum: AssumedSpectrum) -> PredictedError:
    """Return the error of noise of one size on every entry of the directions."""
    clip, assumed = clipped_records(plan, spectrum, 1.0)
    retained = retained_shares(spectrum, clip.radius)
    _, gaps = clipped_variances(assumed, retained)
    if not gaps.size:
        return predict_sine(gaps, assumed.beyond.counts)  # k = d
    weight = plan.study.max_sites_per_person * (clip.radius / S) ** 2
    gap = float(np.median(gaps[:, -1, 0])) * assumed.records / weight
    paid = cost_of_share(plan, clip.left - VARIANCES)
    if plan.algorithm is Algorithm.PROPOSE_TEST_RELEASE:
        spread = _tested(plan, gap, paid)
    else:
        spread = noise_sd_at_gap(plan, gap, paid)
    if plan.algorithm is Algorithm.SMOOTH_CAUCHY:
        # The norm of N Cauchy numbers is of order N, not sqrt(N).
        spread *= assumed.k * math.sqrt(plan.study.dimension)
    if not math.isfinite(spread):
        return NOISE
    return predict_sine(spread**2 + clipping_bias(assumed, retained, gaps), assumed.beyond.counts)


def _tested(plan: Plan, gap: float, micro_rho: int) -> float:
    """Return the noise sd after the test of the gap; infinite where the test is likely to fail."""
    step = plan.study.neighbours.records
    epsilon, delta = mu(micro_rho), plan.atto_delta / ATTO
    least = gap - step * math.log(1 / max(delta, 1e-300)) / (TEST_SHARE * epsilon)
    if least - step - 1 <= 0.5:
        return math.inf
    sine = step / (2 * (least - 1 - step)) + rounding_distance(plan)
    return sine * noise_multiplier((1 - TEST_SHARE) * epsilon, delta / 2)
