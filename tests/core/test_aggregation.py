"""Contributions are checked before they are added, and added exactly."""

from __future__ import annotations

import tracemalloc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil import queries as q
from eigenveil.aggregation import Contribution, RunningTotal, aggregate, validate
from eigenveil.errors import Code
from eigenveil.numerics import linalg
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.queries.gradients import pass_key
from eigenveil.queries.limits import is_gram
from eigenveil.queries.papers.fingerprints import Subsamples
from eigenveil.site.site import Site
from eigenveil.study.grid import S
from tests.core.queries.kinds import covariance_queries, every_query
from tests.core.specification import COUNTS
from tests.support import DIGEST, a_field, a_query, random_rows, refused

MOST = 500
PART = q.Batch(first_round=0, index=0, batches=4, key=pass_key(DIGEST, 0, 4))
ONE = a_field(4, 1, pulls=False)
QUERIES: dict[str, q.Query] = {
    **every_query(),
    **covariance_queries(),
    "eigenvalue-votes": q.EigenvalueVotes(spec=ONE, edges=np.array([10, 100]), subsets=5),
    "votes, part": q.EigenvalueVotes(spec=ONE, edges=np.array([10, 100]), subsets=5, batch=PART),
    "gradient, part": q.Gradient(spec=ONE, radius=2**20, batch=PART),
    "gradient-norms, part": q.GradientNorms(spec=ONE, edges=np.array([10, 100]), batch=PART),
    "coordinates, part": q.CoordinateHistograms(spec=ONE, width=8, half=3, batch=PART),
    "shuffled-record": q.ShuffledRecord(spec=ONE, radius=2**20, batch=PART),
}


def answered(query: q.Query, values: IntArray | list[int]) -> Contribution:
    round_query = a_query(query)
    return Contribution(
        plan_digest=round_query.plan_digest,
        round=0,
        query=round_query.digest,
        site="north",
        values=frozen(values),
    )


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("records", [0, 1, 2, MOST])
def test_an_honest_answer_passes(name: str, records: int) -> None:
    message = Site(random_rows(MOST, 4)[:records]).answer(QUERIES[name])
    assert records or not message.any()
    for known in (range(MOST + 1), range(records, records + 1)):
        validate(a_query(QUERIES[name]), answered(QUERIES[name], message), known)


@pytest.mark.parametrize("name", QUERIES)
def test_a_value_beyond_what_the_records_can_add_up_to_is_refused(name: str) -> None:
    query = QUERIES[name]
    most = query.bound * MOST
    for value in (most + 1, -most - 1, 2**63 - 1, -(2**63)):
        with refused(Code.BAD_CONTRIBUTION, "north", "nothing was added"):
            validate(a_query(query), answered(query, [0] * (query.length - 1) + [value]), range(MOST + 1))


@pytest.mark.parametrize(
    "name", [name for name in QUERIES if q.NAMES[type(QUERIES[name])] in COUNTS | {"squared-norm-sum"}]
)
def test_a_negative_count_is_refused(name: str) -> None:
    query = QUERIES[name]
    with refused(Code.BAD_CONTRIBUTION):
        validate(a_query(query), answered(query, [0] * (query.length - 1) + [-1]), range(MOST + 1))


@pytest.mark.parametrize("name", ["row-norms", "gradient-norms", "cross-norms"])
def test_a_histogram_holds_no_more_records_than_a_site_may_have(name: str) -> None:
    query = QUERIES[name]
    fits = [MOST - query.length + 1] + [1] * (query.length - 1)
    validate(a_query(query), answered(query, fits), range(MOST + 1))
    with refused(Code.BAD_CONTRIBUTION):
        validate(a_query(query), answered(query, [fits[0] + 1, *fits[1:]]), range(MOST + 1))


def one_at(message: IntArray, place: int) -> IntArray:
    return frozen((np.arange(message.size) == place).astype(np.int64))


