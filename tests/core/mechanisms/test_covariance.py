"""[P10] [P12] [P13] What one person can change of what the covariance family reads off exact sums.

Record and replay over `records.hostile_rows`: at least 10,000 neighbour pairs for each statistic and
relation, none beyond the declared bound, one within 3 % of it, and a planted fault that the same check
catches. The sparse vector's probabilities are computed exactly, from the discrete Laplace law."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product

import numpy as np
import pytest

from eigenveil.accounting.zcdp import MICRO, Neighbours
from eigenveil.mechanisms import apply_mechanism
from eigenveil.mechanisms.papers import covariance
from eigenveil.noise.source import NoiseSpec, OsNoise
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.numerics.linalg import symmetric
from eigenveil.protocol.query import NoiseDistribution, PricedQuery, RoundQuery
from eigenveil.queries import Eigenvectors, Gram, RadiusSearch, RowNorms, Spectrum
from eigenveil.site.site import Site
from eigenveil.study.composition import micro_rho_of
from eigenveil.study.grid import S
from tests.core.records import Case, contributions, hostile_rows
from tests.support import DIGEST, FixedNoise, a_study

PAIRS = 10_000
CLOSE = 0.97
ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE
SHAPES = list(product((1, 2, 3, 5, 8), (4000, S, 2 * S)))

Totals = tuple[IntArray, IntArray]  # of two neighbours


def a_spectrum(d: int, radius: int) -> Spectrum:
    return Spectrum(centre=frozen(np.zeros(d, dtype=np.int64)), radius=radius, records=1000)


def moves(
    query: Spectrum | RadiusSearch, neighbours: Neighbours, seed: int, n: int = 400
) -> Iterator[Totals]:
    """Exact sums of data sets that differ in one record; other records from none to many, and in order."""
    rows = hostile_rows(n, query.centre, getattr(query, "radius", S), seed)
    plain = Gram(centre=query.centre, radius=query.radius) if isinstance(query, Spectrum) else RowNorms(
        centre=query.centre, edges=query.edges
    )  # fmt: skip
    each = contributions(Case(query=plain, rows=rows)).astype(np.int64)
    bases = [each[:0].sum(axis=0), each[:1].sum(axis=0), each.sum(axis=0), steep(query) + 0 * each[0]]
    for base, record in product(bases, range(len(each) - 1)):
        if neighbours is ADD:
            yield base, base + each[record]
        else:
            yield base + each[record], base + each[record + 1]


def steep(query: Spectrum | RadiusSearch) -> IntArray:
    """A sum whose eigenvectors are the axes, far apart in length: records move their own eigenvalue."""
    if isinstance(query, RadiusSearch):
        return np.zeros(1, dtype=np.int64)
    d = query.centre.size
    z = np.arange(d, 0, -1) * 100 * query.radius**2
    return np.concatenate([z, np.zeros(query.length - d, dtype=np.int64)])


def axis_pairs(query: Spectrum) -> Iterator[Totals]:
    """A record along the first axis replaced by one along the last: the farthest the spectrum can move."""
    for first, last in ((0, query.centre.size - 1), (query.centre.size - 1, 0)):
        one, other = np.zeros(query.length, dtype=np.int64), np.zeros(query.length, dtype=np.int64)
        one[first] = other[last] = query.radius**2
        yield steep(query) + one, steep(query) + other


Moved = list[tuple[Spectrum, IntArray]]


def spectrum_moves(neighbours: Neighbours, shapes: Sequence[tuple[int, int]] = SHAPES) -> Moved:
    """Change of the eigenvalues, for each tried pair."""
    found: Moved = []
    for seed, (d, radius) in enumerate(shapes):
        query = a_spectrum(d, radius)
        values = cache(lambda sums, query=query: covariance.rounded_eigenvalues(query, frozen(sums)))
        pairs = [*moves(query, neighbours, seed, 180), *(axis_pairs(query) if neighbours is REPLACE else ())]
        found += [(query, values(tuple(one)) - values(tuple(other))) for one, other in pairs]
    return found


def spectrum_ratio(moved: Moved, norm: int, bound: Callable[[Spectrum], int]) -> float:
    """The largest move over the declared bound."""
    return max(float(np.linalg.norm(move, norm)) / bound(query) for query, move in moved)


@pytest.mark.parametrize("neighbours", Neighbours)
def test_eigenvalues_move_no_further_than_declared_and_that_far(neighbours: Neighbours) -> None:
    moved = spectrum_moves(neighbours)
    assert len(moved) >= PAIRS
    for norm, bound in ((2, covariance.l2_bound), (1, covariance.l1_bound)):
        assert CLOSE <= spectrum_ratio(moved, norm, lambda query, b=bound: b(query, neighbours, 1)) <= 1  # type: ignore[misc]


def search(d: int = 3) -> RadiusSearch:
    edges = frozen([1, 2, 500, 4000, S, S + 1, 2 * S])
    return RadiusSearch(centre=frozen(np.zeros(d, dtype=np.int64)), edges=edges, limits=edges * 0 + 3)


def search_moves(neighbours: Neighbours, counts: Callable[[IntArray], IntArray]) -> list[IntArray]:
    pairs = [pair for d in range(1, 9) for pair in moves(search(d), neighbours, d)]
    return [counts(other) - counts(one) for one, other in pairs]


@pytest.mark.parametrize("neighbours", Neighbours)
def test_counts_beyond_the_edges_move_by_one_and_all_the_same_way(neighbours: Neighbours) -> None:
    found = search_moves(neighbours, covariance.counts_beyond)
    assert len(found) >= PAIRS
    assert max(int(np.abs(moved).max()) for moved in found) == 1
    assert all((moved >= 0).all() or (moved <= 0).all() for moved in found)


# ------------------------------------------------------------------ [P12] the probabilities themselves

REACH = 400


def laplace(scale: float) -> FloatArray:
    p = np.exp(-np.abs(np.arange(-REACH, REACH + 1)) / scale)
    return p / p.sum()


def at_most(scale: float) -> Callable[[IntArray], FloatArray]:
    """P[v <= x]."""
    cdf = np.cumsum(laplace(scale))
    return lambda x: np.where(x < -REACH, 0.0, cdf[np.clip(x + REACH, 0, 2 * REACH)])


def index_distribution(counts: IntArray, limits: IntArray, scales: tuple[float, float]) -> FloatArray:
    """The probability of every index, exactly up to the tail beyond REACH. Shape: (b,) -> (b + 1,)."""
    w, below = np.arange(-REACH, REACH + 1), at_most(scales[1])
    going = laplace(scales[0])
    out = []
    for count, limit in zip(counts, limits, strict=True):
        stop = below(limit + w - count)
        out.append(float((going * stop).sum()))
        going = going * (1 - stop)
    return np.array([*out, float(going.sum())])


def loss(neighbours: tuple[list[int], list[int]], scales: tuple[float, float]) -> float:
    """The largest log ratio of probabilities between two vectors of counts, either way."""
    limits = np.full(len(neighbours[0]), 5)
    one, other = (index_distribution(np.array(counts), limits, scales) for counts in neighbours)
    return float(np.abs(np.log(one / other)).max())


def scales(
    epsilon: float, relation: Neighbours = ADD, sites: int = 1, edges: int = 12
) -> tuple[float, float]:
    query = RadiusSearch(
        centre=frozen([0]), edges=frozen(np.arange(1, edges + 1)), limits=frozen(np.zeros(edges, dtype=int))
    )
    study = a_study(neighbours=relation, max_sites_per_person=sites)
    limit, count = covariance.radius_noise_spec(query, micro_rho_of(epsilon), study).blocks
    assert (limit.count, count.count) == (1, edges)
    assert {limit.distribution, count.distribution} == {NoiseDistribution.LAPLACE}
    return limit.scale, count.scale


# Counts of neighbours: every prefix moves by one, around the limit, far above and far below it.
MONOTONE = [
    ([level] * 12, [level + 1] * moved + [level] * (12 - moved))
    for level, moved in product((0, 5, 9, 30), (1, 6, 11, 12))
]
BOTH_WAYS = [
    ([level] * 12, [level + 3] * up + [level - 3] * (12 - up)) for level, up in product((5, 9), (1, 6, 11))
]


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_no_index_reveals_more_than_epsilon(epsilon: float) -> None:
    assert max(loss(pair, scales(epsilon)) for pair in MONOTONE) <= epsilon
    assert scales(epsilon, REPLACE) == scales(epsilon)


def test_a_person_at_three_sites_may_move_counts_both_ways() -> None:
    tripled = [([3 * v for v in one], [3 * v for v in other]) for one, other in MONOTONE]
    assert max(loss(pair, scales(1.0, ADD, 3)) for pair in tripled) <= 1
    assert max(loss(pair, scales(1.0, REPLACE, 3)) for pair in BOTH_WAYS) <= 1
    limit, count = scales(1.0, REPLACE, 3)
    assert (limit, count) == pytest.approx((6, 12), rel=1e-6)


def test_the_first_edge_with_few_beyond_is_released() -> None:
    query = search(2)
    rows = np.array([[0, 0]] * 9 + [[600, 0]] * 5 + [[S, S]] * 2, dtype=np.int16)
    round_query = RoundQuery(PricedQuery(query=query, micro_rho=MICRO), DIGEST, 0)
    total = Site(rows).answer(query)
    for noise, index in ((FixedNoise(), 3), (OneSided(10), 0), (OneSided(-10), 7)):
        outcome = apply_mechanism(round_query.priced, total, a_study(d=2), noise)
        assert (outcome.values.tolist(), outcome.sigma) == ([index], 0.0)


class OneSided(OsNoise):
    def __init__(self, limit: int) -> None:
        self.limit = limit

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Shape: (spec.length,)."""
        return np.concatenate([[self.limit], np.zeros(spec.length - 1, dtype=np.int64)])


