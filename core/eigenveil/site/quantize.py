"""Conversion of records to the study's grid: impute or drop, clamp, scale and round each record.

The site ensures that each record belongs to one person [P30].
"""

from __future__ import annotations

import numpy as np

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.parallel import ParallelMap
from eigenveil.study.grid import GridRows, offsets, steps, stored_dtype, unit
from eigenveil.study.study import Missing, Study

BLOCK_ENTRIES = 2**17  # entries of a block


def to_grid(values: FloatArray, study: Study, apply: ParallelMap = map) -> GridRows:
    """Return stored integers in [-grid_steps, grid_steps], one row per usable record.

    Values beyond the public bounds are moved to the bound. A record with a missing value (NaN) is dropped or
    filled, by the study's setting. `apply` may process blocks of records in parallel.

    Shape: values (n, d) -> (m, d) with m <= n.

    Raises:
        RequestError: wrong number of columns, or an infinite value.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != study.dimension:
        shape = f"{values.shape[1]} columns" if values.ndim == 2 else f"{values.ndim} dimensions"
        raise RequestError(
            Code.BAD_DATA, f"the records have {shape}; the study expects rows of {study.dimension} columns"
        )
    rows, complete = _to_grid_points(values, study, apply)
    if not complete:
        rows, _ = _to_grid_points(_complete_records(values, study), study, apply)
    rows.setflags(write=False)
    return rows


def _to_grid_points(values: FloatArray, study: Study, apply: ParallelMap) -> tuple[GridRows, bool]:
    """Return values as grid points, and True if all are finite; if not, the points are incomplete.

    Shape: (n, d) -> (n, d).
    """
    lower = np.array([column.lower for column in study.columns])
    upper = np.array([column.upper for column in study.columns])
    middle, step = offsets(study), steps(study) * unit(study)
    rows: GridRows = np.empty(values.shape, dtype=stored_dtype(study))
    size = max(1, BLOCK_ENTRIES // study.dimension)

    def place_block(start: int) -> bool:
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
    return rows, all(apply(place_block, pieces) if len(pieces) > 1 else map(place_block, pieces))


def _complete_records(values: FloatArray, study: Study) -> FloatArray:
    infinite = np.isinf(values).any(axis=0)
    if infinite.any():
        names = ", ".join(study.columns[i].name for i in np.flatnonzero(infinite))
        raise RequestError(
            Code.BAD_DATA, f"infinite values in: {names}; mark them as missing or correct the records"
        )
    missing = np.isnan(values)
    if study.missing is Missing.DROP:
        return values[~missing.any(axis=1)]
    return np.where(missing, np.array([column.fill for column in study.columns], dtype=np.float64), values)
