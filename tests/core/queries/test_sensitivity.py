"""[P1] [P28] [P29] What one record can change, by record and replay, in exact integers.

Sampled: for every kind of question and both relations at least 10,000 neighbour pairs, over
questions with 1 to 8 columns, radii from 1 to their limit, centres in the middle and in a corner,
directions and pulls up to their limits, and the records of `records.hostile_rows`. The largest
change found must not exceed the declared sensitivity, and must come within 1 % of it.
Exhaustive: nothing but `test_every_pair_of_a_small_box`, which tries every pair of records of a
small box.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.queries import (
    ClippedSum,
    ColumnHistograms,
    ColumnMoments,
    Count,
    CrossCovariance,
    CrossNorms,
    CrossSpec,
    Gradient,
    GradientNorms,
    GradientSpec,
    Gram,
    RowNorms,
    SquaredNormSum,
)
from eigenveil.queries.limits import GRADIENT_LIMIT, OFFSET_STEPS, row_norm_limit
from eigenveil.site.site import Site
from eigenveil.study.grid import S
from tests.core.records import Case, contributions, hostile_rows, judged, site_answer, squares
from tests.support import a_cross, every_query, random_rows

SHAPES = [(1, "middle"), (2, "middle"), (3, "corner"), (5, "random"), (8, "middle")]
RADII = (1, 5 * 117, 4000, S)
PAIRS = 10_000


def centre_of(d: int, where: str) -> IntArray:
    match where:
        case "middle":
            return frozen(np.zeros(d, dtype=np.int64))
        case "corner":
            return frozen(np.full(d, -S))
        case _:
            return frozen(np.random.default_rng(d).integers(-S, S, d, endpoint=True))


def row_cases(kind: type[ClippedSum | SquaredNormSum | Gram]) -> list[Case]:
    """The kinds that clip rows, at every shape and radius."""
    out = []
    for seed, ((d, where), radius) in enumerate(product(SHAPES, (*RADII, None))):
        centre = centre_of(d, where)
        query = kind(centre=centre, radius=radius or row_norm_limit(d))
        out.append(Case(query=query, rows=hostile_rows(400, centre, query.radius, seed)))
    return out


def histogram_cases() -> list[Case]:
    out = []
    for seed, (d, where) in enumerate(SHAPES):
        centre = centre_of(d, where)
        query = RowNorms(centre=centre, edges=frozen([1, 2, 4000, S, S + 1, 2 * S, 2**31 - 1]))
        out.append(Case(query=query, rows=hostile_rows(2000, centre, 4000, seed)))
    return out


def field_of(d: int, k: int, pull: int, shift: int, where: str) -> GradientSpec:
    """Directions along the first k axes, at their limit: `hostile_rows` know the worst pairs. Pull alike."""
    directions, pulls = np.zeros((d, k), dtype=np.int64), np.zeros((d, k), dtype=np.int64)
    directions[np.arange(k), np.arange(k)] = 2**20
    pulls[0, 0] = pull
    return GradientSpec(centre=centre_of(d, where), directions=directions, offset=pulls, shift=shift)


def random_field(d: int, k: int, pull: int, shift: int) -> GradientSpec:
    rng = np.random.default_rng(d + k)
    return GradientSpec(
        centre=centre_of(d, "random"),
        directions=rng.integers(-(2**20), 2**20, (d, k), endpoint=True),
        offset=rng.integers(-pull, pull, (d, k), endpoint=True),
        shift=shift,
    )


def gradient_cases(k: int, *, pulls: bool) -> list[Case]:
    """Radii from the limit down to one at which every record is dropped; pulls close to each radius."""
    out = []
    for seed, (d, radius) in enumerate(product((2, 3, 8), (GRADIENT_LIMIT, 2**24, 2**13, 7))):
        pull = max(1, (radius - radius // 500) // OFFSET_STEPS) if pulls else 0
        fields = [field_of(d, k, pull, 0, "middle"), random_field(d, k, pull // (d * k), 10)]
        for field in fields:
            rows = hostile_rows(450, field.centre, S, seed)
            out.append(Case(query=Gradient(spec=field, radius=radius), rows=rows))
    return out


def gradient_norm_cases() -> list[Case]:
    edges = frozen([1, 2**30, 2**40, 2**46, 2**60])
    fields = [field_of(3, 2, 900, 8, "corner"), random_field(4, 1, 0, 0), random_field(5, 3, 50, 20)]
    return [
        Case(query=GradientNorms(spec=field, edges=edges), rows=hostile_rows(3400, field.centre, S, seed))
        for seed, field in enumerate(fields)
    ]


def along_axes(d: int, k: int, shift: int, where: str = "middle") -> CrossSpec:
    """The first k axes lead, so that `hostile_rows` know the worst pairs; a spare one comes behind."""
    p = min(k + 1, d)
    return CrossSpec(
        centre=centre_of(d, where),
        directions=2**20 * np.eye(d, p, dtype=np.int64),
        scales=np.full(k, 2**10),
        kept=np.full(p - k, 700),
        shift=shift,
    )


def cross_cases(k: int) -> list[Case]:
    """Radii from the limit down to one at which every record is dropped."""
    out = []
    for seed, (d, radius) in enumerate(product((3, 8), (GRADIENT_LIMIT, 2**24, 2**15, 7))):
        for spec in (along_axes(d, k, 12), along_axes(d, k, 40, "corner"), a_cross(d, k)):
            rows = hostile_rows(450, spec.centre, S, seed)
            out.append(Case(query=CrossCovariance(spec=spec, radius=radius), rows=rows))
    return out


def cross_norm_cases() -> list[Case]:
    edges = frozen([1, 2**20, 2**30, 2**36, 2**60])
    specs = [along_axes(3, 2, 8, "corner"), a_cross(4, 1), a_cross(5, 3)]
    return [
        Case(query=CrossNorms(spec=spec, edges=edges), rows=hostile_rows(3400, spec.centre, S, seed))
        for seed, spec in enumerate(specs)
    ]


def column_cases(kind: type[ColumnHistograms | ColumnMoments]) -> list[Case]:
    """At every radius, on up to eight columns."""
    out = []
    for seed, (d, _) in enumerate(SHAPES):
        rows = hostile_rows(2000, centre_of(d, "middle"), 4000, seed)
        if kind is ColumnHistograms:
            out.append(Case(query=ColumnHistograms(columns=d), rows=rows))
        else:
            radii = (1, 117, 2**14, 2**20)
            out += [Case(query=ColumnMoments(columns=d, radius=r), rows=rows[:500]) for r in radii]
    return out


def count_cases() -> list[Case]:
    return [Case(query=Count(), rows=hostile_rows(PAIRS, centre_of(2, "middle"), S, 1))]


CASES: dict[str, Callable[[], list[Case]]] = {
    "count": count_cases,
    "row-norms": histogram_cases,
    "clipped-sum": lambda: row_cases(ClippedSum),
    "energy": lambda: row_cases(SquaredNormSum),
    "gram": lambda: row_cases(Gram),
    "gradient-norms": gradient_norm_cases,
    "gradient, k = 1": lambda: gradient_cases(1, pulls=False),
    "gradient, k = 2": lambda: gradient_cases(2, pulls=False),
    "gradient, k = 1, pull": lambda: gradient_cases(1, pulls=True),
    "gradient, k = 2, pull": lambda: gradient_cases(2, pulls=True),
    "column-histograms": lambda: column_cases(ColumnHistograms),
    "column-moments": lambda: column_cases(ColumnMoments),
    "cross-norms": cross_norm_cases,
    "cross-covariance, k = 1": lambda: cross_cases(1),
    "cross-covariance, k = 2": lambda: cross_cases(2),
}


@pytest.mark.parametrize("kind", CASES)
def test_no_neighbour_pair_exceeds_the_declared_sensitivity_and_one_reaches_it(kind: str) -> None:
    answered = [(case.query, contributions(case)) for case in CASES[kind]()]
    for neighbours in Neighbours:
        found = judged(answered, neighbours)
        assert found.pairs >= PAIRS
        assert found.worst <= 1
        if (kind, neighbours) != ("count", Neighbours.REPLACE_ONE):
            assert found.worst >= 0.99**2


def test_the_one_exception_is_a_record_that_replacing_drops() -> None:
    """A count can move under replace-one only where the new record is incomplete: by exactly its claim."""
    rows = random_rows(10, 2)
    moved = Site(rows).answer(Count()) - Site(rows[:-1]).answer(Count())
    assert moved**2 == Count().l2_squared(Neighbours.REPLACE_ONE)


@pytest.mark.parametrize("name", every_query())
def test_a_record_adds_its_own_answer_whatever_else_is_there(name: str) -> None:
    """answer(data + record) - answer(data) = answer(record), for data of each hostile sort."""
    query = every_query()[name]
    everything = hostile_rows(400, centre_of(4, "random"), S, 3)
    for size in (0, 1, 17, 399):
        record, data = everything[size : size + 1], everything[:size]
        more = site_answer(everything[: size + 1], query) - site_answer(data, query)
        assert more.tolist() == site_answer(record, query).tolist()


def test_every_pair_of_a_small_box() -> None:
    """All 125 records of {-2..2}^3 against each other, at every radius of the box."""
    box = np.array(list(product(range(-2, 3), repeat=3)), dtype=np.int16)
    left, right = np.array(list(product(range(125), repeat=2))).T
    kinds: list[type[ClippedSum | SquaredNormSum | Gram]] = [ClippedSum, SquaredNormSum, Gram]
    for kind, radius in product(kinds, range(1, 5)):
        query = kind(centre=frozen([0, 0, 0]), radius=radius)
        each = contributions(Case(query=query, rows=box))
        assert squares(query, each).max() <= query.l2_squared(Neighbours.ADD_REMOVE)
        pairs = squares(query, each[left] - each[right])
        assert pairs.max() <= query.l2_squared(Neighbours.REPLACE_ONE)
