"""Rows onto the public integer grid: impute or drop, clamp to the public bounds, scale, round.

Every step looks at one record alone, so a record's integers do not depend on its neighbours.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from eigenveil.asks import S
from eigenveil.errors import Code, RequestError
from eigenveil.ints import FloatArray, IntArray, frozen
from eigenveil.study import Missing, Scaling, Study

GridRows = NDArray[np.int16]
CACHED = 2**16  # entries worked on at a time, by each core
CORES = os.cpu_count() or 1


def to_grid(values: FloatArray, study: Study) -> GridRows:
    """Integer rows in [-S, S], one a usable record.

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
    if not np.isfinite(values).all():
        _refuse_infinite(values, study)
        values = _complete(values, study)
    lower = np.array([column.lower for column in study.columns])
    upper = np.array([column.upper for column in study.columns])
    middle, step = offsets(study), steps(study)
    rows = np.empty(values.shape, dtype=np.int16)
    size = max(1, CACHED // study.dimension)

    def place(start: int) -> None:
        part = np.clip(values[start : start + size], lower, upper)
        part -= middle
        part /= step
        rows[start : start + size] = np.rint(part, out=part)

    with ThreadPoolExecutor(CORES) as threads:
        for _ in threads.map(place, range(0, len(values), size)):
            pass  # a thread's error is raised here
    rows.setflags(write=False)
    return rows


def offsets(study: Study) -> FloatArray:
    """The value of each column at grid point 0. Shape: (d,)."""
    return np.array([column.middle for column in study.columns])


def steps(study: Study) -> FloatArray:
    """The width of one grid step of each column, in its unit. Shape: (d,)."""
    half = np.array([column.half_range for column in study.columns])
    if study.scaling is Scaling.NONE:
        half = np.full_like(half, half.max())
    # Half a part in 2**40 wider, so that rounding can never leave [-S, S].
    step: FloatArray = half * (1 + 2.0**-41) / S
    return step


def midpoint(study: Study) -> IntArray:
    """The public centre before any mean is known: the middle of the box. Shape: (d,)."""
    return frozen(np.zeros(study.dimension, dtype=np.int64))


def _refuse_infinite(values: FloatArray, study: Study) -> None:
    bad = np.flatnonzero(np.isinf(values).any(axis=0))
    if bad.size:
        names = ", ".join(study.columns[i].name for i in bad)
        raise RequestError(
            Code.BAD_DATA, f"infinite values in: {names}; mark them as missing or mend the records"
        )


def _complete(values: FloatArray, study: Study) -> FloatArray:
    missing = np.isnan(values)
    if study.missing is Missing.DROP:
        return values[~missing.any(axis=1)] if missing.any() else values
    fill = np.array([column.fill for column in study.columns], dtype=np.float64)
    return np.where(missing, fill, values)
