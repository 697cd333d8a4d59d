"""[P6] Draw, charge and seal at once, publish: observed under crashes at every point, with planted faults."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eigenveil import barrier
from eigenveil.errors import Code
from eigenveil.noise.source import NoiseSource, NoiseSpec, OsNoise, noise_spec
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.rounds import Release
from eigenveil.queries import ClippedSum
from eigenveil.study.grid import S
from tests.core.queries.kinds import every_query
from tests.support import FixedNoise, MemoryStore, a_plan, a_query, refused

PLAN = a_plan(d=3)
SUM = ClippedSum(centre=frozen([0, 0, 0]), radius=S)
QUERY = a_query(SUM, plan_digest=PLAN.digest)
TOTAL = frozen([1, -2, 3])

# Where a process can die, in order; the second of each pair is after the effect was stored.
POINTS = ("before draw", "after draw", "before seal", "after seal")

Publish = Callable[[IntArray], None]
Barrier = Callable[["Process", Publish], None]


class Crash(BaseException):
    """The process died."""


class Process:
    """One life of a coordinator: a journal on a store that outlives it, and noise; dies at `death`."""

    def __init__(self, store: MemoryStore, noise: NoiseSource, death: str | None) -> None:
        self.store, self.noise, self.death = store, noise, death
        self.private = False

    def _reach(self, point: str) -> None:
        if point == self.death:
            raise Crash(point)

    def sealed(self, round: int) -> Release | None:
        return self.store.sealed(round)

    def seal(self, round_query: RoundQuery, release: Release) -> None:
        self._reach("before seal")
        self.store.seal(round_query, release)
        self._reach("after seal")

    def charge(self, round_query: RoundQuery) -> None:
        self.store.charge(round_query)

    def draw(self, spec: NoiseSpec) -> IntArray:
        self._reach("before draw")
        self.store.events.append("draw")
        drawn = self.noise.draw(spec)
        self._reach("after draw")
        return drawn

    def uniform(self, count: int) -> FloatArray:
        return self.noise.uniform(count)


def honest(process: Process, publish: Publish) -> None:
    publish(barrier.release(QUERY, TOTAL, (), plan=PLAN, journal=process, noise=process).values)


class CountProcess(Process):
    """One life of a site that noises its number of persons, on a store that outlives it."""

    def __init__(self, stored: list[int], noise: NoiseSource, death: str | None) -> None:
        super().__init__(MemoryStore(), noise, death)
        self.stored = stored

    def sealed(self, round: int = 0) -> int | None:  # type: ignore[override]
        return self.stored[0] if self.stored else None

    def seal(self, noised: int) -> int:  # type: ignore[override]
        self._reach("before seal")
        self.stored.append(noised)
        self._reach("after seal")
        return self.stored[0]


@given(st.lists(st.sampled_from([*POINTS, None]), max_size=4), st.integers(1, 10**6))
def test_a_noised_number_of_persons_is_one_number_in_all_lives(deaths: list[str | None], cost: int) -> None:
    """[P34] Whatever crashes, and whatever the file holds in each life; its noise is one person's."""
    stored, published, noise = list[int](), set[int](), FixedNoise()
    for life, death in enumerate([*deaths, None]):
        process = CountProcess(stored, noise, death)
        with suppress(Crash):
            published.add(barrier.release_person_count(100 + life, cost, journal=process, noise=process)[0])
    assert published == set(stored)
    assert len(stored) == 1
    assert stored[0] > 1000, "the noise of a test is above 1000"
    _, sigma = barrier.release_person_count(7, cost, journal=process, noise=process)
    assert Fraction(sigma) ** 2 >= Fraction(10**6, 2 * cost)
    assert math.isclose(sigma**2, 10**6 / (2 * cost))


def is_safe(run: Barrier, deaths: list[str | None]) -> bool:
    """The check: over all lives at most one answer gets out, and none before its charge and its seal."""
    store, noise = MemoryStore(), FixedNoise()
    published: list[list[int]] = []
    remaining = True

    def publish(values: IntArray) -> None:
        nonlocal remaining
        published.append(values.tolist())
        sealed = store.releases.get(QUERY.round)
        remaining &= QUERY.round in store.charged and sealed is not None
        remaining &= sealed is not None and sealed.values.tolist() == values.tolist()

    for death in [*deaths, None, None]:
        try:
            run(Process(store, noise, death), publish)
        except Crash:
            remaining &= store.releases.keys() == store.charged.keys()
    return remaining and len({tuple(values) for values in published}) == 1


