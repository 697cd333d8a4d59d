"""[P19] How far one person turns a subspace, and releases with noise that is scaled to it. Record and replay:
at least 10,000 neighbour pairs over matrices of random, tied, tiny and huge gaps, with records at the bound
in the worst directions; none may turn the subspace or move the gap beyond the claim."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.numerics.encoding import FloatArray
from eigenveil.queries.papers.trusted import (
    subspace_distance,
)
from tests.core.mechanisms.test_leading_subspace import bounds_of

a_turning = cache(lambda neighbours, d=5, k=2: bounds_of(d, k, neighbours))


def subspace_gap(left: FloatArray, right: FloatArray) -> float:
    """min over right rotations of ||left - right Q||_F (Procrustes)."""
    cosines = np.linalg.svd(left.T @ right, compute_uv=False)
    return math.sqrt(max(0.0, 2 * (left.shape[1] - float(cosines.sum()))))


def a_matrix(rng: np.random.Generator, d: int, k: int) -> FloatArray:
    """A positive semidefinite matrix in persons, its gap behind k anything from 0 to 40."""
    gap = rng.choice([0.0, 0.5, 2.0, 2.6, 3.0, 3.6, 5.0, 10.0, 40.0]) + rng.uniform(0, 0.2)
    low = np.sort(rng.choice([0.0, 1.0, 3.0], d - k) + rng.uniform(0, 0.1, d - k))[::-1]
    high = np.sort(rng.choice([0.0, 0.0, 2.0], k))[::-1] + low[0] + gap
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    out: FloatArray = (basis * np.r_[high, low]) @ basis.T
    return out


def a_record(rng: np.random.Generator, matrix: FloatArray, k: int) -> FloatArray:
    """A record of full length: between the k-th direction and the next, which turns most; or anywhere."""
    vectors = np.linalg.eigh(matrix)[1][:, ::-1]
    angle = rng.choice([np.pi / 4, rng.uniform(0, np.pi)])
    worst = math.cos(angle) * vectors[:, k - 1] + math.sin(angle) * vectors[:, k]
    anywhere = rng.normal(size=len(matrix))
    out: FloatArray = worst if rng.uniform() < 0.7 else anywhere / np.linalg.norm(anywhere)
    return out


def decomposed(matrix: FloatArray, k: int) -> tuple[FloatArray, float]:
    values, vectors = np.linalg.eigh(
        matrix
    )  # without the product's pinning of threads, a hundred times as fast
    return vectors[:, ::-1][:, :k], float(values[-k] - values[-k - 1])


@pytest.mark.parametrize(
    "neighbours", [Neighbours.ADD_REMOVE, pytest.param(Neighbours.REPLACE_ONE, marks=pytest.mark.slow)]
)
def test_no_neighbour_turns_it_or_moves_the_gap_beyond_the_claim(neighbours: Neighbours) -> None:
    rng = np.random.default_rng(3)
    pairs, nearest = 0, 0.0
    while pairs < 10_000:
        d = int(rng.integers(2, 7))
        k = int(rng.integers(1, d))
        bounds = a_turning(neighbours, d, k)
        before = a_matrix(rng, d, k)
        record, other = a_record(rng, before, k), a_record(rng, before, k)
        after = before + np.outer(record, record)
        if neighbours is Neighbours.REPLACE_ONE:
            after, before = before + np.outer(other, other), after
        (old, old_gap), (new, new_gap) = decomposed(before, k), decomposed(after, k)
        assert abs(new_gap - old_gap) <= bounds.step + 1e-9
        moved = subspace_gap(old, new)
        for gap in (old_gap, new_gap):
            assert moved <= bounds.local(gap) + 1e-7
            nearest = max(nearest, moved / bounds.local(gap)) if gap > 30 else nearest
        pairs += 1
    assert nearest > 0.8  # the bound is not far from what happens


@pytest.mark.parametrize("neighbours", Neighbours)
@given(gap=st.floats(0, 200), moved=st.floats(-1, 1), beta=st.floats(1e-4, 2))
def test_the_bound_is_smooth_and_above_the_local_one(
    neighbours: Neighbours, gap: float, moved: float, beta: float
) -> None:
    bounds = a_turning(neighbours)
    here, there = (bounds.smooth(g, beta) for g in (gap, max(0.0, gap + bounds.step * moved)))
    assert here >= bounds.local(gap)
    assert here <= math.exp(beta) * there * (1 + 1e-12)
    assert there <= math.exp(beta) * here * (1 + 1e-12)


@pytest.mark.parametrize("neighbours", Neighbours)
@given(gap=st.floats(0, 300), beta=st.floats(1e-3, 1))
def test_the_bound_is_the_largest_over_all_distances(neighbours: Neighbours, gap: float, beta: float) -> None:
    bounds = a_turning(neighbours)
    every = [math.exp(-beta * j) * bounds.local(gap - bounds.step * j) for j in range(310)]
    assert bounds.smooth(gap, beta) == pytest.approx(max(every))


def test_a_distance_is_largest_for_one_angle() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        angles = rng.uniform(0, math.pi / 2, 3)
        sine = float(np.sqrt((np.sin(angles) ** 2).sum()))
        if sine <= 1:
            assert math.sqrt(float((2 - 2 * np.cos(angles)).sum())) <= subspace_distance(sine) + 1e-12
