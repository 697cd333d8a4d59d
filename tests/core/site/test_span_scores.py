"""[P16] Scores of spans of records: exact, and moved by 0 or 1 by one record; and what the printed algorithm
does."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.queries import SpanGap
from eigenveil.queries.papers.fingerprints import Pool
from eigenveil.site.subspaces import candidate_spans, top_two_scores
from eigenveil.study.grid import GridRows

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
