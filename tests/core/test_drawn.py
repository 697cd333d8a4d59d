"""[P2] [P3] [P10] [P11] [P12] [P13] [P15] [P16] [P17] [P18] [P20] [P21] [P22] [P23] [P24] What every release
really draws, recorded at the gateway and held to `specification`.

Every kind of question goes through the barrier, for both relations, persons at one site and at three, and
prices from tiny to large. Noise is recorded as it is asked for and answered with zeros, so that what a
release says gives its thresholds away. Nothing here is random: no false alarms.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from eigenveil import barrier
from eigenveil.asks import (
    KINDS,
    NAMES,
    Additive,
    Ask,
    BlockRanks,
    CellVotes,
    Eigenvectors,
    Gram,
    OnField,
    Part,
    Preimage,
    RankVotes,
    Slot,
    SpanGap,
    SpanVotes,
    Subspace,
    Votes,
    part_of,
    together,
)
from eigenveil.asks.parts import pass_key
from eigenveil.asks.subspaces import Blocks, Cells, Pool
from eigenveil.asks.turned import CAUCHY, FRAME, GAUSSIAN, TESTED
from eigenveil.ints import FloatArray, IntArray, frozen
from eigenveil.mechanism import noise_ahead
from eigenveil.noise import Block, NoiseSpec
from eigenveil.plan import Plan
from eigenveil.query import Law, Query
from eigenveil.release import Release
from eigenveil.study import Neighbours
from eigenveil.trusted import eigenvectors, subspace
from tests.core import specification as spec
from tests.core.specification import COUNTS, Noise, Setting, Turn, real
from tests.support import MemoryStore, a_field, a_plan, covariance_asks, every_ask

KEY, ZERO = np.arange(4), np.zeros(3, dtype=np.int64)
BLOCKS = Blocks(centre=ZERO, rank=2, blocks=6, key=KEY)
CELLS = Cells(centre=ZERO, rank=2, blocks=6, key=KEY, points=2, width=2**30)
POOL = Pool(centre=ZERO, rank=1, most=1000, cut=False, key=KEY)
PRICES = (1, 1000, 500_000, 8_000_000)
DELTAS = (10**9, 10**12, 10**17)
SLOTS = 8192


def questions() -> dict[str, Ask]:
    """One question of every kind, and variants that are priced alike."""
    one = a_field(4, 1, pulls=False)
    more: dict[str, Ask] = {
        "gram, flat": Gram(centre=ZERO, radius=1000, flat=True),
        "votes": Votes(field=one, edges=np.array([10, 1000]), subsets=5),
        "block-ranks": BlockRanks(blocks=BLOCKS),
        "span-votes": SpanVotes(blocks=BLOCKS),
        "cell-votes": CellVotes(cells=CELLS, least=1),
        "rank-votes": RankVotes(cells=CELLS),
        "span-gap": SpanGap(pool=POOL),
        "preimage": Preimage(fingerprint=KEY, holders=frozen([0]), blocks=BLOCKS),
        "slot": Slot(field=a_field(4, 2), radius=2**20, part=a_part("", SLOTS)),
    }
    return {**every_ask(), **covariance_asks(), **more}


def a_part(digest: str, parts: int, index: int = 0) -> Part:
    return Part(first=0, index=index, parts=parts, key=pass_key(digest, 0, parts))


ASKS = questions()
SUMS = {name: ask for name, ask in ASKS.items() if isinstance(ask, Additive)}


class Recorder:
    """A noise source that notes what it is asked for, and draws zeros (or what a test scripts)."""

    private = False

    def __init__(self, *uniforms: float) -> None:
        self.blocks: list[Block] = []
        self.uniforms = list(uniforms)
        self.asked = 0

    @classmethod
    def of(cls, *blocks: Block) -> Recorder:
        """One that was asked for this."""
        recorder = cls()
        recorder.blocks += blocks
        return recorder

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Shape: (spec.length,)."""
        self.blocks += spec.blocks
        return np.zeros(spec.length, dtype=np.int64)

    def uniform(self, count: int) -> FloatArray:
        """Shape: (count,)."""
        self.asked += 1
        if len(self.uniforms) >= count:
            taken, self.uniforms = self.uniforms[:count], self.uniforms[count:]
            return np.array(taken)
        return np.full(count, 2.0**-6)


@cache
def plan_of(neighbours: Neighbours, sites: int) -> Plan:
    return a_plan(sites=("north",), neighbours=neighbours, max_sites_per_person=sites)


