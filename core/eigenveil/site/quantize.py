"""Records onto the study's grid: imputed or dropped, clamped, scaled and rounded, one record at a time. That
each is one person's is the site's to see to [P30]."""

from __future__ import annotations

import numpy as np

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.apply import Apply
from eigenveil.numerics.encoding import FloatArray
from eigenveil.study.grid import GridRows, offsets, steps, stored_dtype, unit
from eigenveil.study.study import Missing, Study

CACHED = 2**17  # entries worked on at a time


def to_grid(values: FloatArray, study: Study, apply: Apply = map) -> GridRows:
    """Stored integers in [-grid_steps, grid_steps], a row a usable record; `apply` may work on many of them
    side by side.

    Values beyond the public bounds are moved to the bound. A record with a missing value (NaN) is
    dropped or filled as the study says.

    Shape: values (n, d) -> (m, d) with m <= n.

    Raises:
        RequestError: wrong number of columns, or an infinite value.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != study.dimension:
        shape = f"{values.shape[1]} columns" if values.ndim == 2 else f"{values.ndim} dimensions"
        raise RequestError(
            Code.BAD_DATA, f"the records have {shape}; the study has rows of {study.dimension} columns"
        )
    rows, complete = _placed(values, study, apply)
    if not complete:
        rows, _ = _placed(_complete(values, study), study, apply)
    rows.setflags(write=False)
    return rows


def _placed(values: FloatArray, study: Study, apply: Apply) -> tuple[GridRows, bool]:
    """Values as grid points, part by part in the cache; False, and not all of them, if one is missing or
    infinite. Shape: (n, d) -> (n, d).
    """
    lower = np.array([column.lower for column in study.columns])
    upper = np.array([column.upper for column in study.columns])
    middle, step = offsets(study), steps(study) * unit(study)
    rows: GridRows = np.empty(values.shape, dtype=stored_dtype(study))
    size = max(1, CACHED // study.dimension)

    def place(start: int) -> bool:
        part = values[start : start + size]
        if not np.isfinite(part).all():
            return False
        part = np.maximum(part, lower)
        np.minimum(part, upper, out=part)
        part -= middle
        part /= step
        rows[start : start + size] = np.rint(part, out=part)
        return True

    pieces = range(0, len(values), size)
    return rows, all(apply(place, pieces) if len(pieces) > 1 else map(place, pieces))


def _complete(values: FloatArray, study: Study) -> FloatArray:
    infinite = np.isinf(values).any(axis=0)
    if infinite.any():
        names = ", ".join(study.columns[i].name for i in np.flatnonzero(infinite))
        raise RequestError(
            Code.BAD_DATA, f"infinite values in: {names}; mark them as missing or mend the records"
        )
    missing = np.isnan(values)
    if study.missing is Missing.DROP:
        return values[~missing.any(axis=1)]
    return np.where(missing, np.array([column.fill for column in study.columns], dtype=np.float64), values)
