"""A plan that would ask without end is refused by whoever rehearses it, before it is agreed to."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any
from unittest import mock

import pytest

from eigenveil.errors import Code, RequestError
from eigenveil.planning import choose
from eigenveil.planning.choose import SIZES, check_all_sizes, rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.study.algorithm import Algorithm
from tests.support import a_plan, a_study, refused

PLAN = a_plan(algorithm=Algorithm.PRIVATE_OJA, batches=30, epsilon=5.0)


@pytest.mark.parametrize("limit", ["MAX_ROUNDS", "MAX_NUMBERS"])
def test_more_than_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    queries = rehearse(PLAN)
    round_query = len(queries) if limit == "MAX_ROUNDS" else sum(query.query.length for query in queries)
    monkeypatch.setattr(choose, limit, round_query)
    assert len(rehearse(PLAN)) == len(queries)
    monkeypatch.setattr(choose, limit, round_query - 1)
    with refused(Code.BAD_STUDY, "fewer batches"):
        rehearse(PLAN)


PRIVATE = [one for one in Algorithm if one.properties.private and not one.properties.single_records]
CHANGES: tuple[dict[str, Any], ...] = (
    {}, {"centring": False}, {"radius": 1.0}, {"delta": 0.0}, {"expected_records": 300},
)  # fmt: skip


EPSILONS = (0.01, 0.03, 0.06, 0.1, 0.2, 0.4, 1.0, 5.0)


def plans(algorithm: Algorithm, epsilon: float, changes: tuple[dict[str, Any], ...] = CHANGES) -> list[Plan]:
    """The plans that this algorithm has at this epsilon."""
    found = []
    for change in changes:
        try:
            found.append(a_plan(a_study(**{"epsilon": epsilon, **change}).with_algorithm(algorithm)))
        except RequestError:
            continue
    return found


@pytest.mark.parametrize("algorithm", PRIVATE)
def test_what_one_rehearsal_lets_pass_no_other_size_refuses(algorithm: Algorithm) -> None:
    """From budgets of which some share is below the least price to some far above it, each with two of the
    changes in turn."""
    rehearsals, known = 0, cache(rehearse)
    for i, epsilon in enumerate(EPSILONS):
        for plan in plans(algorithm, epsilon, (CHANGES[i % 5], CHANGES[(i + 2) % 5])):
            try:
                round_query = known(plan)
            except RequestError:
                continue
            refusals = [message for records in SIZES if (message := refusal(known, plan, records, None))]
            with mock.patch.object(choose, "rehearse", wraps=known) as again:
                message = refusal(check_all_sizes, plan, round_query)
            assert message in refusals if refusals else not message
            rehearsals += again.call_count
            assert epsilon < 1 or not again.called
    assert rehearsals or algorithm is not Algorithm.GAUSS_COV


def refusal(work: Callable[..., object], *args: object) -> str:
    """Text of a refusal; empty if none."""
    try:
        work(*args)
    except RequestError as problem:
        return str(problem)
    return ""
