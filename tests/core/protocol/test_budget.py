"""[P9] A batch is free only in a pass that was charged: queries that the session refuses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from eigenveil.algorithms import ALGORITHMS, Steps
from eigenveil.errors import Code
from eigenveil.numerics.encoding import frozen
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseDistribution, PricedQuery
from eigenveil.protocol.rounds import Release
from eigenveil.queries import Batch, CoordinateHistograms, Count, Gradient, GradientSpec
from eigenveil.queries.gradients import pass_key
from eigenveil.session import Session
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Extraction
from tests.support import a_plan, refused

PARTS, COST = 4, 100
Script = list[Callable[[Plan], PricedQuery]]


def a_plan_by_parts() -> Plan:
    return a_plan(d=2, algorithm=Algorithm.PRIVATE_OJA, batches=PARTS)


def gradient(part: Batch | None = None) -> Gradient:
    one, zero = np.ones((2, 1), dtype=np.int64), np.zeros((2, 1), dtype=np.int64)
    field = GradientSpec(centre=frozen([0, 0]), directions=one, offset=zero, shift=0)
    return Gradient(spec=field, radius=2**20, batch=part)


def about(first: int, index: int, charge: int = COST, parts: int = PARTS) -> Callable[[Plan], PricedQuery]:
    """Part `index` of the pass that began in round `first`."""

    def priced(plan: Plan) -> PricedQuery:
        part = Batch(first_round=first, index=index, batches=parts, key=pass_key(plan.digest, first, parts))
        return PricedQuery(query=gradient(part), micro_rho=charge)

    return priced


def whole(charge: int = COST) -> Callable[[Plan], PricedQuery]:
    return lambda plan: PricedQuery(query=gradient(), micro_rho=charge)


def play(script: Script, monkeypatch: pytest.MonkeyPatch) -> int:
    """Charge of the session for a script of queries."""

    def steps(plan: Plan) -> Steps:
        for one in script:
            yield one(plan)
        yield PricedQuery(query=Count(), micro_rho=1)
        raise AssertionError

    plan = a_plan_by_parts()
    monkeypatch.setitem(ALGORITHMS, Algorithm.PRIVATE_OJA, steps)
    session = Session(plan)
    for _ in script:
        query = session.pending
        assert query is not None
        session.feed(Release.of(query, frozen(np.zeros(query.query.length, dtype=np.int64)), 1.0, ()))
    return session.spent.micro_rho


def test_a_pass_is_charged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert play([about(0, i) for i in range(PARTS)], monkeypatch) == COST
    assert play([whole(), about(1, 0), about(1, 1, 40), about(3, 0), about(3, 1)], monkeypatch) == 3 * COST


BROKEN: dict[str, tuple[Script, Code]] = {
    "its pass never began": ([whole(), about(0, 1)], Code.BUDGET),
    "it costs more than was paid": ([about(0, 0), about(0, 1, COST + 1)], Code.BUDGET),
    "another number of parts": ([about(0, 0, parts=PARTS + 1)], Code.BAD_STUDY),
    "the wrong round": ([about(0, 0), about(0, 2)], Code.OVERFLOW),
    "a pass in the middle of which it says it began": ([about(0, 0), about(0, 1), about(1, 1)], Code.BUDGET),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_batch_of_an_unpaid_pass_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first was found here: any dear query in the first round passed for a payment."""
    script, code = BROKEN[name]
    with refused(code):
        play(script, monkeypatch)


def test_gaussian_noise_and_histograms_are_refused_under_basic_composition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Gaussian noise has no epsilon of its own, and histograms side by side are priced as zCDP."""
    plan = a_plan(d=2, algorithm=Algorithm.SUBSPACE_EXACT)
    coordinates = CoordinateHistograms(spec=gradient().spec, width=5, half=2)
    for priced in (
        PricedQuery(query=Count(), micro_rho=1),
        PricedQuery(query=coordinates, micro_rho=1, atto_delta=1, distribution=NoiseDistribution.STABILITY),
    ):

        def steps(plan: Plan, priced: PricedQuery = priced) -> Steps:
            yield priced
            raise AssertionError

        monkeypatch.setitem(ALGORITHMS, Algorithm.SUBSPACE_EXACT, steps)
        with refused(Code.BUDGET, "epsilon"):
            Session(plan)


def test_deflation_is_refused_where_there_is_no_choice() -> None:
    for algorithm in (Algorithm.DP_PCA, Algorithm.GAUSS_COV):
        with refused(Code.BAD_STUDY, algorithm.value, "at once"):
            a_plan(d=3, components=2, algorithm=algorithm, rank=Extraction.DEFLATION)
    for algorithm in (Algorithm.PRIVATE_OJA, Algorithm.DP_PCA_SINGLE_PASS):
        assert a_plan(d=3, components=2, algorithm=algorithm, rank=Extraction.DEFLATION).batches > 1
