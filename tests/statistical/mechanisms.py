"""Mechanisms that add noise to a sum, each with the pair of data sets that tells most about it.

Sites compute the sums, `mechanism.apply_mechanism` releases them; only the noise comes in bulk."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eigenveil import queries as q
from eigenveil.accounting.zcdp import ATTO, MICRO, Neighbours
from eigenveil.mechanisms import apply_mechanism, data_independent_noise
from eigenveil.noise.source import NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.protocol.query import NoiseDistribution, RoundQuery
from eigenveil.site.site import Site
from eigenveil.study.study import Study
from tests.core.queries.kinds import AUDITED, Pair
from tests.statistical.audit import Approximate, Attack, Claim, Gaussian, Mechanism
from tests.statistical.noises import computed_once
from tests.support import a_query, a_study

LEVEL = 2.0  # the claim: mu = 2 of Gaussian noise, epsilon = 2 of a pure mechanism; both cost rho = 2
COST = int(LEVEL**2 / 2 * MICRO)
DELTA = 0.01  # large, so that what happens that seldom is seen often enough
OF_ITS_OWN = int(DELTA * ATTO)


def at_cost(
    query: q.Query,
    distribution: NoiseDistribution = NoiseDistribution.GAUSSIAN,
    atto_delta: int = 0,
    round: int = 0,
) -> RoundQuery:
    """A query at the price of all audits."""
    return a_query(query, micro_rho=COST, atto_delta=atto_delta, distribution=distribution, round=round)


def study_of(neighbours: Neighbours, d: int = 2) -> Study:
    return a_study(d=d, sites=("north",), neighbours=neighbours)


def released(round_query: RoundQuery, total: IntArray, study: Study, noise: NoiseSource, m: int) -> IntArray:
    """m independent releases of one sum, one by one. Shape: (m, integers of a release)."""
    present = study.federation.sites
    with computed_once():
        values = [apply_mechanism(round_query.priced, total, study, noise, present).values for _ in range(m)]
    return np.concatenate(values).reshape(m, -1)


class Stacked:
    """Noise of m releases at once: code that adds it to m sums cannot tell, and is called once."""

    private = False

    def __init__(self, noise: NoiseSource, m: int) -> None:
        self._noise, self._m = noise, m

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Shape: (m, spec.length)."""
        blocks = [replace(block, count=self._m * block.count) for block in spec.blocks]
        drawn = [self._noise.draw(NoiseSpec(blocks=(block,))).reshape(self._m, -1) for block in blocks]
        return np.hstack(drawn)

    def uniform(self, count: int) -> FloatArray:
        """Not asked for where noise is added."""
        raise NotImplementedError


def at_once(round_query: RoundQuery, total: IntArray, study: Study, noise: NoiseSource, m: int) -> IntArray:
    """The same of a mechanism that adds noise and looks at every number by itself."""
    return apply_mechanism(round_query.priced, np.tile(total, (m, 1)), study, Stacked(noise, m)).values


def score(moved: IntArray, change: IntArray, spec: NoiseSpec) -> FloatArray:
    """The logarithm of the likelihood ratio, up to a constant: nothing tells more.

    Shape: moved (m, length), what was released less the sum without the record; change (length,)."""
    total, start = np.zeros(len(moved)), 0
    for block in spec.blocks:
        part = slice(start, start + block.count)
        y, by = moved[:, part], change[part]
        if block.distribution is NoiseDistribution.GAUSSIAN:
            total += (y @ by.astype(np.float64)) / block.scale**2
        else:
            total += (np.abs(y) - np.abs(y - by)).sum(axis=1) / block.scale
        start += block.count
    return total


def added(round_query: RoundQuery, study: Study, without: IntArray, with_it: IntArray) -> Attack:
    """Noise on a sum, tested by its likelihood ratio."""
    spec = data_independent_noise(round_query.priced, study)
    assert spec is not None

    def attack(noise: NoiseSource, m: int) -> tuple[FloatArray, FloatArray]:
        """Shape: (m,) each."""
        both = (at_once(round_query, total, study, noise, m) for total in (without, with_it))
        low, high = (score(values - without, with_it - without, spec) for values in both)
        return low, high

    return attack


def of(pair: Pair) -> Mechanism:
    """One query about whole data sets."""
    study = replace(study_of(pair.neighbours, pair.data[0].shape[1]), max_sites_per_person=pair.sites)
    without, with_it = (Site(part).answer(pair.query) for part in pair.data)
    gaussian = pair.distribution is NoiseDistribution.GAUSSIAN
    claim: Claim = Gaussian(mu=LEVEL) if gaussian else Approximate(epsilon=LEVEL)
    moved = without + pair.sites * (with_it - without)
    attack = added(at_cost(pair.query, pair.distribution), study, without, moved)
    return Mechanism(name=pair.name, kind=q.NAMES[type(pair.query)], claim=claim, attack=attack, tight=0.95)


ADDITIVE: list[Mechanism] = [of(pair) for pair in AUDITED]
