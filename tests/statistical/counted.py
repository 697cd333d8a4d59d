"""Mechanisms that count: stability histograms, votes for fingerprints, the lead of the best, a sparse vector.

Where a claim has a delta of its own, it is 0.01: so large that an event of that probability happens about
1,000 times in the half that tests it, and twice as much would be seen."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import expit, ndtri

from eigenveil import queries as q
from eigenveil.accounting.zcdp import Neighbours, scale_of
from eigenveil.mechanisms.papers import single_pass
from eigenveil.mechanisms.papers.subspaces import truncation_bound, vote_threshold
from eigenveil.noise.source import NoiseSource
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.protocol.query import NoiseDistribution, RoundQuery
from eigenveil.queries.papers.fingerprints import FINGERPRINT_WORDS, Cells, Pool, Subsamples
from eigenveil.study.study import Study
from tests.core.queries.kinds import ADD, REPLACE, ZERO, field_of
from tests.statistical.audit import SAMPLES, Approximate, Attack, Claim, Gaussian, Mechanism
from tests.statistical.mechanisms import (
    COST,
    DELTA,
    LEVEL,
    OF_ITS_OWN,
    added,
    at_cost,
    at_once,
    released,
    study_of,
)

WITH_DELTA = Approximate(epsilon=LEVEL, delta=DELTA)
KEY = frozen([1, 2, 3, 4])
ONE, OTHER = frozen([1, 1, 1, 1]), frozen([2, 2, 2, 2])  # fingerprints
BINS = q.RowNorms(centre=ZERO, edges=frozen([100]))
SUBSETS = q.EigenvalueVotes(spec=field_of(2), edges=frozen([100]), subsets=100)
PLACES = q.CoordinateHistograms(spec=field_of(2), width=1000, half=1)
BLOCKS = Subsamples(centre=ZERO, rank=1, count=12, key=KEY)
POOL = Pool(centre=ZERO, rank=1, max_records=100, truncated=False, key=KEY)
CELLS = Cells(centre=ZERO, rank=1, count=60, key=KEY, points=4, width=2**32)
Statistic = Callable[[IntArray], FloatArray]


def watched(
    round_query: RoundQuery, study: Study, without: IntArray, with_it: IntArray, statistic: Statistic
) -> Attack:
    """Releases, tested by one number of each."""
    release = at_once if round_query.priced.distribution is NoiseDistribution.STABILITY else released

    def attack(noise: NoiseSource, m: int) -> tuple[FloatArray, FloatArray]:
        """Shape: (m,) each."""
        low, high = (statistic(release(round_query, total, study, noise, m)) for total in (without, with_it))
        return low, high

    return attack


def is_released(values: IntArray) -> FloatArray:
    """1 if any value is not 0. Shape: (m, length) -> (m,)."""
    return np.asarray(values.any(axis=1), dtype=np.float64)


def full(query: q.AdditiveQuery, neighbours: Neighbours) -> tuple[RoundQuery, Study, int]:
    """A stability histogram, and its least count that is spoken of."""
    round_query, study = at_cost(query, NoiseDistribution.STABILITY, OF_ITS_OWN), study_of(neighbours)
    return round_query, study, single_pass.stability_noise_spec(round_query.priced, study)[1]


def histogram(
    name: str,
    kind: str,
    query: q.AdditiveQuery,
    neighbours: Neighbours,
    moved: tuple[int, ...],
    claim: Claim = WITH_DELTA,
    tight: float = 0.9,
) -> Mechanism:
    """Bins that all speak, of which the record moves some."""
    round_query, study, least = full(query, neighbours)
    many = frozen([3 * least] * len(moved))
    attack = added(round_query, study, many, many + np.array(moved))
    return Mechanism(name=name, kind=kind, claim=claim, attack=attack, tight=tight)


def appears(
    name: str, kind: str, query: q.AdditiveQuery, neighbours: Neighbours, bins: tuple[int, ...]
) -> Mechanism:
    """Bins that are empty without the record: nobody may hear of them but for delta."""
    round_query, study, _ = full(query, neighbours)
    attack = watched(round_query, study, frozen([0] * len(bins)), frozen(bins), is_released)
    return Mechanism(name=name, kind=kind, claim=WITH_DELTA, attack=attack, tight=0.0)


def at_the_threshold() -> Mechanism:
    """A bin that speaks only with luck, and the record helps."""
    query, study, least = full(BINS, ADD)
    attack = watched(
        query, study, frozen([0, least - 1]), frozen([0, least]), lambda v: v[:, 1].astype(np.float64)
    )
    name = "histogram, at the threshold"
    return Mechanism(name=name, kind="row-norms", claim=WITH_DELTA, attack=attack, tight=0.9)


def of_coordinates(d: int) -> Gaussian:
    """d histograms at once, each epsilon / sqrt(d) [P23]: sqrt(d) times the mu of one."""
    return Gaussian(mu=math.sqrt(d) * 2 * float(ndtri(expit(LEVEL / math.sqrt(d)))), delta=DELTA)


def ballots(slots: int, *votes: tuple[IntArray, int]) -> IntArray:
    """Slots with so many votes for each fingerprint. Shape: (4 slots,)."""
    cast = np.concatenate([np.tile(fingerprint, count) for fingerprint, count in votes])
    return frozen(np.concatenate([cast, np.zeros(FINGERPRINT_WORDS * slots - cast.size, dtype=np.int64)]))


def least_votes(query: q.SpanVotes | q.CellVotes, study: Study) -> int:
    scale = scale_of(query.l1(study.neighbours) ** 2, COST)
    return max(vote_threshold(scale, study.changed_records, DELTA), query.min_votes)


def span_votes(name: str, neighbours: Neighbours, before: int, after: int, tight: float) -> Mechanism:
    """One fingerprint, whose votes are counted from the threshold on, or from 0."""
    query, study = q.SpanVotes(subsamples=BLOCKS), study_of(neighbours)
    least = least_votes(query, study) if tight else 0
    slots, (low, high) = least + 3, (least + before, least + after)
    round_query = at_cost(query, atto_delta=OF_ITS_OWN)
    attack = watched(round_query, study, ballots(slots, (ONE, low)), ballots(slots, (ONE, high)), is_released)
    return Mechanism(name=name, kind="span-votes", claim=WITH_DELTA, attack=attack, tight=tight)


def cell_votes() -> Mechanism:
    """A vote leaves the leader for the runner-up, both beyond the threshold."""
    query, study = q.CellVotes(cells=CELLS, min_votes=1), study_of(ADD)
    least = least_votes(query, study)
    before = ballots(2 * least + 2, (ONE, least + 2), (OTHER, least))
    after = ballots(2 * least + 2, (ONE, least + 1), (OTHER, least + 1))
    attack = watched(
        at_cost(query, atto_delta=OF_ITS_OWN), study, before, after, lambda v: v[:, 0].astype(np.float64)
    )
    return Mechanism(name="cell-votes", kind="cell-votes", claim=WITH_DELTA, attack=attack, tight=0.5)


def rank_votes() -> Mechanism:
    """One vote more among those that propose the only dimension: its majority is tested again and again.

    A trial costs a third of the price, which covers the worst of all outcomes; this pair shows about a
    quarter of the claim. A release is 20 trials on average, so there are twenty times fewer of them."""
    query, study = q.RankVotes(cells=CELLS), study_of(ADD)
    half = CELLS.count // 2
    sums = [np.concatenate([ballots(half, (ONE, votes)), ballots(half, (ONE, half))]) for votes in (24, 25)]
    attack = watched(at_cost(query, atto_delta=OF_ITS_OWN), study, sums[0], sums[1], is_released)
    claim, few = WITH_DELTA, SAMPLES // 20
    return Mechanism(
        name="rank-votes", kind="rank-votes", claim=claim, attack=attack, tight=0.15, samples=few
    )


def span_gap(name: str, lead: int, tight: float) -> Mechanism:
    """The best score rises by one: its lead, less what one person can change, was `lead` before."""
    query, study = q.SpanGap(pool=POOL), study_of(ADD)
    margin = study.changed_records + lead
    before, after = (frozen([5 + margin + more, 5, *ONE]) for more in (0, 1))
    attack = watched(at_cost(query, atto_delta=OF_ITS_OWN), study, before, after, is_released)
    return Mechanism(name=name, kind="span-gap", claim=WITH_DELTA, attack=attack, tight=tight)


def radius_search() -> Mechanism:
    """The record lies beyond six edges and not beyond the seventh, with every count at its limit: the exact
    law gives 95 % of the claim for "the seventh"."""
    edges, count = 7, 20
    query = q.RadiusSearch(
        centre=ZERO, edges=frozen(np.arange(1, edges + 1) * 100), limits=frozen([count] * edges)
    )
    before = frozen([0] * edges + [count])
    after = frozen([0] * (edges - 1) + [1, count])
    attack = watched(at_cost(query), study_of(ADD), before, after, lambda v: 1.0 * (v[:, 0] == edges - 1))
    claim = Approximate(epsilon=LEVEL)
    return Mechanism(name="radius-search", kind="radius-search", claim=claim, attack=attack, tight=0.85)


LEAD = truncation_bound(scale_of(1, COST), 1, DELTA) - 1

COUNTED: list[Mechanism] = [
    at_the_threshold(),
    appears("histogram, a bin appears", "row-norms", BINS, ADD, (0, 1)),
    histogram("histogram, replaced", "row-norms", BINS, REPLACE, (-1, 1)),
    histogram("eigenvalue-votes", "eigenvalue-votes", SUBSETS, ADD, (-1, 1)),
    histogram("votes, replaced", "eigenvalue-votes", SUBSETS, REPLACE, (-2, 2)),
    appears("votes, two alike appear, replaced", "eigenvalue-votes", SUBSETS, REPLACE, (0, 2)),
    histogram("coordinates", "coordinates", PLACES, ADD, (0, 1, 1, 0), of_coordinates(2), 0.6),
    appears("coordinates, a bin each appears", "coordinates", PLACES, ADD, (0, 1, 1, 0)),
    span_votes("span-votes", ADD, -1, 0, 0.9),
    span_votes("span-votes, one appears", ADD, 0, 1, 0.0),
    span_votes("span-votes, two appear, replaced", REPLACE, 0, 2, 0.0),
    cell_votes(),
    rank_votes(),
    span_gap("span-gap", LEAD, 0.8),
    span_gap("span-gap, where the best may change", 0, 0.0),
    radius_search(),
]
