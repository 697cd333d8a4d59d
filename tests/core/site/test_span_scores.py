"""[P16] Scores of spans of records: exact, and moved by 0 or 1 by one record; and what the printed algorithm
does.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.mechanisms import apply_mechanism
from eigenveil.mechanisms.papers.subspaces import truncated_laplace, truncation_bound
from eigenveil.noise.source import OsNoise
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.protocol.query import PricedQuery, RoundQuery
from eigenveil.queries import SpanGap
from eigenveil.queries.papers.fingerprints import Pool
from eigenveil.site.subspaces import candidate_spans, top_two_scores
from eigenveil.study.grid import GridRows
from tests.support import DIGEST, a_study

EVERY = 28  # more records than a site has here, with few enough spans of up to four of them


def pool(rows: GridRows, k: int, most: int = EVERY) -> Pool:
    centre = np.zeros(rows.shape[1], dtype=np.int64)
    return Pool(centre=centre, rank=k, max_records=most, truncated=most < EVERY, key=np.arange(4))


def rank(rows: GridRows) -> int:
    return int(np.linalg.matrix_rank(rows)) if len(rows) else 0


def members(rows: GridRows, basis: GridRows) -> frozenset[int]:
    size = rank(basis)
    return frozenset(i for i, row in enumerate(rows) if rank(np.vstack([basis, row])) == size)


def by_hand(rows: GridRows, k: int) -> dict[frozenset[int], int]:
    """u of every span of k records, over every choice of records, by real elimination."""
    spans: list[set[frozenset[int]]] = []
    for size in range(k + 1):
        sampled_records = (
            rows[list(c)].reshape(size, rows.shape[1]) for c in combinations(range(len(rows)), size)
        )
        spans.append({members(rows, basis) for basis in sampled_records if rank(basis) == size})
    largest_subspan_count = set().union(*spans[:k])
    return {s: len(s) - max((len(t) for t in largest_subspan_count if t <= s), default=0) for s in spans[k]}


def some_rows(rng: np.random.Generator, most: int = 7) -> tuple[GridRows, int]:
    d = int(rng.integers(1, 4))
    rows = rng.integers(-1, 2, (int(rng.integers(0, most)), d)).astype(np.int16)
    return rows, int(rng.integers(1, d + 1))


def test_every_span_and_its_score_are_found() -> None:
    rng = np.random.default_rng(1)
    for _ in range(120):
        rows, k = some_rows(rng)
        found = {
            frozenset(np.flatnonzero(f.members).tolist()): f.score
            for f in candidate_spans(rows, pool(rows, k))
        }
        assert found == by_hand(rows, k)


def lead_moves(neighbours: Neighbours, pairs: int, most: int = EVERY) -> int:
    """The most that max(0, u1 - u2 - D) moves; whoever is named on both sides must be the same."""
    rng, worst, seen = np.random.default_rng(2), 0, 0
    changed = SpanGap(pool=pool(np.zeros((0, 1), dtype=np.int16), 1, most)).gap_sensitivity(neighbours)
    while seen < pairs:
        rows, k = some_rows(rng, 9)
        if not len(rows):
            continue
        left = top_two_scores(rows, pool(rows, k, most))
        lead = max(0, int(left[0] - left[1]) - changed)
        for out in range(len(rows)):
            other = np.delete(rows, out, axis=0)
            if neighbours is Neighbours.REPLACE_ONE:
                other = np.vstack([rng.integers(-1, 2, (1, rows.shape[1])).astype(np.int16), other])
            right = top_two_scores(other, pool(rows, k, most))
            moved = max(0, int(right[0] - right[1]) - changed)
            worst = max(worst, abs(moved - lead))
            assert not (lead and moved) or (left[2:] == right[2:]).all()
            assert (left[2:] == right[2:]).all() or lead == moved == 0
            seen += 1
    return worst


@pytest.mark.parametrize("pairs", [700, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("most", [EVERY, 5])  # of 5, a record may push another out
@pytest.mark.parametrize("neighbours", Neighbours)
def test_a_record_moves_the_lead_by_no_more_than_declared(
    neighbours: Neighbours, most: int, pairs: int
) -> None:
    moved = lead_moves(neighbours, pairs, most)
    assert moved <= 2 if most < EVERY else moved == (1 if neighbours is Neighbours.ADD_REMOVE else 2)


def printed(rows: GridRows, k: int, epsilon: float, delta: float) -> IntArray | None:
    """Planted fault: Algorithm 1 as printed: line 11 adds noise to every span and names the best."""
    best, best_score = None, -np.inf
    ranked = sorted(candidate_spans(rows, pool(rows, k)), key=lambda flat: -flat.score)
    second = ranked[1].score if len(ranked) > 1 else 0
    for place, flat in enumerate(ranked):
        lead = max(0, ranked[0].score - second - 1) if place == 0 else 0
        noise = truncated_laplace(1 / epsilon, truncation_bound(1 / epsilon, 1, delta), OsNoise()) or 0
        if lead + noise > best_score:
            best, best_score = flat.echelon_form, lead + noise
    return best


def repaired(rows: GridRows, k: int) -> IntArray:
    query = SpanGap(pool=pool(rows, k))
    round_query = RoundQuery(PricedQuery(query=query, micro_rho=500_000, atto_delta=10**12), DIGEST, 0)
    return apply_mechanism(
        round_query.priced, frozen(top_two_scores(rows, query.pool)), a_study(), OsNoise()
    ).values


def test_the_printed_algorithm_reveals_a_record_and_the_repaired_one_does_not() -> None:
    """Two neighbours told apart with probability 1: one record, and none. With more records and no lead, the
    span of one of them always comes out; of a neighbour without it, never."""
    alone = np.array([[3, 1, 4]], dtype=np.int16)
    isolated = np.array([[3, 1, 4], [1, 5, 9], [2, 6, 5]], dtype=np.int16)
    spans = [flat.echelon_form.tolist() for flat in candidate_spans(isolated, pool(isolated, 1))]
    for _ in range(50):
        assert printed(alone, 1, 1.0, 1e-6) is not None
        assert printed(alone[:0], 1, 1.0, 1e-6) is None
        found = printed(isolated, 1, 1.0, 1e-6)
        assert found is not None
        assert found.tolist() in spans
        for rows in (alone, alone[:0], isolated):
            assert not repaired(rows, 1).any()


def test_a_wide_lead_is_named() -> None:
    rng = np.random.default_rng(3)
    rows = (rng.integers(-9, 10, (60, 2)) @ rng.integers(-9, 10, (2, 5))).astype(np.int16)
    (flat,) = (f for f in candidate_spans(rows, pool(rows, 2, 100)))
    assert flat.score >= 50
    assert repaired(rows, 2).any()


def test_degenerate_records_score_nothing() -> None:
    for rows in (np.zeros((0, 3)), np.zeros((8, 3)), np.ones((8, 3))):
        assert not top_two_scores(rows.astype(np.int16), pool(rows.astype(np.int16), 2)).any()
    square = np.vstack([np.eye(2), [[1, 1], [2, 1]]]).astype(np.int16)
    assert top_two_scores(square, pool(square, 2))[:2].tolist() == [
        3,
        0,
    ]  # k = d: all records, less one in a line
