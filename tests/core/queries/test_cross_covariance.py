"""[P25] [P28] The cross covariance of leading directions and the rest: what a record adds, and whose."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eigenveil.algorithms import (
    CrossCovariance,
    CrossSpec,
    Estimate,
    Gram,
    Plan,
    PricedQuery,
    Release,
    S,
    as_custom_algorithm,
    eigenpairs,
    midpoint,
    no_release,
    query_at_share,
    symmetric,
)
from eigenveil.errors import Code
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.protocol.plan import plan_for
from eigenveil.queries import Query
from eigenveil.queries.cross_covariance import least_cross_radius, rest_norm_limit
from eigenveil.queries.limits import DIRECTION_LIMIT, WEIGHT
from eigenveil.session import Session
from eigenveil.site.kernels.clipping import gradient_coefficients
from eigenveil.site.site import Site
from tests.core import reference
from tests.core.records import hostile_rows
from tests.support import a_cross, a_study, random_rows, reflection, refused

PLAIN = CrossSpec(  # a = z_1, b = (0, z_2)
    centre=frozen([0, 0]),
    directions=frozen([[2**20], [0]]),
    scales=frozen([2**10]),
    retained=frozen([]),
    shift=30,
)


ENTRIES = st.one_of(st.sampled_from([-S, S]), st.integers(-S, S))


@st.composite
def cross_specs(draw: st.DrawFn, d: int) -> CrossSpec:
    """Any directions that are orthogonal, and every limit within reach."""
    p = draw(st.integers(1, d))
    k = draw(st.integers(1, p))
    v = draw(arrays(np.int64, d, elements=st.integers(-50, 50)))
    return CrossSpec(
        centre=draw(arrays(np.int64, d, elements=ENTRIES)),
        directions=reflection(v if v.any() else v + 1)[:, :p],
        scales=draw(arrays(np.int64, k, elements=st.integers(1, WEIGHT))),
        retained=draw(arrays(np.int64, p - k, elements=st.integers(0, WEIGHT))),
        shift=draw(st.integers(0, 60)),
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
    assert Site(rows).answer(query).tolist() == reference.answer(rows.tolist(), query)


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


# ---- a coordinator that feeds lies

D, K, P = 6, 2, 4


def refining(plan: Plan) -> Generator[PricedQuery, Release, Estimate]:
    """Directions from a released matrix, then the question beside them at the least radius."""
    release = yield query_at_share(plan, Gram(centre=midpoint(plan.study), radius=2 * S), 0.5)
    matrix = symmetric(release.values, D)
    _, vectors = eigenpairs(matrix / max(1.0, float(np.abs(matrix).max())))
    spec = CrossSpec(
        centre=midpoint(plan.study),
        directions=frozen(np.rint(vectors[:, :P] * DIRECTION_LIMIT).astype(np.int64)),
        scales=frozen([WEIGHT, 1]),
        retained=frozen([WEIGHT, 1]),
        shift=24,
    )
    yield query_at_share(plan, CrossCovariance(spec=spec, radius=least_cross_radius(D, K)), 0.4)
    return no_release(plan, 0.0, "it was only asking")


PERSON = np.array([S, -S, S, 7, -S, S], dtype=np.int64)
LIES: dict[str, IntArray] = {
    "a person": 10**6 * np.outer(PERSON, PERSON),
    "nothing": np.zeros((D, D), dtype=np.int64),
    "absurd": np.full((D, D), -(2**62)),
    "one column": 2**40 * np.diag(np.arange(D) == 3),
}


def steered(matrix: IntArray) -> Query | None:
    """What is asked of a site after that lie."""
    study = a_study(d=D, sites=("a",), components=K)
    session = Session(plan_for(study, as_custom_algorithm(refining), federation="", submission=""))
    round_query = session.pending
    assert round_query is not None
    result = frozen(np.concatenate([np.diagonal(matrix), matrix[np.triu_indices(D, 1)]]))
    session.feed(Release.of(round_query, result, 1.0, ("a",)))
    return None if session.pending is None else session.pending.query


@pytest.mark.parametrize("lie", LIES)
def test_no_forged_release_excludes_a_record_with_a_part(lie: str) -> None:
    """A matrix that says what it wants turns the directions to a person. All others count all the same."""
    query = steered(LIES[lie])
    assert isinstance(query, CrossCovariance)
    rows = np.concatenate([PERSON[None, :].astype(np.int16), hostile_rows(300, frozen(PERSON * 0), S, 1)])
    for row in rows:
        record = reference.beside(row.tolist(), query.spec)
        has_part = any(record.z) and any(abs(one) >= 1 for one in record.a)
        assert Site(row[None, :]).answer(query).any() == has_part
