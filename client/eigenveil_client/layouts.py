"""What each number of an answer stands for, in words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

from eigenveil.numerics.encoding import IntArray
from eigenveil.queries import (
    ClippedSum,
    CoordinateClippedSum,
    Count,
    Eigenvectors,
    Gradient,
    GradientNorms,
    Gram,
    Query,
    RadiusSearch,
    RowNorms,
    Spectrum,
    SquaredNormSum,
    Subspace,
)


def labels(query: Query, columns: Sequence[str]) -> list[str]:
    """One label a number; `columns` are the study's names, in its order."""
    match query:
        case Count():
            return ["usable records"]
        case SquaredNormSum():
            return ["squared distances from the centre, each cut off, added up"]
        case RowNorms() | RadiusSearch() | GradientNorms():
            return _bins(query.edges)
        case ClippedSum() | CoordinateClippedSum():
            return [f"{name}, added up" for name in columns] * (query.length // len(columns))
        case Gram() | Spectrum() | Eigenvectors() | Subspace() if query.length == _pairs(len(columns)):
            crossed = [f"{a} x {b}" for a, b in combinations(columns, 2)]
            return [*(f"{name} squared" for name in columns), *crossed]
        case Gradient():
            width = query.length // len(columns)
            return [f"{name}, pull on direction {i + 1}" for name in columns for i in range(width)]
        case _:
            return [f"number {i + 1}" for i in range(query.length)]


def _pairs(columns: int) -> int:
    return columns * (columns + 1) // 2


def _bins(edges: IntArray) -> list[str]:
    """Grid units: the public bounds of a column lie 2 S apart."""
    first, last = f"records below {edges[0]}", f"records from {edges[-1]}"
    return [first, *(f"records from {low} to below {high}" for low, high in pairwise(edges)), last]
