"""[P7] Clipping that releases show or cannot exclude is in what refined-cov, refined-pca and dp-pca state."""

from __future__ import annotations

import math
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.algorithms.recommended import refined
from eigenveil.algorithms.recommended.dp_pca import Tail, clipping_sine
from eigenveil.algorithms.recommended.gauss_cov import RowClip
from eigenveil.algorithms.shared.clip_radius import LONG_TAIL, NormGrid, NormHistogram
from eigenveil.algorithms.shared.stated_error import product_bias_factor
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import sin_angle
from eigenveil.queries.limits import BINS
from eigenveil.study.algorithm import Algorithm
from tests.core.algorithms.test_algorithms import run, study, truth
from tests.core.algorithms.test_stated_gaps import CENTRED, aligned

GRID = NormGrid(top=8.0)


def histogram(norms: FloatArray) -> NormHistogram:
    counts, _ = np.histogram(np.log2(GRID.top / norms) * 4, bins=[-math.inf, *range(1, BINS), math.inf])
    return NormHistogram(grid=GRID, counts=counts.astype(np.float64), sigma=0.0)


@given(seed=st.integers(0, 2**32 - 1), power=st.floats(1.0, 4.0))
def test_the_fall_of_norms_by_a_power_is_that_of_a_quarter_octave(seed: int, power: float) -> None:
    norms = 0.05 * np.random.default_rng(seed).uniform(size=20_000) ** (-1 / power)
    assert abs(histogram(norms).fall() - 2 ** (-power / 4)) < 0.03


def test_a_normal_tail_is_not_long_and_no_tail_has_no_fall() -> None:
    norms = np.abs(np.random.default_rng(1).normal(size=5000)) + 1e-9
    assert 0 < histogram(norms).fall() < LONG_TAIL
    assert histogram(np.full(100, 0.3)).fall() == 0
    assert NormHistogram(grid=GRID, counts=np.zeros(BINS)).fall() == 0


@given(beyond=st.integers(1, 50), radius=st.floats(0.4, 8.0))
def test_records_beyond_the_grid_may_be_much_longer_than_its_top(beyond: int, radius: float) -> None:
    inside = np.full(1000, 0.3)
    seen, none = histogram(np.append(inside, np.full(beyond, 9.0))), histogram(inside)
    tail = seen.with_tail()
    assert math.isclose(tail.counts.sum(), seen.counts.sum())
    assert math.isclose(tail.retained(1e9), 1.0)
    assert product_bias_factor(tail, radius, 1000) > 2 * product_bias_factor(seen, radius, 1000)
    assert product_bias_factor(none.with_tail(), radius, 1000) == product_bias_factor(none, radius, 1000)


def test_what_clipping_rows_did_is_partly_in_the_refinement_too() -> None:
    found, first = aligned(1.0, 1e-3), aligned(1.0, 1e-2)
    none, much = (
        refined.matrix_sine(mock.Mock(spec=RowClip, start=CENTRED, clipping_bias_factor=one), found, first)
        for one in (0.0, 0.01)
    )
    assert much > 3 * none


@given(bias=st.floats(1e-9, 1.0), more=st.floats(1e-9, 1.0), scale=st.floats(1e-3, 1.0))
def test_a_tail_states_the_more_the_more_its_gradients_were_clipped(
    bias: float, more: float, scale: float
) -> None:
    variances, gaps = np.array([3.0, 2.0]), np.array([[2.0] * 4, [1.0] * 4])
    tail = Tail(basis=np.eye(6, 2), first=np.eye(6, 2), second=np.eye(6, 2))
    assert clipping_sine(tail, variances, gaps, scale) == 0
    low, high = (
        clipping_sine(replace(tail, clipping_bias=one), variances, gaps, scale)
        for one in sorted((bias, more))
    )
    assert 0 < low <= high < 1


def long_rows(n: int, d: int, seed: int) -> FloatArray:
    """Return rows of Student's t with 2 degrees of freedom, by row."""
    generator = np.random.default_rng(seed)
    lengths = np.sqrt(2 / generator.chisquare(2, n))
    rows = generator.standard_normal((n, d)) * np.sqrt(1 / np.arange(1.0, d + 1)) * lengths[:, None]
    return np.clip(0.3 * rows, -6, 6)


@pytest.mark.parametrize("algorithm", [Algorithm.REFINED_COV, Algorithm.DP_PCA])
def test_long_rows_are_stated(algorithm: Algorithm) -> None:
    """Noise alone would say a third of it."""
    ratios = []
    for seed in range(7):
        rows = long_rows(5000, 30, seed)
        found = run(study(30, algorithm, epsilon=1.0), rows, seed).estimate
        assert found.sin_error is not None
        ratios.append(found.sin_error / sin_angle(truth(rows, 1), found.components))
    assert np.median(ratios) > 0.67


def test_rows_far_beyond_all_counted_ones_are_stated_by_dp_pca() -> None:
    """1 % of the rows are 10 times as long, too few for the norms about the mean."""
    spectrum, found = np.sqrt([3.0, 2.0, 1.5] + [1.0] * 47), []
    for seed in range(5):
        generator = np.random.default_rng(seed)
        far = np.where(generator.random((5000, 1)) < 0.01, 10.0, 1.0)
        rows = np.clip(0.2 * far * generator.standard_normal((5000, 50)) * spectrum, -6, 6)
        what = study(50, Algorithm.DP_PCA, epsilon=4.0, components=3)
        found.append(run(what, rows, seed).estimate.sin_error)
    assert min(one or 0.0 for one in found) > 0.5
