"""[P7] A gap that releases do not show is no reason for confidence: what refinements and dp-pca state."""

from __future__ import annotations

import math
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.algorithms.recommended import refined
from eigenveil.algorithms.recommended.dp_pca import HALVES, Schedule, Tail, next_variance, tail_sine
from eigenveil.algorithms.recommended.gauss_cov import GaussCovariance
from eigenveil.algorithms.shared.preparation import LocationEstimate
from eigenveil.algorithms.shared.refinement import SPARE, AlignedCovariance
from eigenveil.algorithms.shared.stated_error import separation_warning
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import sin_angle
from eigenveil.planning.choose import make_plan
from eigenveil.study.algorithm import Algorithm
from tests.core.algorithms.test_algorithms import run, spectrum, study, truth

D = 12
CENTRED = mock.Mock(
    spec=LocationEstimate,
    squared_centre_error=0.0,
    plan=make_plan(study(4, Algorithm.REFINED_COV)),
    records=1e9,
)
TIMES = Schedule(rounds=40, directions=2, round_cost=1, radius_cost=1)
sines = st.floats(0, 1)


def aligned(gap: float, sd: float = 0.1, noise: float = 0.05) -> AlignedCovariance:
    """Two components, a third variance that far below, and a small rest."""
    variances = np.array([3.0, 2.0, 2.0 - gap, *[0.1] * (D - 3)])
    return AlignedCovariance(
        basis=np.eye(D), variances=variances, level=0.0, sd=np.full((2, D - 1), sd), gap_noise=0.0,
        variance_sd=noise,
    )  # fmt: skip


@given(gap=st.floats(0, 1.9), more=st.floats(0.0, 1.9), sd=st.floats(1e-6, 10))
def test_a_smaller_gap_or_a_larger_sd_never_states_less(gap: float, more: float, sd: float) -> None:
    small, large = sorted((gap, more))
    near, far = (aligned(one, sd).stated_sine(CENTRED) for one in (small, large))
    assert 0 < far * (1 - 1e-12) <= near <= 1
    assert near <= aligned(small, 2 * sd).stated_sine(CENTRED) * (1 + 1e-12)


def test_equal_variances_are_no_gap_although_noise_moves_them_apart() -> None:
    """Noise alone moves two equal eigenvalues by two sd of a variance in the root mean square."""
    generator, found = np.random.default_rng(0), []
    for _ in range(4000):
        noise = generator.normal(size=(2, 2))
        first, second = np.linalg.eigvalsh(
            (noise + noise.T) / 2
        )  # sd 1 on the diagonal, 1 / sqrt 2 beside it
        found.append(second - first)
    moved = math.sqrt(np.mean(np.square(found)))
    assert abs(moved - 2) < 0.1
    assert aligned(moved * 0.05).clear_gaps()[1, 0] <= 1.1 * 0.05 < aligned(moved * 0.05).gaps()[1, 0]


@given(before=sines, more=sines, after=sines)
def test_a_refinement_states_no_less_than_its_own_and_the_more_the_worse_its_first_stage(
    before: float, more: float, after: float
) -> None:
    small, large = (refined.refined_sine(one, after) for one in sorted((before, more)))
    assert after <= small <= large <= 1
    assert refined.refined_sine(1.0, after) == 1  # nothing confirms what was noise


def test_a_plan_of_today_states_what_its_gaps_show_and_an_older_one_as_before() -> None:
    rows, plan = spectrum(500, [1.2, *[1.0] * 9], 1), make_plan(study(10, Algorithm.REFINED_COV))
    with mock.patch.object(refined, "refined_sine", return_value=0.123):
        assert run(plan.study, rows).estimate.sin_error == 0.123
        with mock.patch("eigenveil.simulation.make_plan", return_value=replace(plan, revision=2)):
            assert run(plan.study, rows).estimate.sin_error != 0.123


@pytest.mark.parametrize(
    ("variances", "following", "words"),
    [
        ([9.0, 5.0, 3.0], 1.0, ""),
        ([9.0, 5.0, 3.0], 2.9, "components = 2 would"),
        ([9.0, 8.9, 3.0], 2.9, "components = 2 would"),
        ([9.0, 3.0, 2.9], 2.9, "components = 1 would"),
        ([3.1, 3.0, 2.9], 2.8, "no smaller number"),
    ],
)
def test_a_gap_within_the_noise_is_warned_of_with_what_is_separated(
    variances: list[float], following: float, words: str
) -> None:
    found = separation_warning(np.array(variances), following, 0.2)
    assert len(found) == bool(words)
    assert all(words in one and f"component {len(variances)} " in one for one in found)