@given(st.lists(st.sampled_from([*POINTS, None]), max_size=8))
@example(list(POINTS))
@example(list(reversed(POINTS)))
def test_one_charged_answer_is_published_for_any_sequence_of_crashes(deaths: list[str | None]) -> None:
    assert is_safe(honest, deaths)


@pytest.mark.parametrize("death", POINTS)
def test_a_crash_before_the_seal_draws_again_and_after_it_does_not(death: str) -> None:
    store, noise = MemoryStore(), FixedNoise()
    with pytest.raises(Crash):
        honest(Process(store, noise, death), lambda values: None)
    answers: list[list[int]] = []
    for _ in range(2):
        honest(Process(store, noise, None), lambda values: answers.append(values.tolist()))
    assert answers[0] == answers[1]
    assert store.events.count("seal") == 1
    again = death in ("after draw", "before seal")
    assert store.events.count("draw") == (2 if again else 1)


class Source(OsNoise):
    """A noise source that returns whatever it is told to."""

    private = False

    def __init__(self, drawn: Any) -> None:
        self.drawn = drawn

    def draw(self, spec: NoiseSpec) -> IntArray:
        return np.asarray(self.drawn)


@pytest.mark.parametrize(
    "drawn",
    [[0.5, 1.5, 2.5], [1.0, 2.0, 3.0], [7], 7, [1, 2, 3, 4], [[1, 2, 3]], [True, False, True], [2**63, 0, 0]],
)
def test_noise_of_another_type_or_length_reaches_no_release(drawn: Any) -> None:
    """Float noise, one value for all entries (numpy would spread it), the wrong number. That a draw failed
    may tell of it, so it is paid for before anybody hears of it."""
    store = MemoryStore()
    with refused(Code.BUG, "noise"):
        barrier.release(QUERY, TOTAL, (), plan=PLAN, journal=store, noise=Source(drawn))
    assert (store.releases, store.charged) == ({}, {QUERY.round: QUERY.digest})


@pytest.mark.parametrize("name", every_query())
def test_a_release_is_the_sum_plus_the_draw_and_states_its_cost(name: str) -> None:
    query = every_query()[name]
    round_query = a_query(query, plan_digest=PLAN.digest, round=4)
    total = frozen(np.arange(query.length))
    released = barrier.release(
        round_query, total, ("north",), plan=PLAN, journal=MemoryStore(), noise=FixedNoise(41)
    )
    assert (released.values - total).tolist() == [42] * query.length
    assert (released.round, released.query, released.present) == (4, round_query.digest, ("north",))
    assert released.micro_rho == round_query.priced.micro_rho
    assert released.sigma == noise_spec(query, round_query.priced.micro_rho, PLAN.study.neighbours).sigma


def test_a_query_of_another_plan_is_refused() -> None:
    with refused(Code.BUG, "another plan"):
        barrier.release(a_query(SUM), TOTAL, (), plan=PLAN, journal=MemoryStore(), noise=FixedNoise())


@pytest.mark.parametrize("total", [np.zeros(3), np.zeros(2, int), np.zeros((3, 1), int), np.zeros(3, bool)])
def test_a_sum_of_the_wrong_shape_or_type_is_refused_before_anything_is_charged(total: IntArray) -> None:
    store = MemoryStore()
    with refused(Code.BUG, "shape or type"):
        barrier.release(QUERY, total, (), plan=PLAN, journal=store, noise=FixedNoise())
    assert store.events == []


def test_a_round_sealed_for_another_query_is_never_served() -> None:
    store = MemoryStore()
    barrier.release(QUERY, TOTAL, (), plan=PLAN, journal=store, noise=FixedNoise())
    other = a_query(SUM, plan_digest=PLAN.digest, micro_rho=QUERY.priced.micro_rho + 1)
    with refused(Code.BUG, "another query"):
        barrier.release(other, TOTAL, (), plan=PLAN, journal=store, noise=FixedNoise())


def test_a_different_sum_after_the_seal_changes_nothing() -> None:
    """A late site cannot be differenced out: the first bytes are served for ever."""
    store = MemoryStore()
    first = barrier.release(QUERY, TOTAL, (), plan=PLAN, journal=store, noise=FixedNoise())
    later = barrier.release(QUERY, TOTAL + 100, ("late",), plan=PLAN, journal=store, noise=FixedNoise())
    assert later.digest == first.digest
