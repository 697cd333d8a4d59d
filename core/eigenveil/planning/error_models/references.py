"""The error of the references: what runs behind the barrier, by batches of the records, or not at all."""

from __future__ import annotations

import math

import numpy as np

from eigenveil.accounting.zcdp import mu
from eigenveil.algorithms.covariance.adaptive_cov import adaptive_cov as run_adaptive
from eigenveil.algorithms.gradient.dp_pca import VARIANCE_SHARE
from eigenveil.algorithms.gradient.dp_pca_single_pass import records_needed
from eigenveil.algorithms.gradient.private_oja import gradient_radius, radius_batches
from eigenveil.algorithms.shared.gradient_query import Slope
from eigenveil.algorithms.shared.passes import Pass
from eigenveil.algorithms.shared.preparation import COUNT_SHARE, drawn_mu, part, price
from eigenveil.algorithms.shared.step_sizes import CANDIDATES
from eigenveil.numerics.encoding import FloatArray
from eigenveil.planning.error_models.covariance import clipped, seen, sensitivity, shortened, turned
from eigenveil.planning.error_models.eigengaps import Assumed, bent
from eigenveil.planning.error_models.noiseless import imagine, located
from eigenveil.planning.error_models.power_iteration import Pulls
from eigenveil.planning.error_models.rotation import NOISE, PredictedError, error
from eigenveil.planning.error_models.spectrum import AssumedSpectrum
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import PricedQuery
from eigenveil.queries import Gram
from eigenveil.study.grid import S

NONE = 1e-12  # an eigenvalue of this part of another is none at all
NEAR = 1e-5  # and of this, too large for subsamples to agree


def adaptive_cov(plan: Plan, guess: AssumedSpectrum) -> PredictedError:
    """The matrix it comes to on the assumed records, whichever of the two methods it takes."""
    asked: list[PricedQuery] = []
    imagine(plan, run_adaptive(plan), guess.lengths * S, asked)
    radius, micro_rho = [(one.query.radius, one.micro_rho) for one in asked if isinstance(one.query, Gram)][
        -1
    ]
    assumed = Assumed(guess=guess, k=plan.study.components, records=float(plan.study.expected_records))
    return turned(plan, assumed, radius, micro_rho)


def em_cov(plan: Plan, guess: AssumedSpectrum) -> PredictedError:
    """A sampled direction leans towards j by 1 / (2 t gap) in mean square, t being what epsilon allows."""
    k, d = plan.study.components, plan.study.dimension
    clip, assumed = clipped(plan, guess, math.sqrt(d) * k / 4)
    kept = shortened(guess, clip.radius)
    _, gaps = seen(assumed, kept)
    epsilon = mu(price(plan, clip.left / 2)) / max(1, min(k, d - 1))
    moved = sensitivity(plan) * (clip.radius / S) ** 2
    return error(
        moved / (2 * epsilon * assumed.records * gaps) + bent(assumed, kept, gaps), assumed.beyond.counts
    )


def private_oja(plan: Plan, guess: AssumedSpectrum) -> PredictedError:
    """Leans step by step: each step shrinks what is there and adds the noise of its batch of the records.

    A batch is also a sample of its own: its components are not those of all records.
    """
    start, k = located(plan, guess), plan.study.components
    assumed = Assumed(guess=guess, k=k, records=start.records)
    left = 1 - COUNT_SHARE - start.mean_share - VARIANCE_SHARE
    once = Pass(plan=plan, first=0, micro_rho=part(plan.micro_rho, left))
    steps = once.size - len(radius_batches(once.size))
    if steps < 1:  # the only batch is spent on the radius: the directions stay where they began
        return NOISE
    pulls = Pulls(assumed, k, pulled=False, scaled=False)
    axes = np.eye(plan.study.dimension, k)
    slope = Slope(centre=start.centre, directions=axes, offset=np.zeros_like(axes))
    radius = imagine(
        plan, gradient_radius(plan, start, once, slope, math.nan), pulls.norms * S**2 * slope.fine
    )
    kept = pulls.kept(radius)
    own, gaps = pulls.response(kept)
    each = start.records / once.size
    noise = sensitivity(plan) * radius / (drawn_mu(plan, once.micro_rho) * each) / own[:, None]
    sampled = assumed.product(kept**2) / each / own[:, None] ** 2
    variances, started = _stepped(noise**2, sampled, gaps / own[:, None], steps)
    return error(variances + bent(assumed, kept, gaps), assumed.beyond.counts, started)


def _stepped(
    noise: FloatArray, sampled: FloatArray, gaps: FloatArray, steps: int
) -> tuple[FloatArray, FloatArray]:
    """Variance of a lean after all steps, and the square of what is left of one at the start.

    The part of the samples' variance that the records' own components have as well does not count. Shape: all
    (r, m, g), relative to the strength of the direction.
    """
    rate, started, shared = CANDIDATES[0], np.ones_like(gaps), np.zeros_like(gaps)
    variances, weights = np.zeros_like(gaps), np.zeros_like(gaps)
    for t in range(steps):
        length = rate.step(t, 1.0)
        shrink = (1 + length * (1 - gaps)) / (1 + length)
        gain = length / (1 + length)
        started, variances = started * shrink**2, variances * shrink**2 + gain**2 * noise
        weights, shared = weights * shrink**2 + gain**2, shared * shrink + gain
    # The records' own lean weighs each of `steps` batches by 1 / (gap steps).
    own = np.maximum(weights - 2 * shared / (gaps * steps) + 1 / (gaps**2 * steps), 0.0)
    return variances + own * sampled, started


def dp_pca_single_pass(plan: Plan, guess: AssumedSpectrum) -> PredictedError | None:
    """It says itself how many records it needs; beyond that, no law was fitted."""
    return NOISE if plan.study.expected_records < records_needed(plan) else None


def subspace(plan: Plan, guess: AssumedSpectrum, *, most: float) -> PredictedError | None:
    """Exact, or nearly so, where lambda_{k+1} is at most that part of lambda_k; nothing where it is more."""
    k = plan.study.components
    beyond = float(guess.values[k] / guess.values[k - 1]) if k < len(guess.values) else 0.0
    return NOISE if beyond > most else None
