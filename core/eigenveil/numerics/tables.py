"""Selection of table columns by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any


def select_columns(wanted: Sequence[str] | None, X: Any) -> Any:
    """Return the columns `wanted` of a table, in that order, and ignore all others.

    Data without column names, such as an array, is returned unchanged: its columns count by position.

    Raises:
        ValueError: a column is missing or occurs twice.
    """
    kind = type(X)  # read from the type: a column of a DataFrame may be called "select"
    available = next((getattr(X, name) for name in ("column_names", "columns") if hasattr(kind, name)), None)
    if wanted is None or available is None or not all(isinstance(name, str) for name in available):
        return X
    times = Counter(available)
    if missing := [name for name in wanted if not times[name]]:
        raise ValueError(f"the table has no column {_listed(missing)}; it has: {_listed(list(available))}")
    if twice := [name for name in wanted if times[name] > 1]:
        raise ValueError(f"the table has more than one column {_listed(twice)}")
    names = list(wanted)
    return X.select(names) if hasattr(kind, "select") else X[names]  # Arrow and polars; pandas


def _listed(names: list[str], most: int = 8) -> str:
    listed = ", ".join(repr(str(name)) for name in names[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"
