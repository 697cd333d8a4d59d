"""[P9] [P22] [P23] Queries about parts: what one record can change, by record and replay, exactly. Sampled:
at least 10,000 neighbour pairs for each kind and relation. For `votes`, whose answer is no sum over records,
every pair is two whole data sets. The planted fault is batches by position under add-remove."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from eigenveil import queries as q
from eigenveil.accounting.zcdp import Neighbours
from eigenveil.errors import Code
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.queries.gradients import pass_key
from eigenveil.queries.papers.single_pass import VOTE_LIMIT
from eigenveil.site.site import Site
from eigenveil.study.grid import GridRows, S
from tests.core.queries.kinds import one_direction
from tests.core.records import hostile_rows
from tests.support import DIGEST, a_field, random_rows, refused

PARTS = 5


def a_vote(d: int = 2, subsets: int = 3, seed: int = 1) -> q.EigenvalueVotes:
    return q.EigenvalueVotes(
        spec=one_direction(d, seed, shift=24), edges=frozen([4**j for j in range(1, 20)]), subsets=subsets
    )


def test_no_record_moves_more_than_one_vote_and_no_replaced_one_more_than_two() -> None:
    """Data sets of hostile records, each with every one of 100 more: 2,000 joins and 200,000 changes."""
    joins, most = 0, dict.fromkeys(Neighbours, (0, 0))
    for seed in range(20):
        query = a_vote(2, 3, seed % 7)
        rows = hostile_rows(116, query.spec.centre, S, seed)
        data, more = rows[:16], rows[16:]
        base = Site(data).answer(query)
        moved = np.array([Site(np.vstack([data, row])).answer(query) for row in more]) - base
        joins += len(moved)
        replaced = (moved[:, None] - moved[None, :]).reshape(-1, query.length)
        for neighbours, change in zip(Neighbours, (moved, replaced), strict=True):
            l1, l2 = most[neighbours]
            l1 = max(l1, int(np.abs(change).sum(axis=1).max()))
            most[neighbours] = (l1, max(l2, int((change**2).sum(axis=1).max())))
    assert joins == 2000
    for neighbours in Neighbours:
        assert most[neighbours] == (query.l1(neighbours), query.l2_squared(neighbours))


def test_votes_follow_their_definition() -> None:
    """One subset, worked out in plain Python: Rayleigh quotients of the pairs' differences."""
    query = a_vote(3, 1)
    rows = random_rows(40, 3)
    answer = Site(rows).answer(query)
    assert (answer.sum(), answer.max()) == (1, 1)
    z = rows.astype(object) - query.spec.centre.astype(object)
    g = z * (z @ query.spec.directions.astype(object)) // 2**query.spec.shift
    g = np.clip(g.astype(np.int64), -VOTE_LIMIT, VOTE_LIMIT).astype(float)
    spread = np.linalg.eigvalsh(np.cov(g.T))[-1]  # pairs or all: the same but for sampling
    assert abs(np.searchsorted(query.edges, spread) - int(answer.argmax())) <= 1


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_a_subset_without_a_pair_does_not_vote(n: int) -> None:
    assert Site(random_rows(n, 2)).answer(a_vote(2, 1)).sum() == (n >= 2)


# --- parts


def parts_of(query: q.GradientQuery) -> list[q.GradientQuery]:
    """The whole pass: `ask` about each part."""
    key = pass_key(DIGEST, 3, PARTS)
    return [
        replace(query, batch=q.Batch(first_round=3, index=i, batches=PARTS, key=key)) for i in range(PARTS)
    ]


def pass_queries() -> dict[str, q.GradientQuery]:
    field = one_direction(2)
    return {
        "gradient": q.Gradient(spec=field, radius=2**26),
        "gradient-norms": q.GradientNorms(spec=field, edges=frozen([2**j for j in range(20, 44, 2)])),
        "eigenvalue-votes": q.EigenvalueVotes(
            spec=field, edges=frozen([4**j for j in range(1, 20)]), subsets=2
        ),
        "coordinates": q.CoordinateHistograms(spec=field, width=2**8, half=16),
        "coordinate-clipped-sum": q.CoordinateClippedSum(
            spec=field, middles=np.zeros(2, dtype=np.int64), halves=np.full(2, 2**20)
        ),
    }


def neighbours_of(rows: GridRows, rng: np.random.Generator) -> Iterator[GridRows]:
    """One record more: new, or the twin of one that is there; first, last, or anywhere; then all mixed."""
    for record in (random_rows(1, rows.shape[1], seed=int(rng.integers(2**31))), rows[:1], rows[-1:]):
        for place in (0, len(rows), int(rng.integers(len(rows)))):
            more = np.insert(rows, place, record[0], axis=0)
            yield more
            yield rng.permutation(more)


def touched(query: q.GradientQuery, trials: int = 12) -> int:
    """In how many parts of a pass a record more changed the answer, at most; each change within its bound."""
    most = 0
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        rows = np.repeat(random_rows(30, 2, seed=seed), rng.integers(1, 4, 30), axis=0)
        base = whole_pass(rows, query)
        for more in neighbours_of(rows, rng):
            changed = [answer - was for answer, was in zip(whole_pass(more, query), base, strict=True)]
            most = max(most, sum(bool(change.any()) for change in changed))
    return most


def whole_pass(rows: GridRows, query: q.GradientQuery) -> list[IntArray]:
    one = Site(rows)
    return [one.answer(part) for part in parts_of(query)]


@pytest.mark.parametrize("kind", pass_queries())
def test_one_record_more_changes_one_part_wherever_it_stands(kind: str) -> None:
    assert touched(pass_queries()[kind]) == 1


def test_batches_are_disjoint_and_add_up_to_the_whole() -> None:
    rows = np.repeat(random_rows(60, 2), 4, axis=0)
    for kind in ("gradient", "gradient-norms", "coordinates", "coordinate-clipped-sum"):
        query = pass_queries()[kind]
        combined = sum(whole_pass(rows, query))
        assert np.array_equal(combined, Site(rows).answer(query))


@pytest.mark.parametrize("kind", pass_queries())
def test_replacing_is_at_least_twice_adding(kind: str) -> None:
    """[P9]: a replaced record leaves one part and joins another, each at half of the price."""
    query = pass_queries()[kind]
    assert isinstance(query, q.AdditiveQuery)
    add, replaced = Neighbours
    assert query.l2_squared(replaced) >= 2 * query.l2_squared(add)
    assert query.l1(replaced) >= 2 * query.l1(add)


def a_box(field: q.GradientSpec, halves: list[int]) -> q.GradientQuery:
    return q.CoordinateClippedSum(spec=field, middles=frozen([0] * len(halves)), halves=frozen(halves))


# Beside what is beyond every limit: test_conformance.
REFUSED: dict[str, Callable[[q.GradientSpec], q.GradientQuery]] = {
    "two directions": lambda f: q.EigenvalueVotes(spec=a_field(2, 2), edges=frozen([4]), subsets=1),
    "no subset": lambda f: q.EigenvalueVotes(spec=f, edges=frozen([4]), subsets=0),
    "no width": lambda f: q.CoordinateHistograms(spec=f, width=0, half=1),
    "a box of points": lambda f: a_box(f, [0, 0]),
    "a box inside out": lambda f: a_box(f, [-1, 1]),
    "a box of another d": lambda f: a_box(f, [1]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_invalid_parameter_of_a_query_is_refused(name: str) -> None:
    with refused(Code.OVERFLOW):
        REFUSED[name](one_direction(2))
