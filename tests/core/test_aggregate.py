"""What a site can send is checked before it is added; what is added is added exactly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.aggregate import Contribution, aggregate, validate
from eigenveil.asks import Ask
from eigenveil.errors import Code
from eigenveil.ints import IntArray, frozen
from eigenveil.site import Site
from tests.support import a_query, every_ask, random_rows, refused

MOST = 500
ASKS = every_ask()


def answered(ask: Ask, values: IntArray | list[int]) -> Contribution:
    query = a_query(ask)
    return Contribution(
        plan_digest=query.plan_digest, round=0, query=query.digest, site="north", values=frozen(values)
    )


@pytest.mark.parametrize("name", ASKS)
@pytest.mark.parametrize("records", [0, 1, MOST])
def test_an_honest_answer_passes(name: str, records: int) -> None:
    said = Site(random_rows(MOST, 4)[:records]).answer(ASKS[name])
    validate(a_query(ASKS[name]), answered(ASKS[name], said), MOST)


@pytest.mark.parametrize("name", ASKS)
def test_a_value_beyond_what_the_records_can_add_up_to_is_refused(name: str) -> None:
    ask = ASKS[name]
    most = ask.bound() * MOST
    for value in (most + 1, -most - 1, 2**63 - 1, -(2**63)):
        with refused(Code.BAD_CONTRIBUTION, "north", "nothing was added"):
            validate(a_query(ask), answered(ask, [0] * (ask.length - 1) + [value]), MOST)


@pytest.mark.parametrize("name", ["count", "row-norms", "energy", "gradient-norms"])
def test_what_cannot_be_negative_is_not(name: str) -> None:
    ask = ASKS[name]
    with refused(Code.BAD_CONTRIBUTION):
        validate(a_query(ask), answered(ask, [0] * (ask.length - 1) + [-1]), MOST)


@pytest.mark.parametrize("name", ["row-norms", "gradient-norms"])
def test_a_histogram_holds_no_more_records_than_a_site_may_have(name: str) -> None:
    ask = ASKS[name]
    fits = [MOST - ask.length + 1] + [1] * (ask.length - 1)
    validate(a_query(ask), answered(ask, fits), MOST)
    with refused(Code.BAD_CONTRIBUTION):
        validate(a_query(ask), answered(ask, [fits[0] + 1, *fits[1:]]), MOST)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"plan_digest": "cd" * 32}, "another plan"),
        ({"round": 1}, "round 2"),
        ({"query": "cd" * 32}, "another query"),
        ({"values": frozen([1, 2, 3])}, "3 numbers where 4 are due"),
        ({"values": frozen([])}, "0 numbers"),
        ({"values": frozen([[1, 2, 3, 4]])}, "numbers"),
    ],
)
def test_an_answer_to_something_else_is_refused(change: dict[str, Any], words: str) -> None:
    ask = ASKS["clipped-sum"]
    with refused(Code.BAD_CONTRIBUTION, "north", words):
        validate(a_query(ask), replace(answered(ask, [0, 0, 0, 0]), **change), MOST)


@pytest.mark.parametrize("bad", [[0.5], [float("nan")], [float("inf")], ["1"], [True]])
def test_a_contribution_is_made_of_integers_by_type(bad: list[Any]) -> None:
    with pytest.raises(TypeError):
        answered(ASKS["count"], bad)


@given(st.lists(st.integers(-(2**58), 2**58), max_size=8))
def test_a_sum_is_exact_and_free_of_order(values: list[int]) -> None:
    query = a_query(ASKS["count"])
    parts = {f"s{i}": frozen([value]) for i, value in enumerate(values)}
    turned = dict(reversed(parts.items()))
    assert aggregate(query, parts).tolist() == aggregate(query, turned).tolist() == [sum(values)]
