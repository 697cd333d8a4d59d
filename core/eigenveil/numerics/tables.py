"""The columns of a table by name, in the order in which somebody knows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any


def in_order(wanted: Sequence[str] | None, X: Any) -> Any:
    """The columns `wanted` of a table, in that order; what else it holds is not looked at.

    An array, and whatever bears no names, is returned as it is: its columns count by position.

    Raises:
        ValueError: a column is missing, or there twice.
    """
    kind = type(X)  # asked of the type: a column of a DataFrame may be called "select"
    held = next((getattr(X, name) for name in ("column_names", "columns") if hasattr(kind, name)), None)
    if wanted is None or held is None or not all(isinstance(name, str) for name in held):
        return X
    times = Counter(held)
    if missing := [name for name in wanted if not times[name]]:
        raise ValueError(f"the table has no column {_listed(missing)}; it has: {_listed(list(held))}")
    if twice := [name for name in wanted if times[name] > 1]:
        raise ValueError(f"the table has more than one column {_listed(twice)}")
    names = list(wanted)
    return X.select(names) if hasattr(kind, "select") else X[names]  # Arrow and polars; pandas


def _listed(names: list[str], most: int = 8) -> str:
    said = ", ".join(repr(str(name)) for name in names[:most])
    return said if len(names) <= most else f"{said} and {len(names) - most} more"
