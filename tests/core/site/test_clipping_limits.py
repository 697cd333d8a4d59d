"""[P1] At the limits of every field at once, int64 and float64 give the results of Python integers. The
widest study (4,096 columns), every record at the bound, radius, pull and directions at their limits: nothing
wraps around, and no record exceeds its radius."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from eigenveil import queries as q
from eigenveil.accounting.zcdp import Neighbours
from eigenveil.errors import Code
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.protocol.query import check_no_overflow
from eigenveil.queries.cross_covariance import MAX_SQUARED_SINGULAR_VALUE, MOST_FRACTION_BITS
from eigenveil.queries.limits import (
    DIRECTION_LIMIT,
    EDGE_LIMIT,
    GRADIENT_LIMIT,
    OFFSET_STEPS,
    WEIGHT,
    row_norm_limit,
)
from eigenveil.site.site import Site
from eigenveil.study.grid import GridRows, S
from eigenveil.study.study import MAX_COLUMNS
from tests.core.queries import kinds
from tests.support import a_query, random_rows, refused

MOST_PULL = GRADIENT_LIMIT // OFFSET_STEPS


def corner_rows(d: int, n: int = 3) -> GridRows:
    """All at one bound, all at the other, and alternating. Shape: (n, d)."""
    rows = np.full((n, d), S, dtype=np.int16)
    rows[1], rows[2, ::2] = -S, -S
    return rows


def extreme_field(d: int, k: int, pull: IntArray | None = None, shift: int = 0) -> q.GradientSpec:
    directions = np.full((d, k), DIRECTION_LIMIT)
    directions[:, 1::2] *= -1
    nothing = np.zeros((d, k), dtype=np.int64)
    return q.GradientSpec(
        centre=np.full(d, -S), directions=directions, offset=nothing if pull is None else pull, shift=shift
    )


def spread(d: int, k: int) -> IntArray:
    """A pull of the largest norm, equal in every entry."""
    return frozen(np.full((d, k), math.isqrt(MOST_PULL**2 // (d * k))))


def peak(d: int, k: int, sign: int) -> IntArray:
    """A pull of the largest norm in one entry."""
    out = np.zeros((d, k), dtype=np.int64)
    out[-1, -1] = sign * MOST_PULL
    return frozen(out)


def extreme_cross(d: int, k: int, p: int, shift: int = 0) -> q.CrossSpec:
    """One direction along the longest row, as long as directions may be; or p that have signs alike with what
    is longest, a step shorter than they may be, so that no power of two makes what is rounded whole."""
    longest = (
        math.isqrt(MAX_SQUARED_SINGULAR_VALUE // d) if p == 1 else math.isqrt(DIRECTION_LIMIT**2 // d) - 1
    )
    halves = 2 ** np.arange(p) // 2  # 0, 1, 2, 4, ...: but for the first, a column changes sign so often
    signs = np.where(np.arange(d)[:, None] & halves, -1, 1)
    return q.CrossSpec(
        centre=np.full(d, -S),
        directions=min(longest, DIRECTION_LIMIT) * signs,
        scales=np.full(k, WEIGHT),
        retained=np.arange(p - k) % 2 * WEIGHT,
        shift=shift,
    )


FAR = extreme_field(2, 1)
FIELD: dict[str, Any] = {"centre": [0, 0], "directions": [[1], [0]], "offset": [[0], [0]], "shift": 0}
EMPTY = np.zeros((2, 0), dtype=np.int64)
AXES = extreme_cross(2, 1, 1)
CROSS: dict[str, Any] = {
    "centre": [0, 0], "directions": [[2**20, 0], [0, 2**20]], "scales": [1], "retained": [0], "shift": 0
}  # fmt: skip


def at_limits(*shapes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Each shape at every radius and shift; the widest at each of them once."""
    every = list(product((1, 2**20, GRADIENT_LIMIT), (0, 20, 60)))
    return [shape + limit for shape in shapes for limit in (every if shape[0] < 4096 else every[2:7:2])]


@pytest.mark.parametrize(
    ("d", "k", "radius", "shift"), at_limits((1, 1), (2, 2), (64, 3), (MAX_COLUMNS, 1), (MAX_COLUMNS, 4))
)
def test_gradients_at_every_limit_equal_the_reference(d: int, k: int, radius: int, shift: int) -> None:
    pulls = [None, spread(d, k), -spread(d, k), peak(d, k, 1), peak(d, k, -1)]
    rows = corner_rows(d)  # the second is the centre
    for pull, row in product(pulls, rows) if d < MAX_COLUMNS else zip(pulls[1:4:2], rows[::2], strict=True):
        query = q.Gradient(spec=extreme_field(d, k, pull, shift), radius=radius)
        message = Site(row[None, :]).answer(query).tolist()
        assert message == kinds.contribution(row.tolist(), query)
        assert sum(v * v for v in message) <= query.l2_squared(Neighbours.ADD_REMOVE)


MOST_COLUMNS = 2**19  # of a cross covariance: beyond all studies, and nearly all that is exact