PLANTED: dict[str, Callable[[IntArray], Any]] = {
    "row-norms": lambda message: message + one_at(message, 0),  # one record more than counted
    "radius-search": lambda message: message - one_at(message, int(message.argmax())),
    "gradient-norms": lambda message: message + one_at(message, 1),
    "coordinates": lambda message: message + one_at(message, 5),  # in one coordinate only
    "clipped-sum": lambda message: message * 0 + 1024 * S * 300,  # each entry fits, the vector is too long
    "squared-norm-sum": lambda message: message * 0 + MOST * S**2 + 1,
    "gradient": lambda message: message * 0 + 2**27 * 250,
    "cross-norms": lambda message: message - one_at(message, 2),
    "cross-covariance": lambda message: message * 0 + 2**24 * 250,
    "coordinate-clipped-sum": lambda message: message + one_at(message, 0),  # a coordinate of half-width 0
    "gram": lambda message: message + one_at(message, 0) * MOST * S**2,  # the trace
    "spectrum": lambda message: message * np.where(np.arange(message.size) < 4, 1, 100),  # Cauchy-Schwarz
    "subspace": lambda message: np.array([1] * 4 + [-1] * 6) * 10**9,  # every pair may, all four together not
    "eigenvectors": lambda message: -message,
}


@pytest.mark.parametrize("name", PLANTED)
def test_an_answer_that_no_records_add_up_to_is_refused(name: str) -> None:
    """Each entry alone is within its limits: it is the answer as a whole that cannot be."""
    query = QUERIES[name]
    rows = random_rows(MOST, 4)
    message, known = Site(rows).answer(query), range(MOST, MOST + 1)
    validate(a_query(query), answered(query, message), known)
    with refused(Code.BAD_CONTRIBUTION, "cannot have"):
        validate(a_query(query), answered(query, frozen(PLANTED[name](message))), known)


