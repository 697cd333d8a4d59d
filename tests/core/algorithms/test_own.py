"""[P4] [P7] An algorithm of the user's own: held to its plan like any other, and run by no federation."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eigenveil import RequestError, simulate
from eigenveil.algorithms import (
    AlgorithmProperties,
    Count,
    CustomAlgorithm,
    Eigenvectors,
    Gram,
    NoiseDistribution,
    PricedQuery,
    S,
    as_custom_algorithm,
    locate,
    midpoint,
    no_release,
    query_at_share,
)
from eigenveil.algorithms.recommended.gauss_cov import gauss_cov
from eigenveil.errors import Code
from eigenveil.numerics.encoding import frozen
from eigenveil.protocol.plan import Plan, plan_for, plan_from_json
from eigenveil.queries import Preimage, SpanVotes
from eigenveil.queries.papers.fingerprints import Subsamples
from eigenveil.study.toml import parse_study
from tests.support import a_study, refused

STUDY = a_study(sites=("north",), components=2)
RECORDS = {"north": np.random.default_rng(1).normal(size=(400, 3)) * [20, 10, 5] + 50}
Steps = Generator[Any, Any, Any]


def asking(*queries: Any, share: float = 0.1) -> Callable[[Plan], Steps]:
    """An algorithm that asks these and releases nothing."""

    def requests(plan: Plan) -> Steps:
        for query in queries:
            yield query if isinstance(query, PricedQuery) else query_at_share(plan, query, share)
        return no_release(plan, 0.0, "it was only asking")

    return requests


MINE = CustomAlgorithm(steps=gauss_cov, properties=AlgorithmProperties(gaussian=True))


def trusted(*queries: Any) -> CustomAlgorithm:
    """The same, declared to work on exact sums."""
    return CustomAlgorithm(steps=asking(*queries), properties=AlgorithmProperties(trusted=True))


def plan_of(algorithm: Any, **names: Any) -> Plan:
    """The plan of a simulation that runs it."""
    return plan_for(STUDY, as_custom_algorithm(algorithm), **{"federation": "", "submission": "one", **names})


def test_a_named_algorithm_run_as_ones_own_gives_the_same_bits() -> None:
    named, mine = (simulate(STUDY, RECORDS, seed=3, algorithm=one) for one in (None, MINE))
    assert mine.estimate.components.tobytes() == named.estimate.components.tobytes()
    assert [r.values.tolist() for r in mine.releases] == [r.values.tolist() for r in named.releases]
    assert sum(r.micro_rho for r in mine.releases) == sum(r.micro_rho for r in named.releases)
    assert mine.document["plan"]["algorithm"] == "custom:gauss_cov"


def test_no_federation_can_be_given_it() -> None:
    for names in ({"federation": "clinic"}, {"analyst": "ada"}):
        with refused(Code.BAD_STUDY, "runs in simulations only"):
            plan_of(gauss_cov, **names)
    with refused(Code.PROTOCOL, "custom:gauss_cov"):  # what sites and a coordinator that resumes read
        plan_from_json(plan_of(gauss_cov).to_json())
    with refused(Code.BAD_STUDY, "algorithm = 'custom:gauss_cov' is unknown"):
        privacy = "[privacy]\nepsilon = 1.0\ndelta = 1e-6\n[federation]\nsites = ['a']"
        parse_study(f'name = "x"\nalgorithm = "custom:gauss_cov"\ncomponents = 1\n{privacy}')
    with refused(Code.BAD_STUDY, "is unknown"):
        replace(STUDY, algorithm=as_custom_algorithm(gauss_cov))  # type: ignore[arg-type]


def test_a_budget_is_spent_once() -> None:
    run = simulate(STUDY, RECORDS, algorithm=asking(Count(), Count(), share=0.5))
    assert [r.micro_rho for r in run.releases] == [run.plan.micro_rho // 2] * 2
    assert run.estimate.declined == "it was only asking"
    with refused(Code.BUDGET, "round 3 would exceed"):
        simulate(STUDY, RECORDS, algorithm=asking(Count(), Count(), Count(), share=0.5))


CENTRE = midpoint(STUDY)
MATRIX = Gram(centre=CENTRE, radius=S)
VECTORS = Eigenvectors(centre=CENTRE, radius=S, records=STUDY.max_records, count=1)
BLOCKS = Subsamples(centre=CENTRE, rank=1, count=2, key=frozen([1, 2, 3, 4]))
WRONG: dict[str, tuple[Any, Code, str]] = {
    "no query": (asking(PricedQuery(query=5, micro_rho=5)), Code.BAD_ARGUMENT, "yielded int"),  # type: ignore[arg-type]
    "nothing priced": (lambda plan: (yield 7), Code.BAD_ARGUMENT, "yielded int; yield PricedQuery"),
    "half a price": (
        asking(PricedQuery(query=Count(), micro_rho=2.5)),  # type: ignore[arg-type]
        Code.BAD_ARGUMENT,
        "at 2.5 micro-rho; a cost must be an int",
    ),
    "a delta of its own": (
        asking(PricedQuery(query=Count(), micro_rho=5, atto_delta=1)), Code.BUDGET, "would exceed"
    ),
    "stability of sums": (
        asking(PricedQuery(query=MATRIX, micro_rho=5, distribution=NoiseDistribution.STABILITY)),
        Code.BAD_ARGUMENT,
        "not a query of counts",
    ),
    "too small a radius": (asking(Gram(centre=CENTRE, radius=1)), Code.OVERFLOW, "below the public floor"),
    "another study's columns": (
        asking(Gram(centre=frozen([0]), radius=S)), Code.OVERFLOW, "differ in the number of columns"
    ),
    "exact sums, undeclared": (asking(VECTORS), Code.BAD_ARGUMENT, "AlgorithmProperties\\(trusted=True\\)"),
    "too few records": (trusted(replace(VECTORS, records=1)), Code.BAD_ARGUMENT, "use plan.most_records"),
    "eigenvalue-votes": (trusted(SpanVotes(subsamples=BLOCKS)), Code.BAD_ARGUMENT, "are allowed"),
    "a preimage": (
        trusted(Preimage(fingerprint=BLOCKS.key, voting_sites=frozen([0]), subsamples=BLOCKS)),
        Code.BAD_ARGUMENT,
        "are allowed",
    ),
    "no estimate": (lambda plan: (yield from locate(plan)), Code.BAD_ARGUMENT, "returned LocationEstimate"),
    "no generator": (lambda plan: 5, Code.BAD_ARGUMENT, "is not a generator function"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_an_invalid_query_of_a_custom_algorithm_is_refused(name: str) -> None:
    algorithm, code, message = WRONG[name]
    with pytest.raises(RequestError, match=message) as caught:
        simulate(STUDY, RECORDS, algorithm=algorithm)
    assert caught.value.code is code


def test_what_it_declares_it_may_do() -> None:
    run = simulate(STUDY, RECORDS, algorithm=trusted(VECTORS))
    assert "floating point" in run.document["guarantee"]["text"]
    pure = CustomAlgorithm(steps=asking(Count()), properties=AlgorithmProperties(pure=True))
    none = replace(STUDY, delta=0.0)
    assert simulate(none, RECORDS, algorithm=pure).document["guarantee"]["delta"] == 0
    with refused(Code.BAD_STUDY, "custom:requests cannot run at delta = 0"):
        simulate(none, RECORDS, algorithm=asking(Count()))
    noisy = asking(PricedQuery(query=Count(), micro_rho=5))
    with refused(Code.BUDGET, "no epsilon to add up"):
        simulate(none, RECORDS, algorithm=replace(pure, steps=noisy))
    for reference in (AlgorithmProperties(private=False), AlgorithmProperties(single_records=True)):
        with refused(Code.BAD_ARGUMENT, "work on sums over many records"):
            CustomAlgorithm(steps=gauss_cov, properties=reference)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"components": np.eye(3), "explained_variance": np.ones(3)}, "3 components; return at most 2"),
        ({"components": np.eye(3)[:, :2]}, "components of shape"),
        ({"components": 2 * np.eye(2, 3)}, "return at most 2, orthonormal"),
        ({"mean": np.full(3, np.nan)}, "mean with a value that is not finite"),
        ({"components": 3.0}, "components of shape ()"),
        ({"records": "many"}, "records of shape"),
        ({"explained_variance": np.zeros(1)}, "explained_variance of shape"),
        ({"covariance": np.zeros((2, 2))}, "covariance of shape"),
    ],
)
def test_an_estimate_that_cannot_be_one_is_refused(changes: dict[str, Any], message: str) -> None:
    def wrong(plan: Plan) -> Steps:
        return replace((yield from gauss_cov(plan)), **changes)

    with refused(Code.BAD_ARGUMENT, message):
        simulate(STUDY, RECORDS, seed=1, algorithm=wrong)
