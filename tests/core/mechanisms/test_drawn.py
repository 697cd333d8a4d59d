"""[P2] [P3] [P10] [P11] [P12] [P13] [P15] [P16] [P17] [P18] [P20] [P21] [P22] [P23] [P24] What every release
really draws, recorded at the gateway and held to `specification`.

Every kind of query goes through the barrier, for both relations, persons at one site and at three, and
prices from tiny to large. Noise is recorded as it is asked for and answered with zeros, so that what a
release says gives its thresholds away. Nothing here is random: no false alarms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from eigenveil.accounting.zcdp import NO_COST, Neighbours
from eigenveil.mechanisms import data_independent_noise
from eigenveil.mechanisms.papers import covariance, smooth_sensitivity
from eigenveil.noise.source import NoiseSpec
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseDistribution, RoundQuery
from eigenveil.queries import (
    NAMES,
    CellVotes,
    Eigenvectors,
    GradientQuery,
    Query,
    RankVotes,
    SpanGap,
    SpanVotes,
    Subspace,
)
from eigenveil.queries.papers.trusted import CAUCHY, ENTRY_STEPS, GAUSSIAN, PROPOSE_TEST_RELEASE
from eigenveil.study.algorithm import Algorithm
from tests.core import specification as spec
from tests.core.queries.kinds import BLOCKS, CELLS, POOL, QUERIES, SUMS
from tests.core.recorder import DELTAS, Recorder, drew, in_a_pass, plan_of, query_of, released, settings
from tests.core.specification import COUNTS, Noise, Setting, Turn, real
from tests.support import a_plan


def distributions_of(name: str) -> list[NoiseDistribution]:
    counts = NAMES[type(QUERIES[name])] in COUNTS
    return [one for one in NoiseDistribution if counts or one is not NoiseDistribution.STABILITY]


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_gets_the_noise_of_its_table_in_every_distribution(name: str) -> None:
    kind = NAMES[type(SUMS[name])]
    for distribution, (plan, s) in product(distributions_of(name), settings(10**12)):
        noise, round_query = Recorder(), query_of(plan, SUMS[name], s, distribution)
        message = released(plan, round_query, noise)
        assert drew(noise, *spec.added(kind, round_query.query, distribution.value, s)), (distribution, s)
        assert message.sigma == max(block.sigma for block in noise.blocks)
        assert data_independent_noise(round_query.priced, plan.study) == NoiseSpec(blocks=tuple(noise.blocks))


@pytest.mark.parametrize(
    "name", [name for name in SUMS if NoiseDistribution.STABILITY in distributions_of(name)]
)
def test_a_stability_histogram_releases_counts_from_its_threshold_on(name: str) -> None:
    kind = NAMES[type(SUMS[name])]
    for plan, s in settings(*DELTAS):
        round_query = query_of(plan, SUMS[name], s, NoiseDistribution.STABILITY)
        least = spec.stability_threshold(kind, round_query.query, s)
        for count, speaks in ((least - 1, False), (least + 1, True)):
            total = np.zeros(round_query.query.length, dtype=np.int64)
            total[0] = count
            assert bool(released(plan, round_query, Recorder(), total).values.any()) is speaks, (count, s)


def votes_of(m: int, slots: int) -> IntArray:
    """`m` votes for one fingerprint among so many slots. Shape: (4 slots,)."""
    return np.repeat(np.arange(slots) < m, 4).astype(np.int64)


def with_slots(name: str, slots: int) -> Query:
    if name == "span-votes":
        return SpanVotes(subsamples=replace(BLOCKS, count=slots))
    cells = replace(CELLS, count=slots)
    return (
        CellVotes(cells=cells, min_votes=1)
        if name == "cell-votes"
        else RankVotes(cells=replace(cells, rank=1))
    )


@pytest.mark.parametrize("name", ["span-votes", "cell-votes"])
def test_a_fingerprint_is_released_from_its_threshold_of_votes_on(name: str) -> None:
    for plan, s in settings(*DELTAS):
        if s.micro_rho < 1000:
            continue  # thresholds beyond the slots there are
        least, square = spec.vote_threshold(name, s), spec.least(spec.vote_scale(name, s) ** 2)
        query = query_of(plan, with_slots(name, least + 2), s)
        for m, speaks in ((least - 1, False), (least + 1, True)):
            noise = Recorder()
            message = released(plan, query, noise, votes_of(m, least + 2))
            assert bool(message.values.any()) is speaks, (m, s)
            assert drew(noise, Noise(distribution="laplace", count=least + 2, square=square))


@pytest.mark.parametrize("cut", [False, True])
def test_a_lead_needs_to_exceed_all_truncated_noise(cut: bool) -> None:
    query = SpanGap(pool=replace(POOL, truncated=cut))
    for plan, s in settings(*DELTAS):
        changed = spec.lead(query, s)
        least = spec.reach(changed, s.epsilon, s.delta) + changed
        square = spec.least((changed / s.epsilon) ** 2)
        for ahead, speaks in ((least, False), (least + 2, True)):
            noise = Recorder()
            message = released(plan, query_of(plan, query, s), noise, frozen([50 + ahead, 50, 7, 7, 7, 7]))
            assert bool(message.values.any()) is speaks, (ahead, s)
            assert drew(noise, Noise(distribution="laplace", count=noise.blocks[0].count, square=square))


def stops_at() -> Fraction:
    """The chance that a run of trials ends after one, found by trying: uniform numbers below it end it."""
    low, high = 0.0, 1.0
    plan, s = next(settings(10**12))
    for _ in range(50):
        middle, noise = (low + high) / 2, Recorder()
        noise.uniforms = [0.0, middle, 0.0, 0.0]
        released(plan, query_of(plan, with_slots("rank-votes", 2), s), noise)
        low, high = (middle, high) if noise.uniform_calls == 1 else (low, middle)
    return Fraction(low).limit_denominator(10**6)


def test_a_trial_gets_a_third_of_epsilon_and_its_part_of_delta() -> None:
    stop = stops_at()
    for plan, s in settings(*DELTAS):
        if s.micro_rho < 10**5:
            continue
        scale, far = spec.trial(s, stop)
        majority = far + s.pair * s.sites
        half = 2 * majority + 8
        query = query_of(plan, with_slots("rank-votes", 2 * half), s)
        for ahead, speaks in ((majority, False), (majority + 2, True)):
            noise = Recorder(0.0, 0.0)
            total = np.concatenate([votes_of(half // 2 + ahead, half), votes_of(half, half)])
            assert bool(released(plan, query, noise, total).values.any()) is speaks, (ahead, s)
            wanted = Noise(distribution="laplace", count=0, square=spec.least(scale**2))
            assert drew(noise, *(replace(wanted, count=block.count) for block in noise.blocks))


@pytest.mark.parametrize("distribution", [NoiseDistribution.GAUSSIAN, NoiseDistribution.LAPLACE])
def test_eigenvalues_get_the_noise_of_all_sites_a_person_may_be_at(distribution: NoiseDistribution) -> None:
    for plan, s in settings():
        noise, round_query = Recorder(), query_of(plan, QUERIES["spectrum"], s, distribution)
        released(plan, round_query, noise)
        assert drew(noise, *spec.eigenvalues(round_query.query, distribution.value, s)), s
        assert data_independent_noise(round_query.priced, plan.study) == NoiseSpec(blocks=tuple(noise.blocks))


def test_a_radius_search_gets_the_noise_of_its_limit_and_of_each_count() -> None:
    for plan, s in settings():
        noise, round_query = Recorder(), query_of(plan, QUERIES["radius-search"], s)
        released(plan, round_query, noise)
        assert drew(noise, *spec.limits(round_query.query, s)), s


@pytest.mark.parametrize("count", [1, 2, 4])
def test_directions_are_drawn_with_the_exponent_that_privacy_allows(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Eigenvectors(centre=np.zeros(4, int), radius=4096, records=1000, count=count)
    drawn: list[FloatArray] = []

    def first(exponents: FloatArray, noise: object) -> FloatArray:
        """The first direction there is. Shape: (m,) -> (m,)."""
        drawn.append(exponents)
        return np.eye(len(exponents))[0]

    monkeypatch.setattr(covariance, "bingham", first)
    values = np.array([9, 5, 3, 1]) * 10**6
    total = frozen([*values, *[0] * 6])
    for plan, s in settings():
        drawn.clear()
        released(plan, query_of(plan, query, s), Recorder(), total)
        allowed = float(spec.steepness(query, s))
        assert len(drawn) == count
        for i, exponents in enumerate(drawn):
            assert exponents == pytest.approx(allowed * values[i:], rel=1e-9, abs=1e-12), s


def test_a_slot_gets_the_noise_of_one_local_randomiser() -> None:
    for plan, s in settings(10**12):
        if not s.adds and s.sites == 1 and s.micro_rho == 500_000:
            noise, round_query = Recorder(), query_of(plan, QUERIES["shuffled-record"], s)
            released(plan, round_query, noise)
            assert drew(noise, *spec.local_randomiser(round_query.query, s))
            return
    raise AssertionError


def test_a_preimage_draws_nothing() -> None:
    for plan, s in settings():
        noise = Recorder()
        released(plan, query_of(plan, QUERIES["preimage"], s), noise)
        assert (noise.blocks, noise.uniform_calls) == ([], 0)


# ---- turned subspaces

GAPS = (Fraction(0), Fraction(37, 10), Fraction(4003, 100), Fraction(400_003, 1000))
WIDE = 1 + 1e-6  # scales may be that much larger: what floats move is added to them


def turned(
    mechanism: str, shape: tuple[int, int]
) -> Iterator[tuple[Turn, Fraction, Plan, Setting, RoundQuery, IntArray]]:
    """Queries about matrices of known gap: one person adds R^2 at each site. d, k = shape."""
    d, k = shape
    for gap, (plan, s) in product(GAPS, settings(10**12)):
        if s.micro_rho < 10**5:
            continue
        query = Subspace(centre=np.zeros(d, int), radius=1000, records=10, count=k, mechanism=mechanism)
        steep = round(gap * s.sites * 10**6)
        total = frozen([*[steep] * k, *[0] * (query.length - k)])
        yield Turn(d=d, k=k, step=s.pair), gap, plan, s, query_of(plan, query, s), total


SHAPES = [(3, 1), (4, 2), (5, 4)]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_smooth_gaussian_has_its_secret_scale(shape: tuple[int, int]) -> None:
    for turn, gap, plan, s, query, total in turned(GAUSSIAN, shape):
        noise = Recorder()
        released(plan, query, noise, total)
        least = float(spec.secret_gaussian(turn, real(gap), s))
        (block,) = noise.blocks
        assert (block.distribution, block.count) == (NoiseDistribution.GAUSSIAN, turn.d * turn.k)
        assert least <= block.scale <= least * WIDE, (gap, s)


@pytest.mark.parametrize("shape", SHAPES)
def test_smooth_cauchy_noise_has_its_secret_scale(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[int, int]] = []

    def zeros(count: int, scale: int, noise: object) -> list[int]:
        drawn.append((count, scale))
        return [0] * count

    monkeypatch.setattr(smooth_sensitivity, "cauchy", zeros)
    for turn, gap, plan, s, query, total in turned(CAUCHY, shape):
        released(plan, query, Recorder(), total)
        least = float(spec.secret_cauchy(turn, real(gap), s))
        assert drawn[-1][0] == turn.d * turn.k
        assert least <= drawn[-1][1] <= least * WIDE + 1, (gap, s)


def test_what_is_released_of_a_subspace_is_turned_at_random_within_it() -> None:
    for *_, plan, _, query, total in turned(GAUSSIAN, (4, 2)):
        frames = [
            released(plan, query, Recorder(*uniforms), total).values[:-1].reshape(4, 2) / ENTRY_STEPS
            for uniforms in ([0.3, 0.9] * 8, [0.7, 0.2, 0.6] * 8)
        ]
        assert np.abs(frames[0] - frames[1]).max() > 0.1
        for frame in frames if total.any() else []:
            assert np.abs(frame @ frame.T - np.diag([1, 1, 0, 0])).max() < 1e-9


@pytest.mark.parametrize("shape", SHAPES)
def test_a_tested_gap_pays_for_its_test_with_a_fifth_and_for_its_noise_with_the_rest(
    shape: tuple[int, int],
) -> None:
    spoke = 0
    for turn, gap, plan, s, query, total in turned(PROPOSE_TEST_RELEASE, shape):
        noise = Recorder()
        message = released(plan, query, noise, total)
        scale, margin = spec.tested_gap(turn, s)
        assert drew(
            Recorder.of(noise.blocks[0]), Noise(distribution="laplace", count=1, square=spec.least(scale**2))
        )
        if len(noise.blocks) == 1:
            continue
        bound = int(message.values[-1])
        assert margin <= int(gap * spec.TEST_STEPS) - bound <= margin + 2
        least = float(spec.tested_noise(turn, Fraction(bound, spec.TEST_STEPS), s))
        assert least * (1 - 1e-9) <= noise.blocks[1].scale <= least * (1 + 1e-4), (gap, s)
        spoke += 1
    assert spoke >= 4


# ---- what algorithms ask


@pytest.mark.parametrize("neighbours", Neighbours)
@pytest.mark.parametrize("algorithm", [a for a in Algorithm if a.properties.private])
def test_queries_of_an_algorithm_are_drawn_at_the_cost_of_its_plan(
    algorithm: Algorithm, neighbours: Neighbours
) -> None:
    adds, orders = neighbours is Neighbours.ADD_REMOVE, algorithm is Algorithm.PRIVATE_OJA_SHUFFLED
    if orders and adds:
        return  # refused: a secret order hides who changed
    few: dict[str, Any] = {"expected_records": 900, "delta": 1e-3} if orders else {}
    plan = a_plan(d=4, sites=("north",), algorithm=algorithm, neighbours=neighbours, **few)
    round_query = rehearse(plan)
    for query in {
        (type(q.query), q.priced.distribution, q.priced.micro_rho): q for q in round_query
    }.values():
        s = Setting(adds=adds, sites=1, micro_rho=query.priced.micro_rho, atto_delta=query.priced.atto_delta)
        kind = NAMES[type(query.query)]
        noise, expected = Recorder(), spec.public_noise(kind, query.query, query.priced.distribution.value, s)
        if expected is not None:
            released(plan, query, noise)
            assert drew(noise, *expected), query.query
    assert sum((query.cost for query in round_query), NO_COST).fits(plan.cost)


# ---- what it costs


@pytest.mark.parametrize("name", QUERIES)
def test_every_query_is_charged_unless_it_is_a_later_batch_of_a_pass(name: str) -> None:
    plan = plan_of(Neighbours.REPLACE_ONE, 1)
    s = Setting(adds=False, sites=1, micro_rho=500_000, atto_delta=10**12)
    paid, free = in_a_pass(plan, query_of(plan, QUERIES[name], s))
    assert bool(free) is isinstance(QUERIES[name], GradientQuery)
    for query in (*paid, *free):
        message = released(plan, query, Recorder())
        for cost in (query.cost, message.cost):
            wanted = (500_000, 10**12) if query in paid else (0, 0)
            assert (cost.micro_rho, cost.atto_delta) == wanted
        assert (query.priced.cost.micro_rho, query.priced.cost.atto_delta) == (500_000, 10**12)
