"""Contract of a query kind, descriptions of its answer, and what several kinds have in common. Descriptions
are from public parameters, the same for every site. The type checker refuses a kind that lacks a member."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.numerics.linalg import HalvesMap
from eigenveil.queries.limits import (
    BINS,
    ceil_sqrt,
    check_centre,
    check_edges,
    check_floor,
    check_whole,
    freeze,
    is_gram,
    is_within_norm,
    least_row_radius,
    on_norm_grid,
    require,
    row_norm_limit,
    triangle,
)
from eigenveil.study.grid import S, offsets, steps, unit
from eigenveil.study.study import Scaling, Study


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDescription:
    """Labels of an answer's numbers, and the unit of a value of 1. A number times its factor is in the unit
    of that name; both are empty where the study has no unit for it. `radius` is the clip radius of a record
    in grid steps, if there is one."""

    labels: Sequence[str]
    unit: str
    factors: tuple[float, ...] = ()
    names: tuple[str, ...] = ()
    radius: int | None = None


class SizedQuery(Protocol):
    """A query with an answer of known length."""

    __slots__ = ()

    @property
    def length(self) -> int: ...


def describe_numbers(query: SizedQuery, study: Study, labels: Sequence[str] = ()) -> QueryDescription:
    """Return the description of integers that only the method can read."""
    return QueryDescription(
        labels=labels or [f"number {i + 1}" for i in range(query.length)],
        unit="an integer of the method, clipped and scaled; the study has no unit for it",
    )


def describe_grid(
    study: Study,
    centre: IntArray | None,
    radius: int | None,
    through: tuple[FloatArray, FloatArray] | None = None,
) -> dict[str, Any]:
    """Return the public grid of the answers as plain values; `step` and `centre` are in a column's unit.
    `through` holds the middles and the step of a frame, both in grid steps."""
    middle, step, every = offsets(study), steps(study), unit(study)
    rounded = "" if every == 1 else f"; values are rounded to {study.grid_steps} of {every} each"
    reach = "the bounds of the widest column" if study.scaling is Scaling.NONE else "its own bounds"
    if through is not None:
        middle, step = middle + through[0] * step, through[1] * step
        reach = "the ends of its public frame; values beyond count as the end"
    return {
        "text": "a value is first moved into its column's public bounds, then rounded to grid steps; "
        f"{S} of them are half the distance between {reach}{rounded}",
        "radius": radius,
        "columns": [
            {
                "column": column.name,
                "unit": column.unit,
                "step": float(step[i]),
                "centre": None if centre is None else float(middle[i] + step[i] * centre[i]),
            }
            for i, column in enumerate(study.columns)
        ],
    }


if TYPE_CHECKING:
    from eigenveil_proto.v1 import eigenveil_pb2 as pb

    QueryKind = pb.Query._WhichOneofReturnType_kind  # the kinds of the protocol's messages
else:
    QueryKind = str


def mark(message: str) -> str:
    """Return `message` unchanged; mark it for the catalogues of the console."""
    return message


class QueryProtocol(Protocol):
    """A query kind: its parameters, and the possible answers of a site. An additive query also has `l1` and
    `l2_squared`, the sensitivities of its sum. A trusted query has `released_length`, the number of integers
    that its mechanism releases. All follow from its own clip alone."""

    kind: ClassVar[QueryKind]
    meaning: ClassVar[str]
    """Plain description of the query for the consent summary."""
    label: ClassVar[str]
    """Short name for tables; unless the release is the sum plus noise, it states what is released."""
    lay_meaning: ClassVar[str]
    """The answer in lay words; the console translates it."""

    @property
    def length(self) -> int:
        """Return the number of integers in a site's answer."""

    @property
    def bound(self) -> int:
        """Return the largest magnitude that one record adds to an entry."""

    def is_plausible(self, values: IntArray, records: range) -> bool:
        """Return True if an honest site with a number of records in `records` could answer this."""

    def check_honest(self) -> None:
        """Refuse a query beyond the public floors, which no honest study asks, whatever its releases [P25].
        Raises RequestError: code `plan-overflow`."""

    def assumed_release(self, records: int) -> IntArray:
        """Return an assumed release for a dry run: public numbers for `records` typical records."""

    def describe(self, study: Study) -> QueryDescription:
        """Return the label of each number of an answer and the unit of a value of 1."""


