"""Public bounds of the columns, in each of the ways in which they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from eigenveil.numerics.encoding import FloatArray

# (lower, upper), a pair for each column, or a pair for each name.
Bounds = tuple[ArrayLike, ArrayLike] | Sequence[ArrayLike] | Mapping[str, ArrayLike]


def lower_upper(bounds: Any, names: Sequence[str], *, named: bool) -> tuple[list[float], list[float]]:
    """The lower and the upper bound of each of the columns `names`; `named`: they are the records' own names.

    Raises:
        ValueError: there are none, or they are not of these columns. Whether they rise, a study says.
    """
    if bounds is None:
        raise ValueError(
            "bounds=(lower, upper) is required: state public bounds of the columns, from what is known "
            "about the measurements; bounds read off the records would tell about them"
        )
    given = [_of(name, bounds, named) for name in names] if isinstance(bounds, Mapping) else bounds
    try:
        lower, upper = _sides(given, len(names), pairs=isinstance(bounds, Mapping))
    except (TypeError, ValueError) as problem:
        raise ValueError(
            f"bounds must be (lower, upper), each a number or {len(names)} numbers, one for each column; or "
            f"{len(names)} pairs [(lower, upper), ...]; or a mapping of each column's name to its pair"
        ) from problem
    return lower.tolist(), upper.tolist()


def _of(name: str, bounds: Mapping[str, Any], named: bool) -> Any:
    if not named:
        raise ValueError(
            "bounds by name need records whose columns have names, such as a DataFrame; for an array write "
            "[(lower, upper), ...] in the order of its columns"
        )
    if name not in bounds:
        raise ValueError(
            f"bounds say nothing of the column {name!r}; they name: {', '.join(map(str, bounds))}"
        )
    return bounds[name]


def _sides(bounds: Any, d: int, *, pairs: bool) -> tuple[FloatArray, FloatArray]:
    """Two tuples of two numbers may be read either way: a tuple holds two sides, a list holds pairs."""
    parts = [np.asarray(part, dtype=np.float64) for part in bounds]
    alike = len(parts) == d and all(part.shape == (2,) for part in parts)
    if pairs or (alike and not (d == 2 and isinstance(bounds, tuple))):
        lower, upper = np.array(parts).T
    else:
        lower, upper = (np.broadcast_to(part, (d,)) for part in parts)
    return lower, upper