@pytest.mark.parametrize(
    ("d", "k", "p", "radius", "shift"),
    at_limits((1, 1, 1), (2, 1, 2), (64, 3, 7), (4096, 1, 1), (4096, 2, 13)),
)
def test_cross_covariances_at_every_limit_equal_the_reference(
    d: int, k: int, p: int, radius: int, shift: int
) -> None:
    plain = extreme_cross(d, k, p, shift)
    rows = np.concatenate([corner_rows(d), random_rows(1, d)])
    for spec, row in product((plain, replace(plain, fraction_bits=7)), rows if d < 64 else rows[2:]):
        query = q.CrossCovariance(spec=spec, radius=radius)
        message = Site(row[None, :]).answer(query).tolist()
        assert message == kinds.contribution(row.tolist(), query)
        assert sum(v * v for v in message) <= query.l2_squared(Neighbours.ADD_REMOVE)


@pytest.mark.slow
def test_a_cross_covariance_of_more_columns_than_any_study_has_is_exact() -> None:
    query = q.CrossCovariance(spec=extreme_cross(MOST_COLUMNS, 1, 1, 30), radius=2**28)
    row = S - (random_rows(1, MOST_COLUMNS) & 1)  # hardly any is longer, and its sums are odd
    assert Site(row).answer(query).tolist() == kinds.contribution(row[0].tolist(), query)
    with refused(Code.OVERFLOW, "columns"):
        extreme_cross(2 * MOST_COLUMNS, 1, 1)


def test_a_rest_whose_squared_norm_floats_cannot_hold_is_refused() -> None:
    d = 90**2  # 2 S 90 steps of 2^7 units: about 2^26.5, with rounding above it
    directions = np.zeros((d + 200, 1), dtype=np.int64)
    directions[0] = DIRECTION_LIMIT
    within = extreme_cross(d, 1, 1)
    replace(within, fraction_bits=MOST_FRACTION_BITS)
    beyond = replace(within, centre=np.zeros(d + 200, dtype=np.int64), directions=directions)
    replace(beyond, fraction_bits=MOST_FRACTION_BITS - 1)
    with refused(Code.OVERFLOW, "fraction bits"):
        replace(beyond, fraction_bits=MOST_FRACTION_BITS)


@pytest.mark.parametrize("d", [1, 3, 4, MAX_COLUMNS - 1, MAX_COLUMNS])
@pytest.mark.parametrize("part", [0.0, 0.3, 0.999999, 1.0])
def test_clipped_sums_and_energies_at_every_limit_equal_the_reference(d: int, part: float) -> None:
    radius = max(1, int(part * row_norm_limit(d)))
    centre = frozen(np.full(d, -S))
    for query in (q.ClippedSum(centre=centre, radius=radius), q.SquaredNormSum(centre=centre, radius=radius)):
        rows = corner_rows(d)
        assert Site(rows).answer(query).tolist() == kinds.answer(rows.tolist(), query)


@pytest.mark.slow
def test_a_gram_beyond_what_floats_add_up_exactly_is_exact() -> None:
    thin = q.Gram(centre=frozen([-S]), radius=row_norm_limit(1))
    many = np.broadcast_to(np.int16(S - 1), (2**27 + 2**20 + 1, 1))  # their sum is odd and beyond 2^53
    assert Site(many, chunk=2**17).answer(thin).tolist() == [len(many) * (2 * S - 1) ** 2]


def test_norm_edges_up_to_their_limit_compare_exactly() -> None:
    """Edges are squared in int64; the largest allowed one does not wrap around."""
    edges = frozen([2 * S - 1, 2 * S, 2 * S + 1, 2**31 - 1])
    query = q.RowNorms(centre=frozen([-S]), edges=edges)
    assert Site(np.array([[S]], dtype=np.int16)).answer(query).tolist() == [0, 0, 1, 0, 0]
    with refused(Code.OVERFLOW, "2**31"):
        q.RowNorms(centre=frozen([0]), edges=frozen([2**31]))
    far = q.GradientNorms(spec=extreme_field(MAX_COLUMNS, 2), edges=frozen([1, EDGE_LIMIT - 1]))
    assert Site(corner_rows(MAX_COLUMNS)).answer(far).sum() == 3


