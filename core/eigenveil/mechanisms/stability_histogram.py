"""Stability histograms: noise on the bins that are not empty, silence about the small ones."""

from __future__ import annotations

import math

import numpy as np

from eigenveil.accounting.zcdp import ATTO, scale_of
from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.mechanisms.outcome import Outcome
from eigenveil.noise.source import Block, NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import IntArray, added, frozen
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import Additive, Coordinates
from eigenveil.study.study import Study


def scale_and_threshold(l1: int, micro_rho: int, atto_delta: int, histograms: int = 1) -> tuple[float, int]:
    """Laplace scale b = l1 / epsilon, and the least count that is spoken of.

    A person moves counts by l1 in all, and so fills empty bins with counts m_1, m_2, ... of sum at most l1.
    Discrete Laplace noise reaches x with probability exp(-x / b) / (1 + exp(-1 / b)), so one of them reaches
    the threshold t with probability below sum_i exp((m_i - t) / b). As the logarithm of exp(m / b) / m is
    convex in m, the worst is l1 bins of 1 or one bin of l1; t is enough for both [P11].

    The same change spread evenly over several `histograms` costs each epsilon_j^2 / 2 with
    epsilon_j = l1 / (histograms b), which add up to rho at b = l1 / (epsilon sqrt(histograms)) [P23].
    """
    scale = scale_of(l1**2, micro_rho * histograms)
    # As delta, at most 1 / (2 b) is used: then a bin that falls silent costs less than the epsilon that the
    # count which appeared did not use.
    delta = min(atto_delta / ATTO, 1 / (2 * scale))
    silent = scale * -math.log(delta) * (1 + 2.0**-40)
    many = 1 + silent + scale * math.log(l1) * (1 + 2.0**-40)
    return scale, math.ceil(max(many, l1 + silent)) + 1


def noise_of(asked: RoundQuery, study: Study) -> tuple[NoiseSpec, int]:
    """The noise of a stability histogram, public and so drawn ahead, and its threshold.

    Raises:
        InternalError: the question is not made of counts.
        RequestError: it has no delta of its own.
    """
    if not isinstance(asked.query, Additive) or asked.query.bound != 1:
        raise InternalError(Code.BUG, "a stability histogram is made of counts")
    if asked.atto_delta < 1:
        raise RequestError(Code.BAD_STUDY, "a stability histogram needs a delta of its own")
    l1 = asked.query.l1(study.neighbours) * study.max_sites_per_person
    histograms = asked.query.histograms if isinstance(asked.query, Coordinates) else 1
    scale, threshold = scale_and_threshold(l1, asked.micro_rho, asked.atto_delta, histograms)
    return NoiseSpec(blocks=(Block(count=asked.query.length, scale=scale, law=asked.law),)), threshold


def release(asked: RoundQuery, total: IntArray, study: Study, noise: NoiseSource) -> Outcome:
    """Noised counts of the bins that reach the threshold, 0 for all others.

    Shape: total (bins,).
    Neighbours: as the study says.
    Sensitivity: query.l1, at every site that a person may be at.
    Privacy: [P11]; [P23] for many histograms at once.
    Cost: epsilon = sqrt(2 rho), and asked.atto_delta.
    """
    spec, threshold = noise_of(asked, study)
    noised = added(total, noise.draw(spec))
    return Outcome(values=frozen(np.where((total > 0) & (noised >= threshold), noised, 0)), sigma=spec.sigma)
