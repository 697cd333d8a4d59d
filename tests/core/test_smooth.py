"""[P19] [P20] [P21] How far one person turns a subspace, and noise that is scaled to it.

Record and replay: at least 10,000 neighbour pairs over matrices of random, tied, tiny and huge gaps, with
records at the bound in the worst directions; none may turn the subspace or move the gap beyond the claim.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from eigenveil.accounting import ATTO
from eigenveil.asks import VECTOR, S
from eigenveil.asks.turned import CAUCHY, GAP_STEPS, GAUSSIAN, TESTED, Subspace
from eigenveil.errors import Code
from eigenveil.ints import FloatArray, IntArray, frozen
from eigenveil.noise import OsNoise
from eigenveil.pricing import micro_rho_of
from eigenveil.query import Law, Query
from eigenveil.seeded_noise import SeededNoise
from eigenveil.study import Neighbours
from eigenveil.trusted import subspace
from eigenveil.trusted.cauchy import FAR, cauchy
from eigenveil.trusted.haar import haar
from eigenveil.trusted.turning import Turning, distance, turning, weight
from tests.support import DIGEST, a_study, refused

ALARM = 1e-6


def an_ask(d: int, k: int, mechanism: str = GAUSSIAN, records: int = 1000) -> Subspace:
    centre = frozen(np.zeros(d, dtype=np.int64))
    return Subspace(centre=centre, radius=S, records=records, count=k, mechanism=mechanism)


def a_turning(neighbours: Neighbours, d: int = 5, k: int = 2) -> Turning:
    ask = an_ask(d, k)
    return turning(ask, neighbours, weight(ask, 1))


def apart(left: FloatArray, right: FloatArray) -> float:
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


@pytest.mark.parametrize("neighbours", Neighbours)
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
        moved = apart(old, new)
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


def test_without_the_right_rotation_neighbours_are_not_close() -> None:
    """Planted fault: a rotation on the left, as printed, keeps ||V - V'||_F, which no gap bounds.

    Two tied leading values turn freely within their plane; one person decides how.
    """
    before = np.diag([50.0, 50.0, 0.0, 0.0])
    record = np.array([1.0, -1.0, 0.0, 0.0]) / math.sqrt(2)
    old, gap = decomposed(before, 2)
    new, _ = decomposed(before + np.outer(record, record), 2)
    left = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    bound = a_turning(Neighbours.ADD_REMOVE, 4, 2).local(gap)
    assert float(np.linalg.norm(left @ old - left @ new)) > 20 * bound
    assert apart(old, new) <= bound


@pytest.mark.parametrize("size", ["d k", "d"])
def test_the_noise_has_as_many_dimensions_as_numbers(size: str) -> None:
    """[P20] rests on d k beta <= epsilon / 4. Planted fault: beta for d dimensions where there are d k."""
    d, k, epsilon, delta = 10, 3, 1.0, 1e-6
    dimensions = d * k if size == "d k" else d
    beta = epsilon / (4 * (dimensions + math.log(2 / delta)))
    # Noise of scale e^beta: the log ratio of densities may exceed epsilon / 2 with probability delta / 2.
    quantile = float(stats.chi2.isf(delta / 2, d * k))
    loss = d * k * beta if size == "d" else 0.0
    shrink = abs(math.expm1(-2 * beta)) / 2 * quantile - d * k * beta
    assert (max(loss, shrink) <= epsilon / 2) is (size == "d k")


def test_the_scale_follows_the_number_of_entries() -> None:
    ask, wide = an_ask(10, 1), an_ask(10, 3)
    one, three = (turning(a, Neighbours.ADD_REMOVE, weight(a, 1)) for a in (ask, wide))
    gap = 40.0
    assert subspace.gaussian_scale(three, gap, 1.0, 1e-6, wide) > subspace.gaussian_scale(
        one, gap, 1.0, 1e-6, ask
    )
    assert subspace.cauchy_scale(three, gap, 1.0, wide) > subspace.cauchy_scale(one, gap, 1.0, ask)


def test_a_haar_rotation_is_orthogonal_and_favours_nothing() -> None:
    noise = SeededNoise(4)
    turns = np.array([haar(3, noise) for _ in range(4000)])
    assert np.abs(turns @ turns.transpose(0, 2, 1) - np.eye(3)).max() < 1e-12
    assert np.abs(turns.mean(axis=0)).max() < 5 / math.sqrt(3 * 4000)
    assert np.abs((turns**2).mean(axis=0) - 1 / 3).max() < 5 * 0.3 / math.sqrt(4000)


def fits(sample: IntArray, scale: int) -> bool:
    """Pearson against p(z) = s / pi / (s^2 + z^2) (false alarm 1e-6)."""
    edges = np.unique(np.rint(scale * np.tan(np.pi * (np.arange(1, 40) / 40 - 0.5)))).astype(np.int64)
    z = np.arange(edges[0], edges[-1] + 1)
    weights = scale / np.pi / (scale**2 + z.astype(np.float64) ** 2) * np.tanh(np.pi * scale)
    inner = np.add.reduceat(weights, edges[:-1] - edges[0])
    inner[-1] -= weights[-1]
    outer = (1 - inner.sum()) / 2
    expected = np.r_[outer, inner, outer] * len(sample)
    found = np.histogram(sample, bins=[-np.inf, *edges.tolist(), np.inf])[0]
    # The law is symmetric, the bins are closed below: move the last edge's own mass.
    expected[-1] += weights[-1] / 2 * len(sample)
    expected[0] -= weights[-1] / 2 * len(sample)
    return bool(stats.chisquare(found, expected * found.sum() / expected.sum()).pvalue > ALARM)


@pytest.mark.parametrize("scale", [1, 10, 1000])
def test_cauchy_noise_has_its_law(scale: int) -> None:
    sample = cauchy(20_000, scale, OsNoise())
    assert fits(sample, scale)
    assert not fits(sample, max(2, scale * 11 // 10) if scale > 1 else 2)


def test_cauchy_noise_stays_within_int64() -> None:
    class Extreme(OsNoise):
        """The smallest uniform numbers there are, in turn with the largest."""

        def uniform(self, count: int) -> FloatArray:
            """Shape: (count,)."""
            return np.where(np.arange(count) // 5 % 3 == 2, 2.0**-53, 2.0**-53)

    drawn = cauchy(1, 2**40, Extreme())
    assert abs(int(drawn[0])) <= FAR


def test_a_tested_gap_is_too_large_with_probability_delta_at_most() -> None:
    """[P21] in exact terms: discrete Laplace noise beyond the margin has mass at most delta."""
    for neighbours, epsilon, delta in (
        (n, e, x) for n in Neighbours for e in (0.1, 1.0, 8.0) for x in (1e-3, 1e-9)
    ):
        scale, margin = subspace.gap_noise(a_turning(neighbours), epsilon, delta)
        tail = math.exp(-margin / scale) / (1 + math.exp(-1 / scale))
        assert tail <= delta
        step = 1 if neighbours is Neighbours.ADD_REMOVE else 2
        # floor(64 g) moves by at most 64 step + 1 where g moves by step.
        assert (GAP_STEPS * step + 1) / scale <= epsilon * (1 + 1e-12)


def query(ask: Subspace, epsilon: float, delta: float, law: Law = Law.LAPLACE) -> Query:
    return Query(
        plan_digest=DIGEST,
        round=0,
        ask=ask,
        micro_rho=micro_rho_of(epsilon),
        atto_delta=int(delta * ATTO),
        law=law,
    )


def grams(*values: int) -> IntArray:
    """A diagonal Gram matrix, in persons."""
    d = len(values)
    return frozen(np.r_[np.array(values) * S**2, np.zeros(d * (d - 1) // 2, dtype=np.int64)])


@pytest.mark.parametrize("mechanism", [GAUSSIAN, CAUCHY, TESTED])
def test_a_wide_gap_is_released_close_to_the_truth(mechanism: str) -> None:
    ask = an_ask(4, 1, mechanism, records=10**6)
    out = subspace.release(query(ask, 2.0, 1e-6), ask, grams(500_000, 10, 10, 0), a_study(), SeededNoise(1))
    vector = out.values[:-1] / VECTOR
    assert abs(vector[0]) / np.linalg.norm(vector) > 0.99
    assert bool(out.values[-1] > 0) is (mechanism == TESTED)
    assert (out.sigma > 0) is (mechanism == TESTED)  # a smooth scale is a secret


def test_no_gap_is_no_release() -> None:
    ask = an_ask(4, 1, TESTED)
    out = subspace.release(query(ask, 2.0, 1e-6), ask, grams(500, 500, 3, 0), a_study(), SeededNoise(1))
    assert not out.values.any()


def test_every_direction_needs_no_gap() -> None:
    for mechanism in (GAUSSIAN, CAUCHY, TESTED):
        ask = an_ask(3, 3, mechanism)
        out = subspace.release(query(ask, 2.0, 1e-6), ask, grams(5, 5, 5), a_study(), SeededNoise(1))
        matrix = out.values[:-1].reshape(3, 3) / VECTOR
        assert np.abs(matrix.T @ matrix - np.eye(3)).max() < 0.1
        assert out.values[-1] > 0 or mechanism != TESTED


def test_a_mechanism_with_a_delta_is_not_run_without_one() -> None:
    ask = an_ask(4, 1)
    with refused(Code.BAD_STUDY, "delta"):
        subspace.release(query(ask, 1.0, 0.0), ask, grams(9, 1, 1, 0), a_study(), SeededNoise(1))


def test_a_distance_is_largest_for_one_angle() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        angles = rng.uniform(0, math.pi / 2, 3)
        sine = float(np.sqrt((np.sin(angles) ** 2).sum()))
        if sine <= 1:
            assert math.sqrt(float((2 - 2 * np.cos(angles)).sum())) <= distance(sine) + 1e-12
