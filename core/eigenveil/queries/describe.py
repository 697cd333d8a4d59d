"""What an answer's numbers are, in words: the grid, the centre and the radius are public, so the same words
could be said of any site's answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, Protocol

from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.queries.limits import Clipped
from eigenveil.study.grid import S, offsets, steps, unit
from eigenveil.study.study import Scaling, Study


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """`labels` says what each number is, `unit` what a value of 1 is.

    Times its factor, a number is in the study's unit of that name; both are empty where the study has no unit
    for it. `radius`, in grid steps, is what a record is shortened to, if it is.
    """

    labels: Sequence[str]
    unit: str
    factors: tuple[float, ...] = ()
    names: tuple[str, ...] = ()
    radius: int | None = None


class Counted(Protocol):
    """A query whose answer has that many integers."""

    @property
    def length(self) -> int: ...


def numbered(query: Counted, study: Study, labels: Sequence[str] = ()) -> Description:
    """Integers that only the method can read."""
    return Description(
        labels=labels or [f"number {i + 1}" for i in range(query.length)],
        unit="an integer of the method, clipped and scaled; the study has no unit for it",
    )


def histogram(edges: IntArray, meant: str) -> Description:
    """A histogram; `meant` says what its edges are."""
    first, last = f"records below {edges[0]}", f"records from {edges[-1]}"
    inner = [f"records from {low} to below {high}" for low, high in pairwise(edges)]
    return Description(labels=[first, *inner, last], unit=f"one record; the edges of the bins are {meant}")


def column_products(query: Clipped, study: Study) -> Description:
    """Products of column pairs: the diagonal, then the strict upper triangle row by row."""
    names = [column.name for column in study.columns]
    each = [(float(step), column.unit) for step, column in zip(steps(study), study.columns, strict=True)]
    pairs = [*((one, one) for one in each), *combinations(each, 2)]
    return Description(
        labels=[*(f"{name} squared" for name in names), *(f"{a} x {b}" for a, b in combinations(names, 2))],
        unit="one grid step of each of the two columns, multiplied: products of distances from the centre, "
        "after clipping",
        factors=tuple(a * b for (a, _), (b, _) in pairs),
        names=tuple(f"{a} x {b}" for (_, a), (_, b) in pairs),
        radius=query.radius,
    )


def _rounded(study: Study) -> str:
    """What a coarse grid adds to those words."""
    every = unit(study)
    return "" if every == 1 else f"; values are rounded to {study.grid_steps} of {every} each"


def grid(
    study: Study,
    centre: IntArray | None,
    radius: int | None,
    through: tuple[FloatArray, FloatArray] | None = None,
) -> dict[str, Any]:
    """The public grid that answers count on: plain values. `step` and `centre` are in a column's unit.

    `through` is what a frame makes of the grid: its middles in grid steps, and its step in grid steps.
    """
    middle, step = offsets(study), steps(study)
    reach = "the bounds of the widest column" if study.scaling is Scaling.NONE else "its own bounds"
    if through is not None:
        middle, step = middle + through[0] * step, through[1] * step
        reach = "the ends of what a public frame shows of it; what lies beyond counts as the end"
    return {
        "words": "a value is first moved into its column's public bounds, then counted in grid steps; "
        f"{S} of them are half the distance between {reach}{_rounded(study)}",
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
