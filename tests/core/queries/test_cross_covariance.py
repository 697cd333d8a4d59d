"""[P25] [P28] The cross covariance of leading directions and the rest: what a record adds, and whose."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example as with_example
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eigenveil.algorithms import (
    CrossCovariance,
    CrossSpec,
    S,
)
from eigenveil.errors import Code
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.queries.cross_covariance import (
    MOST_FRACTION_BITS,
    least_cross_radius,
    most_fraction_bits,
    rest_norm_limit,
)
from eigenveil.queries.limits import DIRECTION_LIMIT, GRADIENT_LIMIT
from eigenveil.site.kernels.clipping import gradient_coefficients
from eigenveil.site.site import Site
from tests.core import reference
from tests.core.queries import kinds
from tests.support import a_cross, random_rows, refused

PLAIN = CrossSpec(  # a = z_1, b = (0, z_2)
    centre=frozen([0, 0]),
    directions=frozen([[2**20], [0]]),
    scales=frozen([2**10]),
    retained=frozen([]),
    shift=30,
)


def test_rounding_may_make_the_longest_row_longer_and_that_is_within_the_limit() -> None:
    """The most that rounding adds to each of d entries is 1/2, so sqrt(d) / 2 to the norm of the rest."""
    longest = 2 * S * 2  # of four columns, each as far from the centre as the grid is wide
    away = np.array([[-0.8659], [0.2887], [0.2887], [0.2887]]) * DIRECTION_LIMIT
    spec = CrossSpec(
        centre=frozen([-S] * 4), directions=frozen(np.rint(away).astype(np.int64)), scales=frozen([1]),
        retained=frozen([]), shift=0,
    )  # fmt: skip
    rest = np.linalg.norm(reference.beside([S] * 4, spec).z)
    assert longest < rest <= rest_norm_limit(4)


@given(st.integers(1, 6).flatmap(lambda d: arrays(np.int64, d, elements=st.integers(-S, S))))
def test_a_rest_in_the_finest_units_is_within_its_limit(row: IntArray) -> None:
    spec = replace(a_cross(row.size + 2, 1), fraction_bits=MOST_FRACTION_BITS)
    rest = reference.beside([*row.tolist(), S, -S], spec).z
    assert np.linalg.norm(rest) <= rest_norm_limit(len(rest), MOST_FRACTION_BITS)


def test_what_is_taken_off_a_row_is_rounded_before() -> None:
    """It moves one entry of hundreds by one, and is what keeps the products exact."""
    rows, query = random_rows(3000, 4), CrossCovariance(spec=a_cross(4, 2), radius=2**24)
    assert Site(rows).answer(query).tolist() == kinds.answer(rows.tolist(), query)


def test_fraction_bits_remove_what_is_below_half_a_step() -> None:
    """A row along a direction that is nearly the first axis; its part in the second column is .4 steps."""
    small = 2**20 * 2 // 5 // 1000
    spec = CrossSpec(
        centre=frozen([0, 0]), directions=frozen([[2**20], [small]]), scales=frozen([1]), retained=frozen([]),
        shift=20,
    )  # fmt: skip
    assert reference.beside([1000, 1], spec).z == [0, 1]
    for bits in range(1, MOST_FRACTION_BITS + 1):
        query = CrossCovariance(spec=replace(spec, fraction_bits=bits), radius=GRADIENT_LIMIT)
        rest = Site(np.array([[1000, 1]], dtype=np.int16)).answer(query)[1] / 1000
        assert abs(rest / 2**bits - 0.6) < 0.51 / 2**bits + 2**-8


@pytest.mark.parametrize("d", [1, 4, 100, 8100, 8300, 20_000])
@pytest.mark.parametrize("k", [1, 16, 64])
def test_the_most_fraction_bits_leave_squares_exact_and_room_for_radii(d: int, k: int) -> None:
    def fit(bits: int) -> bool:
        exact = rest_norm_limit(d, bits) ** 2 < 2**53
        return exact and least_cross_radius(d, k, bits) <= GRADIENT_LIMIT // 2

    bits = most_fraction_bits(d, k)
    assert fit(bits)
    assert bits == MOST_FRACTION_BITS or not fit(bits + 1)


@st.composite
def clipped_parts(draw: st.DrawFn) -> tuple[IntArray, IntArray, int]:
    d, k, bits = draw(st.integers(1, 12)), draw(st.integers(1, 4)), draw(st.integers(0, MOST_FRACTION_BITS))
    most = rest_norm_limit(d, bits) ** 2 // d
    b = draw(arrays(np.int64, (1, d), elements=st.integers(-math.isqrt(most), math.isqrt(most))))
    return b, draw(arrays(np.int64, (1, k), elements=st.integers(-(2**30), 2**30))), bits


LONGEST = np.full((1, 4), rest_norm_limit(4, 3) // 2)


@with_example((LONGEST, np.full((1, 2), 2**30), 3))
@given(clipped_parts())
def test_at_the_floor_a_clipped_record_still_has_a_coefficient(parts: tuple[IntArray, IntArray, int]) -> None:
    b, a, bits = parts
    norm2 = (b * b).sum(axis=1)
    radius = least_cross_radius(b.size, a.size, bits)
    short, _ = gradient_coefficients(a.astype(np.float64), None, np.sqrt(norm2), norm2, 0.0, radius)
    assert short.any() == a.any()


def test_what_leaves_too_little_of_records_is_not_honest() -> None:
    for spec in (PLAIN, replace(PLAIN, fraction_bits=5)):
        radius = least_cross_radius(2, 1, spec.fraction_bits)
        CrossCovariance(spec=spec, radius=radius).check_honest()
        with refused(Code.OVERFLOW, "floor"):
            CrossCovariance(spec=spec, radius=radius - 1).check_honest()
    with refused(Code.OVERFLOW, "shift"):
        CrossCovariance(spec=replace(PLAIN, shift=60), radius=radius).check_honest()