@pytest.mark.parametrize("panel", [linalg.PANEL, 5])
@pytest.mark.parametrize("d", [1, 2, 7, 60])
@pytest.mark.parametrize("rank", [0, 1, 3, 60])
def test_no_honest_products_are_refused_for_rounding(
    d: int, rank: int, panel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of low rank, where the least eigenvalue is 0 and floats are off; up to the largest sums there are."""
    monkeypatch.setattr(linalg, "PANEL", panel)
    rng = np.random.default_rng(rank)
    for scale in (1, 2**10, 2**15):
        factors = rng.integers(-S, S, (rank, d), dtype=np.int64) * scale
        products = factors.T @ factors
        triangle = frozen(np.concatenate([np.diagonal(products), products[np.triu_indices(d, 1)]]))
        radius = int(np.sqrt((factors.astype(float) ** 2).sum(axis=1).max(initial=1))) + 2
        assert is_gram(triangle, d, radius, range(rank + 1))
        worse = triangle.copy()
        worse[0] -= products[0, 0] + 1
        assert not is_gram(worse, d, radius, range(rank + 1))


@pytest.mark.parametrize("panel", [linalg.PANEL, 1, 3])
@pytest.mark.parametrize("d", [3, 4, 8, 130])
def test_products_that_are_not_positive_semidefinite_are_refused(
    d: int, panel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only negative eigenvalue is that of all columns together, seen by the last panel alone."""
    monkeypatch.setattr(linalg, "PANEL", panel)
    ones, isolated = np.full(d, d * 1000, dtype=np.int64), np.full(d * (d - 1) // 2, 1000, dtype=np.int64)
    for entry, allowed in ((-1000, True), (-1000 * d // (d - 1) - 2, False)):
        triangle = np.concatenate(
            [ones - (d * 1000 - 1000 * (d - 1)) * (entry == -1000), isolated * 0 + entry]
        )
        assert is_gram(triangle, d, 10**4, range(d + 1)) == allowed


def test_two_threads_decide_as_one_about_a_least_eigenvalue_near_its_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every panel but the last ones is halved. The least eigenvalue is -1 to -3 units, and 0."""
    monkeypatch.setattr(linalg, "PANEL", 8)
    generator, d = np.random.default_rng(1), 90
    factors = generator.integers(-9, 10, (d - 1, d))
    products = factors.T @ factors
    for less, allowed in ((0, True), (1, False), (2, False), (3, False)):
        triangle = np.concatenate([np.diagonal(products) - less, products[np.triu_indices(d, 1)]])
        with ThreadPoolExecutor(2) as threads:
            for halved in (1, 4, d):  # from so many blocks on; d: never
                monkeypatch.setattr(linalg, "HALVED", halved)
                assert linalg.is_semidefinite(triangle, d, threads.map) == allowed


def test_a_large_answer_is_checked_and_added_in_half_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    d, factor = 400, linalg._factor
    used, stored = list[weakref.ref[Any]](), list[int]()

    def seen(panel: Any, mine: Any, blocks: Any, apply: Any) -> None:
        assert all(one() is None for one in used)  # nothing of the factor is kept that nobody needs
        factor(panel, mine, blocks, apply)
        used.append(weakref.ref(mine))
        stored.append(8 * sum(mine.shape) * sum(block.shape[1] for block in blocks))

    monkeypatch.setattr(linalg, "PANEL", 16)
    monkeypatch.setattr(linalg, "_factor", seen)
    round_query = a_query(q.Gram(centre=np.zeros(d, dtype=np.int64), radius=S))
    size, total = 8 * round_query.query.length, RunningTotal(round_query)
    tracemalloc.start()
    try:
        for site in "abc":
            message = round_query.query.assumed_release(MOST)
            contribution = answered(round_query.query, message)
            assert contribution.values is message
            del message
            tracemalloc.reset_peak()
            validate(round_query, contribution, range(MOST + 1))
            assert contribution.digest
            assert tracemalloc.get_traced_memory()[1] < 2.3 * size  # the sum and the answer
            assert max(stored) < 0.55 * size  # mapped, and so not traced
            total.add(site, contribution.values)
            gone = weakref.ref(contribution.values)
            del contribution
            assert gone() is None
        assert total.whole().tolist() == (3 * round_query.query.assumed_release(MOST)).tolist()
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"plan_digest": "cd" * 32}, "another plan"),
        ({"round": 1}, "round 2"),
        ({"query": "cd" * 32}, "another query"),
        ({"values": frozen([1, 2, 3])}, "3 numbers instead of 4"),
        ({"values": frozen([])}, "0 numbers"),
        ({"values": frozen([[1, 2, 3, 4]])}, "numbers"),
    ],
)
def test_an_answer_to_something_else_is_refused(change: dict[str, Any], words: str) -> None:
    query = QUERIES["clipped-sum"]
    with refused(Code.BAD_CONTRIBUTION, "north", words):
        validate(a_query(query), replace(answered(query, [0, 0, 0, 0]), **change), range(MOST + 1))


@given(st.lists(st.integers(-(2**58), 2**58), max_size=8))
def test_a_sum_is_exact_and_free_of_order(values: list[int]) -> None:
    query = a_query(QUERIES["count"])
    parts = {f"s{i}": frozen([value]) for i, value in enumerate(values)}
    turned = dict(reversed(parts.items()))
    assert aggregate(query, parts).tolist() == aggregate(query, turned).tolist() == [sum(values)]


def test_concatenated_answers_are_in_the_order_of_site_names() -> None:
    """A site's speed stays private, and a signed release is the same for the same answers."""
    spec = Subsamples(centre=frozen([0] * 4), rank=2, count=6, key=pass_key(DIGEST, 0, 6))
    query = q.SpanVotes(subsamples=spec)
    message = {site: np.full(query.length, number) for number, site in enumerate("abc")}
    for order in permutations(message):
        found = aggregate(a_query(query), {site: message[site] for site in order})
        assert found.tolist() == np.concatenate(list(message.values())).tolist()