def settings(*deltas: int) -> Iterator[tuple[Plan, Setting]]:
    for neighbours, sites, price, delta in product(Neighbours, (1, 3), PRICES, deltas or (0,)):
        adds = neighbours is Neighbours.ADD_REMOVE
        yield plan_of(neighbours, sites), Setting(adds=adds, sites=sites, micro_rho=price, atto_delta=delta)


def query_of(plan: Plan, ask: Ask, s: Setting, law: Law = Law.GAUSSIAN) -> Query:
    part = part_of(ask)
    if part is not None:
        dealt = a_part(plan.digest, part.parts, part.index)
        ask = replace(ask, part=dealt)  # type: ignore[arg-type]
    return Query(
        plan_digest=plan.digest, round=part.index if part else 0, ask=ask,
        micro_rho=s.micro_rho, atto_delta=s.atto_delta, law=law,
    )  # fmt: skip


def released(plan: Plan, query: Query, noise: Recorder, total: IntArray | None = None) -> Release:
    """Through the barrier."""
    zeros = np.zeros(together(query.ask, 1), dtype=np.int64)
    return barrier.release(
        query,
        zeros if total is None else total,
        plan.study.federation.sites,
        plan=plan,
        journal=MemoryStore(),
        noise=noise,
    )


def drew(noise: Recorder, *wanted: Noise) -> bool:
    """Whether just that was drawn."""
    blocks = [("gaussian" if b.law is Law.GAUSSIAN else "laplace", b.count, b.scale) for b in noise.blocks]
    return len(blocks) == len(wanted) and all(
        want.is_drawn(*block) for want, block in zip(wanted, blocks, strict=True)
    )


def laws(name: str) -> list[Law]:
    return [Law.GAUSSIAN, Law.LAPLACE, *([Law.STABILITY] if NAMES[type(ASKS[name])] in COUNTS else [])]