OUTSIDE: list[tuple[type[Any], dict[str, Any]]] = [
    (q.RowNorms, {"centre": [S + 1], "edges": [1]}),
    (q.Gram, {"centre": [0], "radius": row_norm_limit(1) + 1}),
    (q.Gram, {"centre": [0], "radius": 0}),
    (q.SquaredNormSum, {"centre": [], "radius": 1}),
    (q.SquaredNormSum, {"centre": [[0]], "radius": 1}),
    (q.RowNorms, {"centre": [0], "edges": []}),
    (q.RowNorms, {"centre": [0], "edges": [0, 1]}),
    (q.RowNorms, {"centre": [0], "edges": [2, 2]}),
    (q.RowNorms, {"centre": [0], "edges": list(range(1, 1026))}),
    (q.ColumnMoments, {"columns": 2, "radius": 2**20 + 1}),  # beyond which int64 could not decide [P29]
    (q.ColumnMoments, {"columns": 2, "radius": 0}),
    (q.GradientNorms, {"spec": FAR, "edges": [EDGE_LIMIT]}),
    (q.GradientSpec, FIELD | {"directions": [[DIRECTION_LIMIT + 1], [0]]}),
    (q.GradientSpec, FIELD | {"offset": [[MOST_PULL], [1]]}),
    (q.GradientSpec, FIELD | {"offset": [[0, 0]]}),
    (q.GradientSpec, FIELD | {"directions": [[1] * 3] * 2, "offset": [[0] * 3] * 2}),
    (q.GradientSpec, FIELD | {"directions": EMPTY, "offset": EMPTY}),
    (q.GradientSpec, FIELD | {"shift": 61}),
    (q.GradientSpec, FIELD | {"shift": -1}),
    (q.Gradient, {"spec": FAR, "radius": GRADIENT_LIMIT + 1}),
    (q.Gradient, {"spec": FAR, "radius": 0}),
    (q.CrossNorms, {"spec": AXES, "edges": [EDGE_LIMIT]}),
    (q.CrossSpec, CROSS | {"directions": [[DIRECTION_LIMIT + 1, 0], [0, 1]]}),
    (q.CrossSpec, CROSS | {"directions": [[DIRECTION_LIMIT, 0], [DIRECTION_LIMIT, 0]]}),  # too long
    (q.CrossSpec, CROSS | {"directions": [[DIRECTION_LIMIT] * 2, [0, 0]]}),  # the same twice
    (q.CrossSpec, CROSS | {"directions": [1, 2]}),
    (q.CrossSpec, CROSS | {"directions": EMPTY, "scales": [], "retained": []}),
    (q.CrossSpec, CROSS | {"scales": [], "retained": [0, 0]}),
    (q.CrossSpec, CROSS | {"scales": [1, 1]}),
    (q.CrossSpec, CROSS | {"scales": [0]}),
    (q.CrossSpec, CROSS | {"scales": [WEIGHT + 1]}),
    (q.CrossSpec, CROSS | {"retained": [-1]}),
    (q.CrossSpec, CROSS | {"retained": [WEIGHT + 1]}),
    (q.CrossSpec, CROSS | {"shift": 61}),
    (q.CrossSpec, CROSS | {"fraction_bits": MOST_FRACTION_BITS + 1}),
    (q.CrossSpec, CROSS | {"fraction_bits": -1}),
    (q.CrossCovariance, {"spec": AXES, "radius": GRADIENT_LIMIT + 1}),
    (q.CrossCovariance, {"spec": AXES, "radius": 0}),
]


@pytest.mark.parametrize(("kind", "values"), OUTSIDE)
def test_a_query_outside_its_limits_cannot_be_built(kind: type[Any], values: dict[str, Any]) -> None:
    with refused(Code.OVERFLOW):
        kind(**values)


@pytest.mark.parametrize("bad", [np.int64(100), 100.0, np.float64(100), True, "100", None, math.nan])
def test_a_radius_is_a_python_integer(bad: Any) -> None:
    """Found by these tests: a numpy radius of 2**18 wrapped around to a sensitivity of 0."""
    for kind in (q.ClippedSum, q.SquaredNormSum, q.Gram):
        with refused(Code.OVERFLOW, "whole number"):
            kind(centre=frozen([0, 0]), radius=bad)
    with refused(Code.OVERFLOW, "whole number"):
        q.Gradient(spec=FAR, radius=bad)
    with refused(Code.OVERFLOW, "whole number"):
        q.CrossCovariance(spec=AXES, radius=bad)
    with refused(Code.OVERFLOW, "whole number"):
        q.GradientSpec(**(FIELD | {"shift": bad}))


@pytest.mark.parametrize("bad", [0, -1, 2**53, 1.5, True, np.int64(5)])
def test_a_cost_is_a_whole_number_within_canonical_json(bad: Any) -> None:
    with refused(Code.BAD_STUDY, "micro-rho" if bad < 1 else "micro_rho"):
        a_query(q.Count(), micro_rho=bad)
    with refused(Code.BAD_STUDY, "round"):
        a_query(q.Count(), round=-1 if bad in (0, 2**53) else bad)


@pytest.mark.parametrize("bad", [[0.5], [float("nan")], ["1"], [True], [2**63], [2**70], [None]])
def test_only_64_bit_integers_become_a_query(bad: list[Any]) -> None:
    with pytest.raises((TypeError, OverflowError)):
        frozen(bad)


def test_a_sum_that_could_leave_the_exact_range_is_refused_exactly_at_the_limit() -> None:
    requests: list[q.Query] = [
        q.Count(),
        q.Gram(centre=frozen([0]), radius=S),
        q.Gradient(spec=extreme_field(2, 1), radius=3),
        q.CrossCovariance(spec=AXES, radius=3),
    ]
    for query in requests:
        most = (2**62 - 1) // query.bound
        check_no_overflow(query, most)
        with refused(Code.OVERFLOW, "max_records"):
            check_no_overflow(query, most + 1)
