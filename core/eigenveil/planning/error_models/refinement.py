"""The error of refined-cov and refined-pca: a first stage, then what the last stage leaves of its error.

The last stage itself runs, without noise, on assumed records whose directions are right already: how well it
then says that it knows an entry of the cross covariance is what a noised one would be off by. A first stage
that is far off is not mended in full; how much is left of it was fitted.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from eigenveil.algorithms.covariance import refined_cov as matrix
from eigenveil.algorithms.covariance.frobenius import entry_noise
from eigenveil.algorithms.gradient import refined_pca as gradients
from eigenveil.algorithms.gradient.dp_pca import read_variances
from eigenveil.algorithms.shared.cross_query import Cross, part_unit
from eigenveil.algorithms.shared.preparation import COUNT_SHARE, Centred, locate, price
from eigenveil.algorithms.shared.refinement import SPARE, Aligned, question, reach, refined, steps_for
from eigenveil.numerics.encoding import FloatArray
from eigenveil.planning.error_models.covariance import of_matrix
from eigenveil.planning.error_models.eigengaps import Assumed, bent
from eigenveil.planning.error_models.noiseless import imagine, located
from eigenveil.planning.error_models.power_iteration import Pulls, averaged, dp_pca
from eigenveil.planning.error_models.rotation import PredictedError, error
from eigenveil.planning.error_models.spectrum import AssumedSpectrum
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import PricedQuery
from eigenveil.queries import CrossCovariance
from eigenveil.queries.limits import DIRECTION_LIMIT, WEIGHT
from eigenveil.study.grid import S

# What is left of a first stage's error b goes as its square, as after a step of Newton's method; far off, as
# nothing: of (b / (1 + b))^2. Where variances are noisy, directions turn too far or too little, by that much
# of a gap. Fitted to about 100 simulations of random studies.
ONE, SEVERAL, GRADIENTS = 1.25, 1.5, 0.8
MISREAD = 0.8


def refined_cov(plan: Plan, guess: AssumedSpectrum) -> PredictedError:
    """One noised matrix at its share, then its directions turned."""
    k = plan.study.components
    if k == plan.study.dimension:  # the algorithm is gauss-cov then
        return of_matrix(plan, guess)
    start = imagine(plan, locate(plan, matrix.PREPARED), guess.lengths * S)
    share = matrix.matrix_share(plan, start)
    clip = matrix.matrix_clip(plan, start, share)
    sd = entry_noise(plan, price(plan, clip.left * share)) / clip.unit(start.records) * clip.radius**2
    held = guess.values[: k + SPARE]
    first = matrix.on_axes(np.eye(plan.study.dimension, held.size), held, k, math.sqrt(2) * sd)
    rest = guess.values[held.size :]
    if rest.size:
        first = replace(first, level=max(first.level, float(rest.mean())))
    assumed = Assumed(guess=guess, k=k, records=start.records)
    before = error(np.asarray(sd**2 / assumed.gaps**2), assumed.beyond.counts).raw
    found = _turned(plan, assumed, start, first, clip.left * (1 - share), before)
    return left_over(found, (SEVERAL if k > 1 else ONE) * (before / (1 + before)) ** 2)


def refined_pca(plan: Plan, guess: AssumedSpectrum) -> PredictedError:
    """A short noisy power iteration, then its directions turned."""
    k = plan.study.components
    if k == plan.study.dimension:  # the algorithm is dp-pca then
        return dp_pca(plan, guess)
    start = located(plan, guess)
    times, left = gradients.schedule(plan, start, 1 - COUNT_SHARE - start.mean_share)
    before = averaged(plan, guess, start, times).raw
    basis = np.eye(plan.study.dimension, times.directions)
    assumed = Assumed(guess=guess, k=k, records=start.records)
    norms = Pulls(assumed, times.directions, pulled=False, scaled=False).norms * S**2 * (DIRECTION_LIMIT / 2)
    _, _, scale = imagine(plan, read_variances(plan, start, basis), norms)
    first = gradients.on_axes(basis, guess.values[: times.directions], k, float(guess.values.sum()), scale)
    found = _turned(plan, assumed, start, first, left, before)
    misread = min(1.0, MISREAD * scale / float(np.median(assumed.gaps[:, -1, 0])))
    return left_over(found, math.hypot(GRADIENTS * (before / (1 + before)) ** 2, min(1.0, before) * misread))


def left_over(found: PredictedError, left: float) -> PredictedError:
    """With what is left of the error of the first stage."""
    low, median, high, raw = (
        math.hypot(part, left) for part in (found.low, found.median, found.high, found.raw)
    )
    return PredictedError(low=min(1.0, low), median=min(1.0, median), high=min(1.0, high), raw=raw)


def _turned(
    plan: Plan, assumed: Assumed, start: Centred, first: Aligned, share: float, sine: float
) -> PredictedError:
    """What the last stage knows of each entry, over the gap."""
    cross = question(start, first)
    norms = _parts(assumed, cross)
    asked: list[PricedQuery] = []
    grid_unit = part_unit(cross.norms(reach(start)).spec.shift)
    found = imagine(plan, refined(plan, start, first, share, steps_for(sine)), norms * grid_unit, asked)
    query = asked[-1].query
    assert isinstance(query, CrossCovariance)
    kept = np.minimum(1.0, query.radius / part_unit(query.spec.shift) / np.maximum(norms, 1e-300))
    kept = kept * (norms.sum() / (kept * norms).sum())
    counts = assumed.beyond.counts
    before = (np.cumsum(counts) - counts).astype(int)  # directions outside that come before a group
    known = found.sd[assumed.first :][:, np.minimum(before, found.sd.shape[1] - 1)]
    return error(known**2 / assumed.gaps**2 + bent(assumed, kept, assumed.gaps), counts)


def _parts(assumed: Assumed, cross: Cross) -> FloatArray:
    """|a| |b| of the points, as weighed. Shape: (N,)."""
    guess, k = assumed.guess, cross.k
    squares = assumed.squared(0, guess.values[: cross.basis.shape[1]])
    lead = squares[:, :k] @ (cross.weights.leading / WEIGHT) ** 2
    spare = squares[:, k:] @ (cross.weights.spare / WEIGHT) ** 2
    outside = np.maximum(guess.lengths**2 - squares.sum(axis=1), 0.0)
    return np.asarray(np.sqrt(lead * (spare + outside)))