def test_the_specification_knows_nothing_of_the_product() -> None:
    tree = ast.parse(Path(spec.__file__).read_text())
    named = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    named += [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
    assert not [name for name in named if name.startswith(("eigenveil", "tests"))]


def test_every_kind_of_question_is_recorded() -> None:
    assert {NAMES[type(ask)] for ask in ASKS.values()} == set(KINDS)


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_gets_the_noise_of_its_table_in_every_law(name: str) -> None:
    kind = NAMES[type(SUMS[name])]
    for law, (plan, s) in product(laws(name), settings(10**12)):
        noise, query = Recorder(), query_of(plan, SUMS[name], s, law)
        said = released(plan, query, noise)
        assert drew(noise, *spec.added(kind, query.ask, law.value, s)), (law, s)
        assert said.sigma == max(block.sigma for block in noise.blocks)
        assert noise_ahead(query, plan.study) == NoiseSpec(blocks=tuple(noise.blocks))


@pytest.mark.parametrize("name", [name for name in SUMS if Law.STABILITY in laws(name)])
def test_a_stability_histogram_is_silent_below_its_threshold_and_speaks_at_it(name: str) -> None:
    kind = NAMES[type(SUMS[name])]
    for plan, s in settings(*DELTAS):
        query = query_of(plan, SUMS[name], s, Law.STABILITY)
        least = spec.stability_threshold(kind, query.ask, s)
        for count, speaks in ((least - 1, False), (least + 1, True)):
            total = np.zeros(query.ask.length, dtype=np.int64)
            total[0] = count
            assert bool(released(plan, query, Recorder(), total).values.any()) is speaks, (count, s)


def votes_of(m: int, slots: int) -> IntArray:
    """`m` votes for one fingerprint among so many slots. Shape: (4 slots,)."""
    return np.repeat(np.arange(slots) < m, 4).astype(np.int64)


def with_slots(name: str, slots: int) -> Ask:
    if name == "span-votes":
        return SpanVotes(blocks=replace(BLOCKS, blocks=slots))
    cells = replace(CELLS, blocks=slots)
    return (
        CellVotes(cells=cells, least=1) if name == "cell-votes" else RankVotes(cells=replace(cells, rank=1))
    )


@pytest.mark.parametrize("name", ["span-votes", "cell-votes"])
def test_a_fingerprint_needs_the_votes_that_its_threshold_says(name: str) -> None:
    for plan, s in settings(*DELTAS):
        if s.micro_rho < 1000:
            continue  # thresholds beyond the slots there are
        least, square = spec.vote_threshold(name, s), spec.least(spec.vote_scale(name, s) ** 2)
        query = query_of(plan, with_slots(name, least + 2), s)
        for m, speaks in ((least - 1, False), (least + 1, True)):
            noise = Recorder()
            said = released(plan, query, noise, votes_of(m, least + 2))
            assert bool(said.values.any()) is speaks, (m, s)
            assert drew(noise, Noise(law="laplace", count=least + 2, square=square))


@pytest.mark.parametrize("cut", [False, True])
def test_a_lead_needs_to_exceed_all_truncated_noise(cut: bool) -> None:
    ask = SpanGap(pool=replace(POOL, cut=cut))
    for plan, s in settings(*DELTAS):
        changed = spec.lead(ask, s)
        least = spec.reach(changed, s.epsilon, s.delta) + changed
        square = spec.least((changed / s.epsilon) ** 2)
        for ahead, speaks in ((least, False), (least + 2, True)):
            noise = Recorder()
            said = released(plan, query_of(plan, ask, s), noise, frozen([50 + ahead, 50, 7, 7, 7, 7]))
            assert bool(said.values.any()) is speaks, (ahead, s)
            assert drew(noise, Noise(law="laplace", count=noise.blocks[0].count, square=square))


def stops_at() -> Fraction:
    """The chance that a run of trials ends after one, found by trying: uniform numbers below it end it."""
    low, high = 0.0, 1.0
    plan, s = next(settings(10**12))
    for _ in range(50):
        middle, noise = (low + high) / 2, Recorder()
        noise.uniforms = [0.0, middle, 0.0, 0.0]
        released(plan, query_of(plan, with_slots("rank-votes", 2), s), noise)
        low, high = (middle, high) if noise.asked == 1 else (low, middle)
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
            wanted = Noise(law="laplace", count=0, square=spec.least(scale**2))
            assert drew(noise, *(replace(wanted, count=block.count) for block in noise.blocks))


@pytest.mark.parametrize("law", [Law.GAUSSIAN, Law.LAPLACE])
def test_eigenvalues_get_the_noise_of_all_sites_a_person_may_be_at(law: Law) -> None:
    for plan, s in settings():
        noise, query = Recorder(), query_of(plan, ASKS["spectrum"], s, law)
        released(plan, query, noise)
        assert drew(noise, *spec.eigenvalues(query.ask, law.value, s)), s
        assert noise_ahead(query, plan.study) == NoiseSpec(blocks=tuple(noise.blocks))


def test_a_radius_search_gets_the_noise_of_its_limit_and_of_each_count() -> None:
    for plan, s in settings():
        noise, query = Recorder(), query_of(plan, ASKS["radius-search"], s)
        released(plan, query, noise)
        assert drew(noise, *spec.limits(query.ask, s)), s


@pytest.mark.parametrize("count", [1, 2, 4])
def test_directions_are_drawn_with_the_exponent_that_privacy_allows(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Eigenvectors(centre=np.zeros(4, int), radius=4096, records=1000, count=count)
    drawn: list[FloatArray] = []

    def first(exponents: FloatArray, noise: object) -> FloatArray:
        """The first direction there is. Shape: (m,) -> (m,)."""
        drawn.append(exponents)
        return np.eye(len(exponents))[0]

    monkeypatch.setattr(eigenvectors, "bingham", first)
    values = np.array([9, 5, 3, 1]) * 10**6
    total = frozen([*values, *[0] * 6])
    for plan, s in settings():
        drawn.clear()
        released(plan, query_of(plan, ask, s), Recorder(), total)
        allowed = float(spec.steepness(ask, s))
        assert len(drawn) == count
        for i, exponents in enumerate(drawn):
            assert exponents == pytest.approx(allowed * values[i:], rel=1e-9, abs=1e-12), s


def test_a_slot_gets_the_noise_of_one_local_randomiser() -> None:
    for plan, s in settings(10**12):
        if not s.adds and s.sites == 1 and s.micro_rho == 500_000:
            noise, query = Recorder(), query_of(plan, ASKS["slot"], s)
            released(plan, query, noise)
            assert drew(noise, *spec.local_randomiser(query.ask, s))
            return
    raise AssertionError


def test_a_preimage_draws_nothing() -> None:
    for plan, s in settings():
        noise = Recorder()
        released(plan, query_of(plan, ASKS["preimage"], s), noise)
        assert (noise.blocks, noise.asked) == ([], 0)


# ---- turned subspaces

GAPS = (Fraction(0), Fraction(37, 10), Fraction(4003, 100), Fraction(400_003, 1000))
WIDE = 1 + 1e-6  # scales may be that much larger: what floats move is added to them


def turned(
    mechanism: str, shape: tuple[int, int]
) -> Iterator[tuple[Turn, Fraction, Plan, Setting, Query, IntArray]]:
    """Questions about matrices of known gap: one person adds R^2 at each site. d, k = shape."""
    d, k = shape
    for gap, (plan, s) in product(GAPS, settings(10**12)):
        if s.micro_rho < 10**5:
            continue
        ask = Subspace(centre=np.zeros(d, int), radius=1000, records=10, count=k, mechanism=mechanism)
        steep = round(gap * s.sites * 10**6)
        total = frozen([*[steep] * k, *[0] * (ask.length - k)])
        yield Turn(d=d, k=k, step=s.pair), gap, plan, s, query_of(plan, ask, s), total


SHAPES = [(3, 1), (4, 2), (5, 4)]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_smooth_gaussian_has_its_secret_scale(shape: tuple[int, int]) -> None:
    for turn, gap, plan, s, query, total in turned(GAUSSIAN, shape):
        noise = Recorder()
        released(plan, query, noise, total)
        least = float(spec.secret_gaussian(turn, real(gap), s))
        (block,) = noise.blocks
        assert (block.law, block.count) == (Law.GAUSSIAN, turn.d * turn.k)
        assert least <= block.scale <= least * WIDE, (gap, s)


@pytest.mark.parametrize("shape", SHAPES)
def test_smooth_cauchy_noise_has_its_secret_scale(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[int, int]] = []

    def zeros(count: int, scale: int, noise: object) -> list[int]:
        """No noise."""
        drawn.append((count, scale))
        return [0] * count

    monkeypatch.setattr(subspace, "cauchy", zeros)
    for turn, gap, plan, s, query, total in turned(CAUCHY, shape):
        released(plan, query, Recorder(), total)
        least = float(spec.secret_cauchy(turn, real(gap), s))
        assert drawn[-1][0] == turn.d * turn.k
        assert least <= drawn[-1][1] <= least * WIDE + 1, (gap, s)


def test_what_is_released_of_a_subspace_is_turned_at_random_within_it() -> None:
    for *_, plan, _, query, total in turned(GAUSSIAN, (4, 2)):
        frames = [
            released(plan, query, Recorder(*uniforms), total).values[:-1].reshape(4, 2) / FRAME
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
    for turn, gap, plan, s, query, total in turned(TESTED, shape):
        noise = Recorder()
        said = released(plan, query, noise, total)
        scale, margin = spec.tested_gap(turn, s)
        assert drew(Recorder.of(noise.blocks[0]), Noise(law="laplace", count=1, square=spec.least(scale**2)))
        if len(noise.blocks) == 1:
            continue
        bound = int(said.values[-1])
        assert margin <= int(gap * spec.TEST_STEPS) - bound <= margin + 2
        least = float(spec.tested_noise(turn, Fraction(bound, spec.TEST_STEPS), s))
        assert least * (1 - 1e-9) <= noise.blocks[1].scale <= least * (1 + 1e-4), (gap, s)
        spoke += 1
    assert spoke >= 4


# ---- what it costs


def in_a_pass(plan: Plan, query: Query) -> tuple[list[Query], list[Query]]:
    """What is paid: the question, and as the first part of a pass; and what is not: its later parts."""
    if not isinstance(query.ask, OnField):
        return [query], []
    s = Setting(adds=True, sites=1, micro_rho=query.micro_rho, atto_delta=query.atto_delta)
    asks = [replace(query.ask, part=a_part("", SLOTS, index)) for index in (0, 1, SLOTS - 1)]
    first, *later = [query_of(plan, ask, s) for ask in asks]
    return [query, first], later


@pytest.mark.parametrize("name", ASKS)
def test_every_question_costs_its_price_unless_it_is_a_later_part_of_a_pass(name: str) -> None:
    plan = plan_of(Neighbours.REPLACE_ONE, 1)
    s = Setting(adds=False, sites=1, micro_rho=500_000, atto_delta=10**12)
    paid, free = in_a_pass(plan, query_of(plan, ASKS[name], s))
    assert bool(free) is isinstance(ASKS[name], OnField)
    for query in (*paid, *free):
        said = released(plan, query, Recorder())
        for cost in (query.cost, said.cost):
            wanted = (500_000, 10**12) if query in paid else (0, 0)
            assert (cost.micro_rho, cost.atto_delta) == wanted
        assert (query.price.micro_rho, query.price.atto_delta) == (500_000, 10**12)
