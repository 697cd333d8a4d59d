"""[P15] [P17] The most that one record changes among the votes of blocks, found by replay. For each kind
1,000 pairs (10,000 in slow runs): data sets of 0 to 14 small records with repeats and zeros, 1 to 4 columns,
dimensions up to the number of columns, 1 to 6 blocks, and every record of each taken out, the rest in another
order. What is found must not exceed what the query declares, and must reach it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.numerics.encoding import IntArray
from eigenveil.queries import BlockRanks, CellVotes, RankVotes, SpanVotes
from eigenveil.queries.papers.fingerprints import PRIME, Cells, Subsamples
from eigenveil.site import subspaces
from eigenveil.site.site import Site
from eigenveil.study.grid import GridRows

PAIRS = pytest.mark.parametrize("pairs", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
ONE = Neighbours.ADD_REMOVE


def sets(seed: int, widest: int = 4) -> Iterator[tuple[GridRows, int, int, IntArray]]:
    """Records, a dimension, a number of blocks and a key, without end."""
    rng = np.random.default_rng(seed)
    while True:
        d = int(rng.integers(1, widest + 1))
        basis = rng.integers(-2, 3, (int(rng.integers(1, d + 1)), d))
        rows = rng.integers(-2, 3, (int(rng.integers(0, 15)), len(basis))) @ basis
        strange = rng.random(len(rows)) < 0.2
        rows[strange] = rng.integers(-3, 4, (int(strange.sum()), d))
        k, parts = int(rng.integers(1, d + 1)), int(rng.integers(1, 7))
        yield rows.astype(np.int16), k, parts, rng.integers(0, 2**60, 4)


def blocks(rows: GridRows, k: int, parts: int, key: IntArray) -> Subsamples:
    return Subsamples(centre=np.zeros(rows.shape[1], dtype=np.int64), rank=k, count=parts, key=key)


def cells(rows: GridRows, k: int, parts: int, key: IntArray) -> Cells:
    centre = np.zeros(rows.shape[1], dtype=np.int64)
    return Cells(centre=centre, rank=k, count=2 * parts, key=key, points=2, width=2**31)


def span_votes(rows: GridRows, k: int, parts: int, key: IntArray) -> IntArray:
    return Site(rows).answer(SpanVotes(subsamples=blocks(rows, k, parts, key))).reshape(-1, 4)


def cell_votes(rows: GridRows, k: int, parts: int, key: IntArray) -> IntArray:
    return Site(rows).answer(CellVotes(cells=cells(rows, k, parts, key), min_votes=1)).reshape(-1, 4)


def rank_votes(rows: GridRows, k: int, parts: int, key: IntArray) -> IntArray:
    """All the votes of a subsample, whatever the dimension, in one row."""
    answer = Site(rows).answer(RankVotes(cells=cells(rows, k, parts, key)))
    return answer.reshape(k, 2 * parts, 4).transpose(1, 0, 2).reshape(2 * parts, -1)


Voting = Callable[[GridRows, int, int, IntArray], IntArray]


def tally(slots: IntArray) -> Counter[bytes]:
    return Counter(slot.tobytes() for slot in slots if slot.any())


def replayed(votes: Voting, pairs: int, seed: int) -> tuple[int, int]:
    """The most votes changed, and the most that their counts changed in L1, over `pairs` pairs."""
    rng, seen, slots_changed, l1 = np.random.default_rng(seed), 0, 0, 0
    for rows, k, parts, key in sets(seed):
        whole = votes(rows, k, parts, key)
        assert (votes(rng.permutation(rows), k, parts, key) == whole).all()
        for out in range(len(rows)):
            less = votes(np.delete(rows, out, axis=0), k, parts, key)
            slots_changed = max(slots_changed, int((less != whole).any(axis=1).sum()))
            left, right = tally(whole), tally(less)
            l1 = max(l1, sum(((left - right) + (right - left)).values()))
        seen += len(rows)
        if seen >= pairs:
            return slots_changed, l1
    raise AssertionError


@PAIRS
def test_a_record_more_changes_one_span_vote_and_never_into_another(pairs: int) -> None:
    key = np.arange(4)
    query = SpanVotes(subsamples=Subsamples(centre=np.zeros(3, dtype=np.int64), rank=2, count=3, key=key))
    assert replayed(span_votes, pairs, 1) == (1, query.l1(ONE)) == (1, 1)


@PAIRS
def test_a_record_more_changes_one_subsample_for_all_dimensions(pairs: int) -> None:
    assert replayed(rank_votes, pairs // 2, 3)[0] == 1
    assert replayed(cell_votes, pairs // 2, 2) == (1, 2)
    query = CellVotes(cells=cells(np.zeros((0, 3), dtype=np.int16), 2, 3, np.arange(4)), min_votes=1)
    assert query.l1(ONE) == 2


@PAIRS
def test_a_record_more_takes_one_from_one_count_of_ranks(pairs: int) -> None:
    seen, worst = 0, 0
    for rows, k, parts, key in sets(6):
        query = BlockRanks(subsamples=blocks(rows, k, parts, key))
        whole = Site(rows).answer(query)
        for out in range(len(rows)):
            change = Site(np.delete(rows, out, axis=0)).answer(query) - whole
            assert (change >= 0).all()
            worst = max(worst, int(change.sum()))
        seen += len(rows)
        if seen >= pairs:
            break
    assert worst == query.l1(ONE) == 1


def test_a_span_is_the_same_in_any_order_and_its_records_lie_in_it() -> None:
    rng = np.random.default_rng(8)
    for _ in range(200):
        d = int(rng.integers(1, 8))
        k = int(rng.integers(1, d + 1))
        z = rng.integers(-4, 5, (12, k)) @ rng.integers(-300, 301, (k, d))
        form = subspaces.span(z, d)
        again = subspaces.span(rng.permutation(z) * 3, d)
        assert form is not None
        assert again is not None
        assert (form == again).all()
        assert len(form) == np.linalg.matrix_rank(z)
        assert subspaces.in_span(z, form).all()
        assert not subspaces.in_span(z + np.eye(12, d, dtype=np.int64), form).all() or len(form) == d
        assert subspaces.span(z, len(form) - 1) is None


def test_the_check_of_membership_is_exact() -> None:
    """Against whole numbers without bound, at the largest entries there are."""
    rng = np.random.default_rng(9)
    for k in (1, 3, 40):
        d = k + 5
        base = rng.integers(-(2**12), 2**12 + 1, (k, d))
        form = subspaces.row_echelon_form(base)
        pivots = (form != 0).argmax(axis=1)
        near = np.vstack([base, base + (np.arange(d) == d - 1), -base])
        wanted = [
            all(
                (sum(int(c) * int(f) for c, f in zip(row[pivots], column, strict=True)) - int(v)) % PRIME == 0
                for column, v in zip(form.T, row, strict=True)
            )
            for row in near
        ]  # fmt: skip
        assert subspaces.in_span(near, form).tolist() == wanted
        assert sum(wanted) == 2 * k
