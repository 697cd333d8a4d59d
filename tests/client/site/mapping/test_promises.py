"""[P34] Promises follow from one noised number: rounded, and wide enough for the noise in it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eigenveil.accounting.budget import NoiseRule, reported_epsilon
from eigenveil.errors import RequestError
from eigenveil.planning.choose import rehearse
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Column
from eigenveil_client.records.scratch_files import SYSTEM
from eigenveil_client.records.summary import RecordsSummary
from eigenveil_client.site.config import EngineConfig
from eigenveil_client.site.engine.engine import LocalEngine
from eigenveil_client.site.mapping.promises import (
    USUAL,
    count_cost,
    rounded_down,
    rounded_up,
    size_promises,
)
from eigenveil_client.site.policy import Policy
from tests.client.site.support import a_plan, a_study

COLUMNS = tuple(Column(name=f"c{i}", unit="1", lower=0, upper=1) for i in range(300))
ONE_TWO_FIVE = [step * 10**power for power in range(9) for step in (1, 2, 5)]


@given(st.floats(min_value=1, max_value=5e8))
def test_numbers_are_rounded_to_1_2_or_5_times_a_power_of_ten(value: float) -> None:
    assert rounded_down(value) == max(one for one in ONE_TWO_FIVE if one <= value)
    assert rounded_up(value) == min(one for one in ONE_TWO_FIVE if one >= value)


@given(st.integers(1, 10**7), st.floats(-2.5, 2.5), st.integers(1, 2000))
@example(persons=110, error=-2.5, columns=1)
def test_promises_hold_for_the_true_number_and_for_twice_of_it(
    persons: int, error: float, columns: int
) -> None:
    sigma = math.sqrt(10**6 / (2 * count_cost(Policy())))
    found = size_promises(persons + round(error * sigma), sigma, columns)
    assert found.minimum_records <= max(Policy().minimum_records, persons)
    assert found.maximum_records >= min(2 * persons, USUAL)
    wide = min(columns, 2 * found.minimum_records)  # more, no study may have
    assert found.memory_mib * 2**20 >= 2 * wide * found.maximum_records
    replace(Policy(), minimum_records=found.minimum_records, maximum_records=found.maximum_records)


@pytest.mark.parametrize(("persons", "suits"), [(5_100_000, True), (20_000_000, False)])
def test_usual_studies_suit_a_site_that_is_small_enough(persons: int, suits: bool) -> None:
    assert (size_promises(persons, 36.0, 20).maximum_records <= USUAL) is suits


def test_an_own_maximum_has_its_memory_and_a_place_above_the_minimum() -> None:
    own = {"maximum_records": 5_000_000}
    assert size_promises(60_000, 36.0, 20, own=own).memory_mib * 2**20 >= 2 * 20 * own["maximum_records"]
    with pytest.raises(RequestError, match=r"maximum_records = 900 .*contradicts minimum_records ="):
        size_promises(60_000, 36.0, 20, own={"maximum_records": 900})


@pytest.mark.parametrize("rule", NoiseRule)
def test_the_number_costs_at_most_the_epsilon_that_is_stated(rule: NoiseRule) -> None:
    policy = replace(Policy(), noise=rule)
    cost, exact = count_cost(policy), rule is NoiseRule.GAUSSIAN
    spent = [reported_epsilon(one, policy.budget_delta, gaussian_only=exact) for one in (cost, cost + 1)]
    assert spent[0] <= 0.1 < spent[1]


BATCHED = (Algorithm.PRIVATE_OJA, Algorithm.DP_PCA_SINGLE_PASS)
ALLOWED = replace(
    Policy(), analysts=("*",), noise=NoiseRule.ANY, algorithms=tuple(one.value for one in BATCHED),
    max_epsilon_per_study=100.0,
)  # fmt: skip


@pytest.mark.parametrize("algorithm", BATCHED)
def test_a_large_site_answers_algorithms_in_batches_once_its_sizes_are_promised(algorithm: Algorithm) -> None:
    found = size_promises(60_000, 36.0, 300)
    plan = a_plan(a_study(algorithm=algorithm, max_records=found.maximum_records))
    promised = replace(ALLOWED, minimum_records=found.minimum_records, maximum_records=found.maximum_records)
    failed = [
        [one.rule for one in policy.verdicts(plan, 0) if not one.passed] for policy in (promised, ALLOWED)
    ]
    assert failed == [[], ["minimum_records_per_batch"]]
    settings = EngineConfig(memory_mib=found.memory_mib)
    queries = rehearse(plan)
    wide = a_study(algorithm=algorithm, max_records=found.maximum_records, columns=COLUMNS)
    for study in (plan.study, wide):
        engine = LocalEngine(unread, settings, SYSTEM, found.maximum_records)
        assert engine.check(a_plan(study), queries).passed
    small = LocalEngine(unread, EngineConfig(), SYSTEM, found.maximum_records)
    assert not small.check(a_plan(wide), queries).passed


def unread(*_: object) -> RecordsSummary:
    raise AssertionError("the records were read")