def decreasing_values(largest: int, length: int) -> IntArray:
    """Return assumed numbers, the i-th about `largest` / i. Shape: (length,)."""
    return frozen((largest // (1 + np.arange(length))).astype(np.int64))


def assumed_sum(query: QueryProtocol, records: int) -> IntArray:
    """Return the assumed sum of vectors with norms of an eighth of the query's bound. Shape: (length,)."""
    return decreasing_values(records * query.bound // 8, query.length)


def check_public(query: object) -> None:
    """Accept: only a centre is from releases, so an honest study may ask any such query."""


# What kinds have in common. A kind adds its fields, so that those stay in the order of their digest.


class EdgeHistogram:
    """Histogram: bin i counts edges[i-1] <= number < edges[i]. Shape: edges (b,); answer (b + 1,)."""

    __slots__ = ()
    bound: ClassVar[int] = 1
    edge_meaning: ClassVar[str]
    edges: IntArray

    def __post_init__(self) -> None:
        freeze(self, "edges")
        check_edges(self.edges)

    @property
    def length(self) -> int:
        return self.edges.size + 1

    def is_plausible(self, values: IntArray, records: range) -> bool:
        """Return True if each record can be in exactly one bin."""
        return bool((values >= 0).all()) and sum(map(int, values)) in records

    def describe(self, study: Study) -> QueryDescription:
        edges = self.edges
        inner = [f"records from {low} to below {high}" for low, high in pairwise(edges)]
        return QueryDescription(
            labels=[f"records below {edges[0]}", *inner, f"records from {edges[-1]}"],
            unit=f"one record; the edges of the bins are {self.edge_meaning}",
        )


class NormBins(EdgeHistogram):
    """Additive histogram of norms, on the public grid."""

    __slots__ = ()

    def check_honest(self) -> None:
        """Refuse other bins than those of the public grid, at some top."""
        require(
            self.edges.size == BINS - 1 and on_norm_grid(self.edges),
            "the bins of a histogram of norms must be those of the public grid",
        )

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: a record is one count in one bin; a replacement moves it to another."""
        return neighbours.records

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: 1^2, or 1^2 + 1^2."""
        return neighbours.records

    def assumed_release(self, records: int) -> IntArray:
        """Return a histogram with all records in the middle bin."""
        return frozen(records * (np.arange(self.length) == self.length // 2))


class ClippedVectors(SizedQuery):
    """Sum of one vector a record, each of norm <= R, in units of 1 / `weight`."""

    __slots__ = ()
    weight: ClassVar[int]
    radius: int
    assumed_release = assumed_sum

    @property
    def bound(self) -> int:
        return self.weight * self.radius

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: sqrt(length) times the one in L2."""
        return ceil_sqrt(self.length * self.l2_squared(neighbours))

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: a record adds a vector of norm <= weight R; two such differ by 2 weight R."""
        return (self.bound * neighbours.records) ** 2

    def is_plausible(self, values: IntArray, records: range) -> bool:
        return is_within_norm(values, records[-1] * self.bound)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClippedRows:
    """Rows z about a public centre, clipped to ||z|| <= R. Shape: centre (d,)."""

    centre: IntArray
    radius: int

    def __post_init__(self) -> None:
        freeze(self, "centre")
        check_centre(self.centre)
        check_whole("clip radius", self.radius, 1, row_norm_limit(self.centre.size))

    def check_honest(self) -> None:
        """Refuse a radius at which the farthest row, once clipped, would no longer count in a sum."""
        check_floor(self.radius, least_row_radius(self.centre.size))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GramAnswer(ClippedRows):
    """Sum of z z^T over clipped rows (entries truncated towards zero).
    Shape: answer (d (d + 1) / 2,): the diagonal, then the strict upper triangle row by row."""

    @property
    def length(self) -> int:
        return triangle(self.centre.size)

    @property
    def bound(self) -> int:
        return self.radius**2

    def is_plausible(self, values: IntArray, records: range, apply: HalvesMap = map) -> bool:
        return is_gram(values, self.centre.size, self.radius, records, apply)

    def describe(self, study: Study) -> QueryDescription:
        """Return the description of column products: the diagonal, then the strict upper triangle by rows."""
        names = [column.name for column in study.columns]
        each = [(float(step), column.unit) for step, column in zip(steps(study), study.columns, strict=True)]
        pairs = [*((one, one) for one in each), *combinations(each, 2)]
        return QueryDescription(
            labels=[
                *(f"{name} squared" for name in names),
                *(f"{a} x {b}" for a, b in combinations(names, 2)),
            ],
            unit="one grid step of each of the two columns, multiplied: products of distances from the "
            "centre, after clipping",
            factors=tuple(a * b for (a, _), (b, _) in pairs),
            names=tuple(f"{a} x {b}" for (_, a), (_, b) in pairs),
            radius=self.radius,
        )
