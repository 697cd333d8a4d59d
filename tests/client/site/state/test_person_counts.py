"""[P34] A site's number of persons is noised once, charged with its draw, and the same for ever after."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from eigenveil.accounting.budget import PrivacyBudget
from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code
from eigenveil.noise.source import NoiseSpec
from eigenveil.numerics.encoding import IntArray
from eigenveil_client.site.policy_sections import Year, YearlyLimit
from eigenveil_client.site.state.person_counts import STUDY
from eigenveil_client.site.state.store import SiteStore
from tests.client.site.support import Stage, killed_at
from tests.support import FixedNoise, refused

COST = 379  # micro-rho
PERSONS = 250


class RecordedNoise(FixedNoise):
    def __init__(self) -> None:
        super().__init__(start=7)
        self.specs: list[NoiseSpec] = []

    def draw(self, spec: NoiseSpec) -> IntArray:
        self.specs.append(spec)
        return super().draw(spec)


def never() -> int:
    raise AssertionError("the records were counted again")


def test_the_noise_is_the_gaussian_of_one_person_and_is_charged(store: SiteStore) -> None:
    noise = RecordedNoise()
    noised, sigma = store.person_counts.noised(lambda: PERSONS, COST, noise)
    (spec,) = noise.specs
    assert (noised, spec.length) == (PERSONS + noise.draws, 1)
    assert sigma == spec.sigma
    assert math.isclose(sigma**2, 10**6 / (2 * COST))
    assert sigma**2 >= 10**6 / (2 * COST) * (1 - 1e-12)
    ledger = store.ledger.ledger
    assert (ledger.spent.micro_rho, ledger.reserved, ledger.gaussian) == (COST, {}, True)
    store.egress.verify(store.ledger)  # no message left for this charge


def test_a_second_call_draws_counts_and_charges_nothing(stage: Stage, store: SiteStore) -> None:
    first = store.person_counts.noised(lambda: PERSONS, COST)
    noise = RecordedNoise()
    assert store.person_counts.noised(never, 5 * COST, noise) == first
    again = stage.store()
    assert again.person_counts.noised(never, COST, noise) == first
    assert (noise.specs, again.ledger.ledger.spent.micro_rho) == ([], COST)
    again.close()


@pytest.mark.parametrize("point", ["person-count-sealing", "person-count-sealed"])
def test_after_a_crash_the_charge_and_the_number_are_both_there_or_neither(stage: Stage, point: str) -> None:
    store = stage.store()
    with killed_at(point):
        store.person_counts.noised(lambda: PERSONS, COST, FixedNoise(start=7))
    store.close()
    store = stage.store()
    charged, stored = store.ledger.ledger.spent.micro_rho, store.person_counts.stored()
    sealed = point == "person-count-sealed"
    assert (charged, stored) == ((COST, (PERSONS + 8, COST)) if sealed else (0, None))
    count: Callable[[], int] = never if sealed else lambda: PERSONS
    noised, _ = store.person_counts.noised(count, COST, FixedNoise(start=70))
    assert noised == PERSONS + (8 if sealed else 71)
    assert (store.ledger.ledger.spent.micro_rho, store.ledger.ledger.reserved) == (COST, {})
    store.close()


def test_a_count_that_fails_leaves_nothing_reserved(store: SiteStore) -> None:
    with pytest.raises(AssertionError, match="counted again"):
        store.person_counts.noised(never, COST)
    assert (store.ledger.ledger.reserved, store.ledger.ledger.committed().micro_rho) == ({}, 0)
    assert store.person_counts.noised(lambda: PERSONS, COST)[1] > 0


def test_what_a_crash_left_reserved_is_the_cost(stage: Stage, store: SiteStore) -> None:
    with killed_at("person-count-sealing"):
        store.person_counts.noised(lambda: PERSONS, COST)
    store.person_counts.noised(lambda: PERSONS, 5 * COST)
    assert store.ledger.ledger.committed().micro_rho == COST


@pytest.mark.parametrize("during", ["count", "draw"])
def test_of_two_processes_both_have_the_number_of_the_first(
    stage: Stage, store: SiteStore, during: str
) -> None:
    other, first = stage.store(), list[tuple[int, float]]()

    def race(point: str) -> None:
        if point == during:
            first.append(other.person_counts.noised(lambda: PERSONS, COST))

    def count() -> int:
        race("count")
        return PERSONS + 10_000

    class Racing(FixedNoise):
        def draw(self, spec: NoiseSpec) -> IntArray:
            race("draw")
            return super().draw(spec)

    assert [store.person_counts.noised(count, COST, Racing())] == first
    assert store.ledger.ledger.committed().micro_rho == COST
    other.close()


def test_the_limit_of_a_year_holds(store: SiteStore) -> None:
    yearly = YearlyLimit(year=Year.ROLLING, budget=PrivacyBudget(mixed=Cost(micro_rho=COST - 1)))
    with refused(Code.BUDGET, "in one year"):
        store.noised_persons(lambda: PERSONS, COST, yearly)
    assert (store.ledger.ledger.reserved, store.person_counts.stored()) == ({}, None)


def test_without_budget_nothing_is_counted_or_drawn(store: SiteStore) -> None:
    noise = RecordedNoise()
    with refused(Code.BUDGET, "nothing was charged"):
        store.person_counts.noised(never, 10**9, noise)
    assert (noise.specs, store.person_counts.stored()) == ([], None)
    assert not store.ledger.charged_queries(STUDY)
