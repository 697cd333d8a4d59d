"""Rows onto the public integer grid: impute or drop, clamp to the public bounds, scale, round.

Every step looks at one record alone, so a record's integers do not depend on its neighbours.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.study.study import FINEST_STEPS, Scaling, Study

S: int = FINEST_STEPS
ROW_BITS: int = S.bit_length() - 1
# What is stored of rows: their integers divided by `unit`.
GridRows = NDArray[np.int8 | np.int16]


def whole_bounds(largest: int) -> tuple[float, float]:
    """Public bounds for a column of whole numbers of magnitude up to `largest` (at most 4096): +-2^j.

    The grid has 4096 steps on either side of 0, so under these every whole number is a whole number of steps,
    and records that lie in a subspace do so on the grid.

    Raises:
        RequestError: code `bad-argument`: `largest` is beyond the grid.
    """
    if not 1 <= largest <= S:
        raise RequestError(Code.BAD_ARGUMENT, f"whole numbers stay exact from 1 to {S}, not up to {largest}")
    reach = float(2 ** (largest - 1).bit_length())
    return -reach, reach


def inexact_columns(study: Study) -> tuple[str, ...]:
    """The columns in which whole numbers are rounded: the middle or the number of stored steps to 1 is not
    whole."""
    per_unit = 1 / (steps(study) * unit(study))
    out = []
    for column, scale in zip(study.columns, per_unit, strict=True):
        whole_middle = math.isclose(column.middle, round(column.middle), abs_tol=1e-12)
        whole_scale = np.rint(scale) >= 1 and math.isclose(scale, np.rint(scale), rel_tol=1e-9)
        if not (whole_middle and whole_scale):
            out.append(column.name)
    return tuple(out)


def unit(study: Study) -> int:
    """How many grid steps a stored integer counts for. A record's row, which every clip, centre and claim is
    about, is its stored integers times this: a coarse grid is every so many points of the fine one."""
    return S // study.grid_steps


def stored_dtype(study: Study) -> np.dtype[np.int8] | np.dtype[np.int16]:
    """One byte a value where the stored integers fit it, else two."""
    return np.dtype(np.int8) if study.grid_steps <= 64 else np.dtype(np.int16)


def record_bytes(study: Study) -> int:
    """What a site holds of one record."""
    return study.dimension * stored_dtype(study).itemsize


def offsets(study: Study) -> FloatArray:
    """The value of each column at grid point 0. Shape: (d,)."""
    return np.array([column.middle for column in study.columns])


def steps(study: Study) -> FloatArray:
    """The width of one grid step of each column, in its unit, before a frame scales it. Shape: (d,)."""
    half = np.array([column.half_range for column in study.columns])
    if study.scaling is Scaling.NONE:
        half = np.full_like(half, half.max())
    # Half a part in 2**40 wider, so that rounding can never leave [-S, S].
    step: FloatArray = half * (1 + 2.0**-41) / S
    return step


def midpoint(study: Study) -> IntArray:
    """The public centre before any mean is known: the middle of the box. Shape: (d,)."""
    return frozen(np.zeros(study.dimension, dtype=np.int64))