# ------------------------------------------------------------------ [P13] the score of a direction


def score_ratio(neighbours: Neighbours, claim: Callable[[Eigenvectors], float]) -> tuple[int, float]:
    """Pairs tried, and the largest range of a score's change over its claim.

    The range of u' D u over the sphere is l_max(D) - l_min(D) for d > 1."""
    tried, worst = 0, 0.0
    for seed, (d, radius) in enumerate(shape for shape in SHAPES if shape[0] > 1):
        query = Eigenvectors(centre=frozen(np.zeros(d, dtype=np.int64)), radius=radius, records=1000, count=1)
        rows = hostile_rows(900, query.centre, radius, seed)
        each = contributions(Case(query=Gram(centre=query.centre, radius=radius), rows=rows)).astype(np.int64)
        changed = each if neighbours is ADD else each - np.roll(each, 1, axis=0)
        ends = np.linalg.eigvalsh([symmetric(change, d) for change in changed])
        worst = max(worst, float((ends[:, -1] - ends[:, 0]).max()) / claim(query))
        tried += len(changed)
    return tried, worst


@pytest.mark.parametrize("neighbours", Neighbours)
def test_a_score_moves_within_its_range_and_fills_it(neighbours: Neighbours) -> None:
    tried, worst = score_ratio(neighbours, lambda query: covariance.score_range(query, neighbours, 1))
    assert tried >= PAIRS
    assert CLOSE <= worst <= 1
