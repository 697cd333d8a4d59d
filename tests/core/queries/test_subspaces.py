"""The queries about subspaces as messages and as contributions: nothing malformed gets through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eigenveil import queries as q
from eigenveil.aggregation import Contribution, validate
from eigenveil.errors import Code
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.queries.papers.fingerprints import Cells, Pool, Subsamples, fingerprint
from eigenveil.site.site import Site
from tests.support import DIGEST, a_query, refused

CENTRE, KEY = np.array([3, -2, 0, 1]), np.arange(4) - 2**62
BLOCKS = Subsamples(centre=CENTRE, rank=2, count=6, key=KEY)
CELLS = Cells(centre=CENTRE, rank=2, count=6, key=KEY, points=5, width=2**30)
POOL = Pool(centre=CENTRE, rank=2, max_records=30, truncated=True, key=KEY)
PLACES = frozen([0, 1])
QUERIES: dict[str, q.SubspaceQuery] = {
    "block-ranks": q.BlockRanks(subsamples=BLOCKS),
    "span-votes": q.SpanVotes(subsamples=BLOCKS),
    "cell-votes": q.CellVotes(cells=CELLS, min_votes=7),
    "rank-votes": q.RankVotes(cells=CELLS),
    "span-gap": q.SpanGap(pool=POOL),
    "preimage of a span": q.Preimage(fingerprint=KEY, voting_sites=PLACES, subsamples=BLOCKS),
    "preimage of a cell": q.Preimage(fingerprint=KEY, voting_sites=PLACES, cells=CELLS),
    "preimage of the best span": q.Preimage(fingerprint=KEY, voting_sites=PLACES, pool=POOL),
}


def rows(n: int, seed: int = 1) -> Any:
    rng = np.random.default_rng(seed)
    return (rng.integers(-4, 5, (n, 2)) @ rng.integers(-4, 5, (2, 4)) + CENTRE).astype(np.int16)


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("n", [0, 1, 3, 40])
def test_an_answer_has_its_length_is_accepted_and_does_not_depend_on_order(name: str, n: int) -> None:
    query, data = QUERIES[name], rows(n)
    answer = Site(data).answer(query)
    assert answer.shape == (query.length,)
    assert (Site(data[::-1].copy()).answer(query) == answer).all()
    validate(a_query(query), contribution(query, answer), range(101))


def contribution(query: q.SubspaceQuery, values: IntArray, site: str = "anna") -> Contribution:
    round_query = a_query(query)
    return Contribution(plan_digest=DIGEST, round=0, query=round_query.digest, site=site, values=values)


REFUSED: list[tuple[str, Callable[[int], list[int]]]] = [
    ("block-ranks", lambda m: [2, 1, 3]),
    ("block-ranks", lambda m: [-1, 1, 3]),
    ("block-ranks", lambda m: [1, 2, 7]),
    ("block-ranks", lambda m: [2**62 + 1, -(2**63), 5 - 2**63]),  # rises, modulo 2**64
    ("span-gap", lambda m: [3, 4, 0, 0, 0, 0]),
    ("span-gap", lambda m: [101, 4, 0, 0, 0, 0]),
    ("span-gap", lambda m: [3, -4, 0, 0, 0, 0]),
    ("preimage of a span", lambda m: [1] * m),
    ("preimage of a cell", lambda m: [0] * (m - 1) + [1]),
    ("preimage of the best span", lambda m: [2] + [0] * (m - 1)),
    ("span-votes", lambda m: [0] * (m - 1)),
]


@pytest.mark.parametrize(("name", "values"), REFUSED)
def test_what_no_honest_site_sends_is_refused(name: str, values: Callable[[int], list[int]]) -> None:
    query = QUERIES[name]
    with refused(Code.BAD_CONTRIBUTION, "anna"):
        validate(a_query(query), contribution(query, frozen(values(query.length))), range(101))


MALFORMED: list[Callable[[], object]] = [
    lambda: replace(BLOCKS, rank=0),
    lambda: replace(BLOCKS, count=0),
    lambda: replace(BLOCKS, key=np.arange(3)),
    lambda: replace(CELLS, points=0),
    lambda: replace(CELLS, width=0),
    lambda: replace(POOL, rank=5),
    lambda: q.CellVotes(cells=CELLS, min_votes=0),
    lambda: q.RankVotes(cells=replace(CELLS, count=5)),
    lambda: q.Preimage(fingerprint=KEY, voting_sites=PLACES),
    lambda: q.Preimage(fingerprint=KEY, voting_sites=PLACES, subsamples=BLOCKS, pool=POOL),
    lambda: q.Preimage(fingerprint=KEY[:3], voting_sites=PLACES, subsamples=BLOCKS),
    lambda: q.Preimage(fingerprint=KEY, voting_sites=frozen([1, 1]), subsamples=BLOCKS),
    lambda: q.Preimage(fingerprint=KEY, voting_sites=frozen([1000]), subsamples=BLOCKS),
]


@pytest.mark.parametrize("malformed", MALFORMED)
def test_a_malformed_query_is_refused(malformed: Callable[[], object]) -> None:
    with refused(Code.OVERFLOW):
        malformed()


def test_another_number_of_columns_is_refused() -> None:
    with refused(Code.BAD_DATA, "4 columns"):
        Site(np.zeros((3, 5), dtype=np.int16)).answer(QUERIES["span-votes"])


def test_fingerprints_of_vectors_differ_by_length_and_value() -> None:
    marks = [fingerprint(frozen(v)).tolist() for v in ([], [0], [0, 0], [1], [-1], [1, 0])]
    assert len({tuple(mark) for mark in marks}) == len(marks)
    assert all(len(mark) == 4 and any(mark) for mark in marks)
