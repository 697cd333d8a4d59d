"""Stability histograms: noise on the bins that are not empty, silence about the small ones."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from eigenveil.accounting import ATTO, MICRO
from eigenveil.asks import Additive
from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.ints import IntArray, frozen
from eigenveil.noise import Block, NoiseSource, NoiseSpec, root_of
from eigenveil.query import Query
from eigenveil.study import Study
from eigenveil.trusted.outcome import Outcome


def scale_and_threshold(l1: int, appearing: int, micro_rho: int, atto_delta: int) -> tuple[float, int]:
    """Laplace scale b = l1 / epsilon, and the least count that is spoken of.

    A person can turn `appearing` bins from empty to counted, each from 0 to at most l1 / appearing. Such a
    bin is spoken of only if its count plus noise reaches the threshold t: discrete Laplace noise reaches x
    with probability exp(-x / b) / (1 + exp(-1 / b)), so x = t - most >= b ln(appearing / delta) is
    enough [P11].
    """
    scale = root_of(Fraction(l1**2 * MICRO, 2 * micro_rho))
    delta = atto_delta / ATTO / appearing
    most = -(-l1 // appearing)
    return scale, most + math.ceil(scale * -math.log(delta) * (1 + 2.0**-40)) + 1


def release(query: Query, total: IntArray, study: Study, noise: NoiseSource) -> Outcome:
    """Noised counts of the bins that reach the threshold, 0 for all others.

    Shape: total (bins,).
    Neighbours: as the study says.
    Sensitivity: ask.l1; one bin can appear for each person's record.
    Privacy: [P11].
    Cost: epsilon = sqrt(2 rho), and query.atto_delta.
    """
    if not isinstance(query.ask, Additive) or query.ask.bound() != 1:
        raise InternalError(Code.BUG, "a stability histogram is made of counts")
    if query.atto_delta < 1:
        raise RequestError(Code.BAD_STUDY, "a stability histogram needs a delta of its own")
    sites = study.max_sites_per_person
    l1 = query.ask.l1(study.neighbours) * sites
    scale, threshold = scale_and_threshold(l1, l1, query.micro_rho, query.atto_delta)
    spec = NoiseSpec(blocks=(Block(count=total.size, scale=scale, law=query.law),))
    noised = total + noise.draw(spec)
    return Outcome(values=frozen(np.where((total > 0) & (noised >= threshold), noised, 0)), sigma=spec.sigma)
