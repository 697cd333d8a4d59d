"""[P25] [P28] The cross covariance of leading directions and the rest: what a record adds, and whose."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
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
from eigenveil.queries.cross_covariance import least_cross_radius, rest_norm_limit
from eigenveil.queries.limits import DIRECTION_LIMIT
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


def test_what_is_taken_off_a_row_is_rounded_before() -> None:
    """It moves one entry of hundreds by one, and is what keeps the products exact."""
    rows, query = random_rows(3000, 4), CrossCovariance(spec=a_cross(4, 2), radius=2**24)
    assert Site(rows).answer(query).tolist() == kinds.answer(rows.tolist(), query)


@st.composite
def clipped_parts(draw: st.DrawFn) -> tuple[IntArray, IntArray]:
    d, k = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    most = rest_norm_limit(d) ** 2 // d
    b = draw(arrays(np.int64, (1, d), elements=st.integers(-math.isqrt(most), math.isqrt(most))))
    return b, draw(arrays(np.int64, (1, k), elements=st.integers(-(2**30), 2**30)))


@given(clipped_parts())
def test_at_the_floor_a_clipped_record_still_has_a_coefficient(parts: tuple[IntArray, IntArray]) -> None:
    b, a = parts
    norm2 = (b * b).sum(axis=1)
    radius = least_cross_radius(b.size, a.size)
    short, _ = gradient_coefficients(a.astype(np.float64), None, np.sqrt(norm2), norm2, 0.0, radius)
    assert short.any() == a.any()


def test_what_leaves_too_little_of_records_is_not_honest() -> None:
    radius = least_cross_radius(2, 1)
    CrossCovariance(spec=PLAIN, radius=radius).check_honest()
    with refused(Code.OVERFLOW, "floor"):
        CrossCovariance(spec=PLAIN, radius=radius - 1).check_honest()
    with refused(Code.OVERFLOW, "shift"):
        CrossCovariance(spec=replace(PLAIN, shift=60), radius=radius).check_honest()
