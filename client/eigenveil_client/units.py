"""What one unit of an answer's numbers is, in public terms: the grid, the centre, the radius.

Only public values are used, so the same words could be said of any site's answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

from eigenveil.numerics.encoding import IntArray
from eigenveil.queries import (
    ClippedSum,
    Count,
    Eigenvectors,
    GradientNorms,
    Gram,
    OnGradients,
    Query,
    RadiusSearch,
    RowNorms,
    Spectrum,
    SquaredNormSum,
    Subspace,
)
from eigenveil.queries.limits import WEIGHT
from eigenveil.study.grid import S, offsets, steps
from eigenveil.study.study import Scaling, Study


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What one unit of the numbers is. Times its factor, a number is in the study's unit of that name; both
    are empty where the study has no unit for it, else there is one a number."""

    words: str
    factors: tuple[float, ...] = ()
    names: tuple[str, ...] = ()


def scale(query: Query, study: Study) -> Scale:
    """The unit of the numbers that answer `ask`."""
    match query:
        case Count():
            return Scale(words="one record")
        case RowNorms() | RadiusSearch():
            return Scale(
                words="one record; the edges of the bins are distances from the centre, in grid steps"
            )
        case GradientNorms():
            return Scale(
                words="one record; the edges of the bins are lengths of gradients, scaled to integers"
            )
        case ClippedSum():
            step = tuple(float(one) / WEIGHT for one in steps(study))
            names = tuple(column.unit for column in study.columns)
            words = f"1/{WEIGHT} of a grid step from the centre, after clipping"
            return Scale(words=words, factors=step, names=names)
        case SquaredNormSum():
            return Scale(words="one squared grid step from the centre, after clipping")
        case Gram() | Spectrum() | Eigenvectors() | Subspace():
            return _products(study)
        case _:
            return Scale(words="an integer of the method, clipped and scaled; the study has no unit for it")


def _products(study: Study) -> Scale:
    """In the order of `eigenveil.site.site.gram`: the diagonal, then the pairs."""
    each = [(float(step), column.unit) for step, column in zip(steps(study), study.columns, strict=True)]
    pairs = [*((one, one) for one in each), *combinations(each, 2)]
    return Scale(
        words="one grid step of each of the two columns, multiplied: products of distances from the centre, "
        "after clipping",
        factors=tuple(a * b for (a, _), (b, _) in pairs),
        names=tuple(f"{a} x {b}" for (_, a), (_, b) in pairs),
    )


def grid(query: Query, study: Study) -> dict[str, Any]:
    """The public grid that `ask` counts on: plain values. `step` and `centre` are in a column's unit, and
    `radius` is in grid steps (None: the question has none)."""
    centre = _centre(query)
    middle, step = offsets(study), steps(study)
    reach = "its own bounds" if study.scaling is Scaling.BOUNDS else "the bounds of the widest column"
    return {
        "words": "a value is first moved into its column's public bounds, then counted in grid steps; "
        f"{S} of them are half the distance between {reach}",
        "radius": None if isinstance(query, OnGradients) else getattr(query, "radius", None),
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


def _centre(query: Query) -> IntArray | None:
    if isinstance(query, Count):
        return None
    return (query.spec if isinstance(query, OnGradients) else query).centre
