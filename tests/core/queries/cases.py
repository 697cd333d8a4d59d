"""For each kind of query, queries and records that try to break its sensitivity: a new kind is a row here,
and one query in `tests.support.every_query` or `tests.core.recorder.every_kind`. Queries with 1 to 8 columns,
radii from 1 to their limit, centres in the middle and in a corner, directions and pulls up to their limits,
and the records of `records.hostile_rows`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import numpy as np

from eigenveil import queries as q
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.queries.limits import GRADIENT_LIMIT, OFFSET_STEPS, row_norm_limit
from eigenveil.study.grid import S
from tests.core.records import Case, hostile_rows
from tests.support import a_cross

SHAPES = [(1, "middle"), (2, "middle"), (3, "corner"), (5, "random"), (8, "middle")]
RADII = (1, 5 * 117, 4000, S)
PAIRS = 10_000  # that are tried at least, of each kind and under either relation


def centre_of(d: int, where: str) -> IntArray:
    match where:
        case "middle":
            return frozen(np.zeros(d, dtype=np.int64))
        case "corner":
            return frozen(np.full(d, -S))
        case _:
            return frozen(np.random.default_rng(d).integers(-S, S, d, endpoint=True))


def tried(queries: Iterable[Any], n: int, radius: int | None = None) -> list[Case]:
    """Each query with `n` hostile records of this radius, or its own, about its own centre."""
    out = []
    for seed, query in enumerate(queries):
        centre, d = q.centre_of(query), q.columns_of(query) or 2
        about = centre_of(d, "middle") if centre is None else centre
        out.append(Case(query=query, rows=hostile_rows(n, about, radius or query.radius, seed)))
    return out


def row_cases(kind: type[q.ClippedSum | q.SquaredNormSum | q.Gram]) -> list[Case]:
    """The kinds that clip rows, at every shape and radius."""
    return tried(
        (
            kind(centre=centre_of(d, where), radius=radius or row_norm_limit(d))
            for (d, where), radius in product(SHAPES, (*RADII, None))
        ),
        400,
    )


def field_of(d: int, k: int, pull: int, shift: int, where: str) -> q.GradientSpec:
    """Directions along the first k axes, at their limit: `hostile_rows` know the worst pairs. Pull alike."""
    directions, pulls = np.zeros((d, k), dtype=np.int64), np.zeros((d, k), dtype=np.int64)
    directions[np.arange(k), np.arange(k)] = 2**20
    pulls[0, 0] = pull
    return q.GradientSpec(centre=centre_of(d, where), directions=directions, offset=pulls, shift=shift)


def random_field(d: int, k: int, pull: int, shift: int) -> q.GradientSpec:
    rng = np.random.default_rng(d + k)
    return q.GradientSpec(
        centre=centre_of(d, "random"),
        directions=rng.integers(-(2**20), 2**20, (d, k), endpoint=True),
        offset=rng.integers(-pull, pull, (d, k), endpoint=True),
        shift=shift,
    )


def gradient_cases(k: int, *, pulls: bool) -> list[Case]:
    """Radii from the limit down to one at which every record is dropped; pulls close to each radius."""
    queries = []
    for d, radius in product((2, 3, 8), (GRADIENT_LIMIT, 2**24, 2**13, 7)):
        pull = max(1, (radius - radius // 500) // OFFSET_STEPS) if pulls else 0
        fields = field_of(d, k, pull, 0, "middle"), random_field(d, k, pull // (d * k), 10)
        queries += [q.Gradient(spec=field, radius=radius) for field in fields]
    return tried(queries, 450, S)


def gradient_norm_cases() -> list[Case]:
    edges = frozen([1, 2**30, 2**40, 2**46, 2**60])
    fields = [field_of(3, 2, 900, 8, "corner"), random_field(4, 1, 0, 0), random_field(5, 3, 50, 20)]
    return tried((q.GradientNorms(spec=field, edges=edges) for field in fields), 3400, S)


def along_axes(d: int, k: int, shift: int, where: str = "middle") -> q.CrossSpec:
    """The first k axes lead, so that `hostile_rows` know the worst pairs; a spare one comes behind."""
    p = min(k + 1, d)
    return q.CrossSpec(
        centre=centre_of(d, where),
        directions=2**20 * np.eye(d, p, dtype=np.int64),
        scales=np.full(k, 2**10),
        retained=np.full(p - k, 700),
        shift=shift,
    )


def cross_cases(k: int) -> list[Case]:
    """Radii from the limit down to one at which every record is dropped."""
    queries = []
    for d, radius in product((3, 8), (GRADIENT_LIMIT, 2**24, 2**15, 7)):
        specs = along_axes(d, k, 12), along_axes(d, k, 40, "corner"), a_cross(d, k)
        queries += [q.CrossCovariance(spec=spec, radius=radius) for spec in specs]
    return tried(queries, 450, S)


def cross_norm_cases() -> list[Case]:
    edges = frozen([1, 2**20, 2**30, 2**36, 2**60])
    specs = [along_axes(3, 2, 8, "corner"), a_cross(4, 1), a_cross(5, 3)]
    return tried((q.CrossNorms(spec=spec, edges=edges) for spec in specs), 3400, S)


def moment_cases() -> list[Case]:
    """At every radius, on up to eight columns."""
    shapes = product((d for d, _ in SHAPES), (1, 117, 2**14, 2**20))
    return tried((q.ColumnMoments(columns=d, radius=radius) for d, radius in shapes), 500, 4000)


def one_direction(d: int, seed: int = 1, shift: int = 20) -> q.GradientSpec:
    rng = np.random.default_rng(seed)
    return q.GradientSpec(
        centre=rng.integers(-S // 4, S // 4, d),
        directions=rng.integers(-(2**19), 2**19, (d, 1)),
        offset=np.zeros((d, 1), dtype=np.int64),
        shift=shift,
    )


def coordinate_cases() -> list[Case]:
    shapes = enumerate(product((1, 3, 8), (1, 2**10, 2**25)))
    fields = ((one_direction(d, seed, shift=10), width) for seed, (d, width) in shapes)
    return tried(
        (q.CoordinateHistograms(spec=field, width=width, half=8) for field, width in fields), 1200, S
    )


def boxed_cases() -> list[Case]:
    """Boxes that cut off nearly all, some with a coordinate shut, one at the limit."""
    queries = []
    for seed, (d, half) in enumerate(product((1, 3, 8), (1, 2**8, GRADIENT_LIMIT))):
        field = one_direction(d, seed, shift=0 if half == GRADIENT_LIMIT else 12)
        halves = np.full(d, half)
        halves[1::3] = 0
        queries.append(q.CoordinateClippedSum(spec=field, middles=np.arange(d) - 3, halves=halves))
    return tried(queries, 1200, S)


EDGES = frozen([1, 2, 4000, S, S + 1, 2 * S, 2**31 - 1])
CASES: dict[str, Callable[[], list[Case]]] = {
    "count": lambda: tried([q.Count()], PAIRS, S),
    "row-norms": lambda: tried((q.RowNorms(centre=centre_of(*s), edges=EDGES) for s in SHAPES), 2000, 4000),
    "clipped-sum": lambda: row_cases(q.ClippedSum),
    "squared-norm-sum": lambda: row_cases(q.SquaredNormSum),
    "gram": lambda: row_cases(q.Gram),
    "gradient-norms": gradient_norm_cases,
    "gradient, k = 1": lambda: gradient_cases(1, pulls=False),
    "gradient, k = 2": lambda: gradient_cases(2, pulls=False),
    "gradient, k = 1, pull": lambda: gradient_cases(1, pulls=True),
    "gradient, k = 2, pull": lambda: gradient_cases(2, pulls=True),
    "coordinates": coordinate_cases,
    "coordinate-clipped-sum": boxed_cases,
    "column-histograms": lambda: tried((q.ColumnHistograms(columns=d) for d, _ in SHAPES), 2000, 4000),
    "column-moments": moment_cases,
    "cross-norms": cross_norm_cases,
    "cross-covariance, k = 1": lambda: cross_cases(1),
    "cross-covariance, k = 2": lambda: cross_cases(2),
}
