"""Mechanisms that add noise to a sum, each with the pair of data sets that tells most about it.

Sites compute the sums, `mechanism.apply_mechanism` releases them; only the noise comes in bulk."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eigenveil import queries as q
from eigenveil.accounting.zcdp import ATTO, MICRO, Neighbours
from eigenveil.mechanisms import apply_mechanism, data_independent_noise
from eigenveil.noise.source import NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.protocol.query import NoiseDistribution, RoundQuery
from eigenveil.queries.papers.fingerprints import Subsamples
from eigenveil.site.site import Site
from eigenveil.study.grid import GridRows, S
from eigenveil.study.study import Study
from tests.statistical.audit import Approximate, Attack, Claim, Gaussian, Mechanism
from tests.statistical.noises import computed_once
from tests.support import a_query, a_study

LEVEL = 2.0  # the claim: mu = 2 of Gaussian noise, epsilon = 2 of a pure mechanism; both cost rho = 2
COST = int(LEVEL**2 / 2 * MICRO)
DELTA = 0.01  # large, so that what happens that seldom is seen often enough
OF_ITS_OWN = int(DELTA * ATTO)
ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE
ZERO = frozen([0, 0])


def rows(*records: list[int]) -> GridRows:
    """Records on the grid. Shape: (n, d)."""
    return np.array(records, dtype=np.int16)


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


def of(
    name: str,
    kind: str,
    query: q.AdditiveQuery,
    neighbours: Neighbours,
    data: tuple[GridRows, GridRows],
    distribution: NoiseDistribution = NoiseDistribution.GAUSSIAN,
    sites: int = 1,
) -> Mechanism:
    """One query about whole data sets; at `sites` sites the same happens at each."""
    study = replace(study_of(neighbours, data[0].shape[1]), max_sites_per_person=sites)
    without, with_it = (Site(part).answer(query) for part in data)
    claim: Claim = (
        Gaussian(mu=LEVEL) if distribution is NoiseDistribution.GAUSSIAN else Approximate(epsilon=LEVEL)
    )
    attack = added(at_cost(query, distribution), study, without, without + sites * (with_it - without))
    return Mechanism(name=name, kind=kind, claim=claim, attack=attack, tight=0.95)


def field_of(d: int, k: int = 1) -> q.GradientSpec:
    """g(z) = FINE z (z_1, ..., z_k)."""
    directions = np.zeros((d, k), dtype=np.int64)
    directions[np.arange(k), np.arange(k)] = 2**20
    return q.GradientSpec(
        centre=frozen([0] * d), directions=directions, offset=np.zeros_like(directions), shift=10
    )


def moves(data: GridRows, record: list[int]) -> tuple[GridRows, GridRows]:
    """Data without a record and with it."""
    return data, np.concatenate([data, rows(record)])


def turns(one: list[int], other: list[int]) -> tuple[GridRows, GridRows]:
    """A record of three that is replaced."""
    return rows([5, 6], [-7, 1], one), rows([5, 6], [-7, 1], other)


FEW = rows([5, 6], [-7, 1])
FINE = 2**10
LAPLACE = NoiseDistribution.LAPLACE
# A count's noise is so coarse at this price that its law on the integers is no longer nearly mu-GDP (see
# test_mu_audits), so persons who count are at many sites.
MANY = 50

SUM = q.ClippedSum(centre=ZERO, radius=S)
GRAM = q.Gram(centre=ZERO, radius=4000)
NORMS = q.RowNorms(centre=ZERO, edges=frozen([100, 1000]))
ENERGY = q.SquaredNormSum(centre=ZERO, radius=S)
GRADIENT = q.Gradient(spec=field_of(2), radius=4001 * 10 * FINE)
GRADIENTS = q.Gradient(spec=field_of(2, 2), radius=300**2 * FINE)
GRADIENT_NORMS = q.GradientNorms(spec=field_of(2), edges=frozen([2**40]))
BOXED = q.CoordinateClippedSum(spec=field_of(2), middles=frozen([5 * FINE, 0]), halves=frozen([3000, 4000]))
RANKS = q.BlockRanks(subsamples=Subsamples(centre=ZERO, rank=1, count=3, key=frozen([1, 2, 3, 4])))
BESIDE = q.CrossSpec(  # a = z_1, b = (0, z_2)
    centre=ZERO, directions=frozen([[2**20], [0]]), scales=frozen([2**10]), retained=frozen([]), shift=30
)
CROSS = q.CrossCovariance(spec=BESIDE, radius=10 * 4001)
CROSS_NORMS = q.CrossNorms(spec=BESIDE, edges=frozen([2**20]))
COUNTS, MOMENTS = q.ColumnHistograms(columns=2), q.ColumnMoments(columns=2, radius=2 * S)
LONG, SHORT = [4000, 0], [500, 0]

ADDITIVE: list[Mechanism] = [
    of("count", "count", q.Count(), ADD, moves(FEW, LONG), sites=MANY),
    of("row-norms", "row-norms", NORMS, ADD, moves(FEW, LONG), sites=MANY),
    of("row-norms, replaced", "row-norms", NORMS, REPLACE, turns(SHORT, LONG), sites=MANY),
    of("clipped-sum", "clipped-sum", SUM, ADD, moves(FEW, [S, 0])),
    of("clipped-sum, replaced", "clipped-sum", SUM, REPLACE, turns([S, 0], [-S, 0])),
    of("squared-norm-sum", "squared-norm-sum", ENERGY, ADD, moves(FEW, [S, S])),
    of("gram", "gram", GRAM, ADD, moves(FEW, [2400, 3200])),
    of("gram, replaced", "gram", GRAM, REPLACE, turns([2400, 3200], [3200, -2400])),
    of("gram, flat", "gram", replace(GRAM, flat=True), ADD, moves(FEW, LONG)),
    of("gradient", "gradient", GRADIENT, ADD, moves(FEW, [10, 4000])),
    of("gradient, replaced", "gradient", GRADIENT, REPLACE, turns([10, 4000], [10, -4000])),
    of("gradient, k = 2", "gradient", GRADIENTS, ADD, moves(FEW, [0, 300])),
    of("gradient-norms", "gradient-norms", GRADIENT_NORMS, ADD, moves(FEW, LONG), sites=MANY),
    of("cross-covariance", "cross-covariance", CROSS, ADD, moves(FEW, [4000, 10])),
    of("cross-covariance, replaced", "cross-covariance", CROSS, REPLACE, turns([4000, 10], [-4000, 10])),
    of("cross-norms", "cross-norms", CROSS_NORMS, ADD, moves(FEW, [4000, 300]), sites=MANY),
    of("column-histograms", "column-histograms", COUNTS, ADD, moves(FEW, [4000, 4000]), sites=MANY),
    of("columns, replaced", "column-histograms", COUNTS, REPLACE, turns([500] * 2, [4000] * 2), sites=MANY),
    of("column-moments", "column-moments", MOMENTS, ADD, moves(FEW, [S, S])),
    of("coordinate-clipped-sum", "coordinate-clipped-sum", BOXED, ADD, moves(FEW, [100, 100])),
    of("boxed, replaced", "coordinate-clipped-sum", BOXED, REPLACE, turns([1, -100], [100, 100])),
    of("count, laplace", "count", q.Count(), ADD, moves(FEW, LONG), LAPLACE),
    of("row-norms, replaced, laplace", "row-norms", NORMS, REPLACE, turns(SHORT, LONG), LAPLACE),
    of("clipped-sum, laplace", "clipped-sum", SUM, ADD, moves(FEW, [2896, 2896]), LAPLACE),
    of("energy, laplace", "squared-norm-sum", ENERGY, ADD, moves(FEW, [S, S]), LAPLACE),
    of("gram, laplace", "gram", GRAM, ADD, moves(FEW, [2828, 2828]), LAPLACE),
    of("block-ranks, laplace", "block-ranks", RANKS, ADD, moves(rows([0, 0]), LONG), LAPLACE),
]