def tail(drifting: float, noise: float = 0.05) -> Tail:
    """Halves about the first two axes, which move apart along the third and by noise along all."""
    generator = np.random.default_rng(1)
    halves = []
    for sign in (1, -1):
        half = np.eye(D, 2) * [3.0, 2.0]
        half[2, 1] += sign * drifting
        halves.append(half + noise * generator.normal(size=(D, 2)))
    return Tail(basis=np.eye(D, 2), first=halves[0], second=halves[1])


def test_the_drift_is_the_direction_in_which_the_halves_differ_most() -> None:
    found = tail(0.8)
    q = found.drift(2)
    assert q.shape == (D, 1)
    assert np.allclose(found.components(2).T @ q, 0, atol=1e-9)
    assert abs(q[2, 0]) > 0.9


@given(following=st.floats(0, 2), more=st.floats(0, 2))
def test_a_tail_states_more_the_nearer_the_next_variance_is(following: float, more: float) -> None:
    found = tail(0.3)
    low, high = (tail_sine(found, TIMES, 2, 2.0, one) for one in sorted((following, more)))
    assert HALVES * found.error(2) <= low <= high <= 1
    assert tail_sine(found, TIMES, 2, 2.0, 2.0) > 0.7  # no round draws such a start back


@given(seed=st.integers(0, 2**32 - 1), mixed=st.floats(0.5, 1.0))
def test_the_next_variance_is_found_through_a_drift_that_is_half_noise(seed: int, mixed: float) -> None:
    generator = np.random.default_rng(seed)
    variances = np.array([3.0, 2.0, 1.8, *[0.2] * (D - 3)])
    drift = np.sqrt(1 - mixed) * generator.normal(size=(D, 1)) / math.sqrt(D - 3)
    drift[:3, 0] = [0.0, 0.0, math.sqrt(mixed)]
    drift /= np.linalg.norm(drift)
    noise = 0.01 * generator.normal(size=(D, 1))
    following, sd = next_variance(np.eye(D, 2), drift, variances[:, None] * drift + noise, 0.01, 2.0)
    assert 1.4 < following < 1.8 + 4 * sd
    assert 0.01 < sd < 0.1


def leading(matrix: FloatArray, most: int) -> AlignedCovariance:
    """A noised matrix of today's revision, on all axes or, beyond `most` columns, the leading ones."""
    plan = make_plan(study(len(matrix), Algorithm.REFINED_COV, components=2))
    clip = mock.Mock(plan=plan)
    noised = GaussCovariance(clip=clip, matrix=matrix, scale=0.01, even=False)
    with mock.patch.object(refined, "WIDE_MATRIX", most):
        return refined.aligned(noised)


@pytest.mark.parametrize("seed", range(3))
def test_leading_axes_are_those_of_the_whole_matrix_and_the_rest_is_level(seed: int) -> None:
    d = 60
    axes = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0]
    matrix = (axes * np.append([5.0, 3.0], np.linspace(1, 0.5, d - 2))) @ axes.T
    every, some = leading(matrix, d + 1), leading(matrix, 10)
    m = some.variances.size
    assert m == 2 + SPARE < d == every.variances.size
    assert np.array_equal(some.basis, every.basis[:, :m])
    assert np.array_equal(some.variances, every.variances[:m])
    assert math.isclose(some.level, every.variances[m:].mean())
    assert math.isclose(some.stated_sine(CENTRED), every.stated_sine(CENTRED), rel_tol=0.05)


def test_a_study_on_leading_axes_is_as_exact() -> None:
    rows = spectrum(20_000, [1 / i for i in range(1, 61)])
    found = {}
    for most in (10, 100):
        with mock.patch.object(refined, "WIDE_MATRIX", most):
            estimate = run(study(60, Algorithm.REFINED_COV, components=2, epsilon=4.0), rows).estimate
        found[most] = sin_angle(truth(rows, 2), estimate.components)
    assert found[10] < 1.15 * found[100]
