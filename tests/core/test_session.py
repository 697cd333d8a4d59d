"""[P4] [P7] The log of releases is the state of a session, and the cost of its plan is never exceeded."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil import barrier
from eigenveil.aggregation import aggregate
from eigenveil.algorithms import ALGORITHMS, Estimate
from eigenveil.errors import Code
from eigenveil.noise.seeded import SeededNoise
from eigenveil.numerics.encoding import frozen
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import PricedQuery
from eigenveil.protocol.rounds import Release
from eigenveil.queries import Count, Gram
from eigenveil.queries.limits import row_norm_limit
from eigenveil.session import Session
from eigenveil.site.site import Site
from eigenveil.study.algorithm import Algorithm
from tests.support import MemoryStore, a_plan, random_rows, refused

ALL = [Algorithm.GAUSS_COV, Algorithm.DP_PCA]


def run(plan: Plan, seed: int = 1) -> Session:
    sites = {name: Site(random_rows(300, plan.study.dimension, seed=i)) for i, name in enumerate("ab")}
    session, store, noise = Session(plan), MemoryStore(), SeededNoise(seed)
    while (round_query := session.pending) is not None:
        total = aggregate(round_query, {name: site.answer(round_query.query) for name, site in sites.items()})
        session.feed(barrier.release(round_query, total, ("a", "b"), plan=plan, journal=store, noise=noise))
    return session


@pytest.fixture(scope="module", params=ALL, ids=lambda a: a.value)
def finished(request: pytest.FixtureRequest) -> Session:
    return run(a_plan(d=3, components=2, algorithm=request.param))


def test_replaying_any_prefix_gives_the_same_next_query(finished: Session) -> None:
    live = Session(finished.plan)
    for size in range(len(finished.releases) + 1):
        again = Session.replay(finished.plan, finished.releases[:size])
        if live.pending is None:
            assert again.pending is None
            assert again.result.components.tobytes() == finished.result.components.tobytes()
            return
        assert again.pending is not None
        assert again.pending.digest == live.pending.digest
        assert again.spent == live.spent
        live.feed(finished.releases[size])


WRONG: dict[str, dict[str, Any]] = {
    "another round": {"round": 1},
    "another query": {"query": "ab" * 32},
    "another price": {"micro_rho": 1},
    "too few numbers": {"values": frozen([])},
    "too many numbers": {"values": frozen([1, 2])},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_release_that_answers_something_else_is_refused(finished: Session, name: str) -> None:
    session = Session(finished.plan)
    with refused(Code.BUG, "round"):
        session.feed(replace(finished.releases[0], **WRONG[name]))
    assert session.spent.micro_rho == 0
    session.feed(finished.releases[0])


def test_releases_of_another_plan_or_out_of_order_are_refused(finished: Session) -> None:
    other = a_plan(d=3, components=2, algorithm=finished.plan.algorithm, name="other")
    with refused(Code.BUG):
        Session.replay(other, finished.releases)
    with refused(Code.BUG):
        Session.replay(finished.plan, finished.releases[::-1])
    with refused(Code.BUG, "without a pending query"):
        Session.replay(finished.plan, [*finished.releases, finished.releases[-1]])


def test_there_is_no_result_before_the_end(finished: Session) -> None:
    for size in (0, len(finished.releases) - 1):
        with refused(Code.NOT_READY):
            _ = Session.replay(finished.plan, finished.releases[:size]).result


def spendthrift(costs: list[int]) -> Any:
    """An algorithm that asks at whatever prices it is given."""

    def steps(plan: Plan) -> Generator[PricedQuery, Release, Estimate]:
        for cost in costs:
            yield PricedQuery(query=Count(), micro_rho=cost)
        raise AssertionError("the session let everything pass")

    return steps


@given(data=st.data())
def test_no_algorithm_spends_more_than_its_plan(data: st.DataObject) -> None:
    """Even one that tries: it is stopped before the query that would exceed the plan is asked."""
    plan = a_plan(d=2)
    costs = data.draw(st.lists(st.integers(1, plan.micro_rho), min_size=1, max_size=12))
    costs.append(plan.micro_rho + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ALGORITHMS, Algorithm.GAUSS_COV, spendthrift(costs))
        with refused(Code.BUDGET, "exceed"):
            drain(plan)


def drain(plan: Plan) -> None:
    session = Session(plan)
    while (query := session.pending) is not None:
        assert session.spent.micro_rho + query.priced.micro_rho <= plan.micro_rho
        session.feed(Release.of(query, frozen([0]), 1.0, ()))


def test_a_query_with_sums_that_could_overflow_is_not_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = a_plan(d=2, max_records=2**31)

    def steps(plan: Plan) -> Generator[PricedQuery, Release, Estimate]:
        query = Gram(centre=frozen(range(4096)), radius=row_norm_limit(4096))
        yield PricedQuery(query=query, micro_rho=1)
        raise AssertionError

    monkeypatch.setitem(ALGORITHMS, Algorithm.GAUSS_COV, steps)
    with refused(Code.OVERFLOW, "max_records"):
        Session(plan)
