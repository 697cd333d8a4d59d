"""Stability histograms: noise on the bins that are not empty, small ones suppressed.

Noise of one local randomiser in the shuffle model."""

from __future__ import annotations

import math

import numpy as np

from eigenveil.accounting.amplification import local_micro_rho
from eigenveil.accounting.zcdp import ATTO, Neighbours, mu, scale_of
from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.mechanisms.result import MechanismResult, noised, required_delta
from eigenveil.noise.source import NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.protocol.query import PricedQuery
from eigenveil.queries import AdditiveQuery, CoordinateHistograms, ShuffledRecord
from eigenveil.study.study import Study


def scale_and_threshold(l1: int, micro_rho: int, atto_delta: int, histograms: int = 1) -> tuple[float, int]:
    """Return the Laplace scale b = l1 / epsilon and the least released count.

    A person changes counts by l1 in total, so counts m_1, m_2, ... in empty bins have a sum of at most l1.
    Discrete Laplace noise reaches x with probability exp(-x / b) / (1 + exp(-1 / b)), so one of them reaches
    the threshold t with probability below sum_i exp((m_i - t) / b). As the logarithm of exp(m / b) / m is
    convex in m, the worst is l1 bins of 1 or one bin of l1; t is enough for both [P11].

    The same change spread evenly over several `histograms` costs each epsilon_j^2 / 2 with
    epsilon_j = l1 / (histograms b), which add up to rho at b = l1 / (epsilon sqrt(histograms)) [P23]."""
    scale = scale_of(l1**2, micro_rho * histograms)
    # Delta is at most 1 / (2 b): then the suppression of a bin costs less than the epsilon that the new count
    # did not use.
    delta = min(atto_delta / ATTO, 1 / (2 * scale))
    suppression_margin = scale * -math.log(delta) * (1 + 2.0**-40)
    many = 1 + suppression_margin + scale * math.log(l1) * (1 + 2.0**-40)
    return scale, math.ceil(max(many, l1 + suppression_margin)) + 1


def stability_noise_spec(priced: PricedQuery, study: Study) -> tuple[NoiseSpec, int]:
    """Return the noise of a stability histogram, drawn before the sum is known, and its threshold.

    Raises:
        InternalError: the query does not count.
        RequestError: the query has no delta."""
    if not isinstance(priced.query, AdditiveQuery) or priced.query.bound != 1:
        raise InternalError(Code.BUG, "a stability histogram needs a query of counts")
    required_delta(priced, "a stability histogram")
    l1 = priced.query.l1(study.neighbours) * study.max_sites_per_person
    histograms = priced.query.histograms if isinstance(priced.query, CoordinateHistograms) else 1
    scale, threshold = scale_and_threshold(l1, priced.micro_rho, priced.atto_delta, histograms)
    return NoiseSpec.of(priced.query.length, scale, priced.distribution), threshold


def release_stability_histogram(
    priced: PricedQuery, total: IntArray, study: Study, noise: NoiseSource
) -> MechanismResult:
    """Release the noised counts of the bins that reach the threshold, 0 for all others.

    Shape: total (bins,).
    Sensitivity: query.l1, at each of a person's sites.
    Privacy: [P11]; [P23] for many histograms at once.
    Cost: epsilon = sqrt(2 rho), and priced.atto_delta."""
    spec, threshold = stability_noise_spec(priced, study)
    counts, sigma = noised(total, spec, noise)
    return MechanismResult(frozen(np.where((total > 0) & (counts >= threshold), counts, 0)), sigma)


def shuffled_noise_spec(priced: PricedQuery, query: ShuffledRecord, study: Study) -> NoiseSpec:
    """Return the Gaussian noise for one record. Raises RequestError: the study's neighbours are not
    replace-one, or too few records for amplification."""
    if study.neighbours is not Neighbours.REPLACE_ONE:
        raise RequestError(
            Code.BAD_STUDY, 'a secret order needs neighbours = "replace-one"; set it in the study'
        )
    local = local_micro_rho(mu(priced.micro_rho), priced.atto_delta / ATTO, query.batch.batches)
    return NoiseSpec.of(query.released_length, scale_of(query.diameter_squared(), local))


def release_shuffled_record(
    priced: PricedQuery, query: ShuffledRecord, total: IntArray, study: Study, noise: NoiseSource
) -> MechanismResult:
    """Release the gradient plus noise.

    Shape: total (d k,).
    Neighbours: replace-one.
    Sensitivity: `ShuffledRecord.diameter_squared`.
    Privacy: [P24].
    Cost: epsilon = sqrt(2 rho) and priced.atto_delta, charged once for all records of the pass."""
    return noised(total, shuffled_noise_spec(priced, query, study), noise)
