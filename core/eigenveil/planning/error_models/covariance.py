"""The error of the covariance family, from a plan's public numbers and an assumed spectrum.

What is predicted is the sine of the largest principal angle to the records' own components. It has two
causes, both to first order: noise, and what clipping bends (shortened records weigh less in the noised sum
than in the records' own). The clip radius is the one that the study's rule finds on the assumed records.
"""

from __future__ import annotations

import numpy as np

from eigenveil.algorithms.covariance.frobenius import entry_noise
from eigenveil.algorithms.covariance.noised_gram import Clip, noise_ratio, prepared
from eigenveil.algorithms.shared.preparation import price
from eigenveil.numerics.encoding import FloatArray
from eigenveil.planning.error_models.eigengaps import Assumed, bent
from eigenveil.planning.error_models.noiseless import imagine
from eigenveil.planning.error_models.rotation import PredictedError, error
from eigenveil.planning.error_models.spectrum import AssumedSpectrum
from eigenveil.protocol.plan import Plan
from eigenveil.study.grid import S


def of_matrix(
    plan: Plan, guess: AssumedSpectrum, *, share: float = 1.0, flat: bool = False
) -> PredictedError:
    """One noised Gram matrix at `share` of what is left after the radius; `flat`, sqrt 2 louder off the
    diagonal."""
    clip, assumed = clipped(plan, guess, noise_ratio(plan, flat=flat))
    return turned(plan, assumed, clip.radius, price(plan, clip.left * share), flat=flat)


def clipped(plan: Plan, guess: AssumedSpectrum, ratio: float) -> tuple[Clip, Assumed]:
    """The radius for one Gram matrix of that `noise_ratio`, and what is assumed of the records counted."""
    start, clip = imagine(plan, prepared(plan, ratio), guess.lengths * S)
    return clip, Assumed(guess=guess, k=plan.study.components, records=start.records)


def sensitivity(plan: Plan) -> int:
    """Of a sum of vectors of norm 1."""
    return plan.study.neighbours.records * plan.study.max_sites_per_person


def shortened(guess: AssumedSpectrum, radius: int) -> FloatArray:
    """How much of its square a point keeps that is clipped to a radius in grid units. Shape: (N,)."""
    return np.asarray(np.minimum(1.0, radius / S / np.maximum(guess.lengths, 1e-300)) ** 2)


def seen(assumed: Assumed, kept: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Variances of the clipped points along each i, and gaps to each j. Shape: (m,), (r, m, g)."""
    own = (kept[:, None] * assumed.squares).mean(axis=0)
    other = (kept[:, None] * assumed.squares_beyond).mean(axis=0)
    return own, assumed.opened(own[:, None] - other, kept)


def turned(
    plan: Plan, assumed: Assumed, radius: int, micro_rho: int, *, flat: bool = False
) -> PredictedError:
    """The error of a matrix's leading directions: symmetric noise over gaps. `radius` in grid units."""
    kept = shortened(assumed.guess, radius)
    _, gaps = seen(assumed, kept)
    noise = entry_noise(plan, micro_rho) * (radius / S) ** 2 / assumed.records
    noise *= noise_ratio(plan, flat=flat) / noise_ratio(plan)
    return error(noise**2 / gaps**2 + bent(assumed, kept, gaps), assumed.beyond.counts)
