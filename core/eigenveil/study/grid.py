"""Public integer grid of a study: its step, bounds and storage type. A record's integers depend on no other
record: each step of placing it uses public numbers only."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.study.study import FINEST_STEPS, Scaling, Study

S: int = FINEST_STEPS
ROW_BITS: int = S.bit_length() - 1
# Stored rows: their integers divided by `unit`.
GridRows = NDArray[np.int8 | np.int16]


def whole_bounds(largest: int) -> tuple[float, float]:
    """Return public bounds +-2^j for a column of whole numbers of magnitude up to `largest` (at most 4096).
    The grid has 4096 steps on either side of 0. With these bounds every whole number is a whole number of
    steps, and records in a subspace stay in it on the grid.
    Raises RequestError: code `bad-argument`: `largest` is above 4096."""
    if not 1 <= largest <= S:
        raise RequestError(Code.BAD_ARGUMENT, f"largest must lie between 1 and {S}, got {largest}")
    reach = float(2 ** (largest - 1).bit_length())
    return -reach, reach


def inexact_columns(study: Study) -> tuple[str, ...]:
    """Return the columns whose middle, or number of stored steps per unit, is not a whole number. The grid
    rounds whole numbers in these columns."""
    per_unit = 1 / (steps(study) * unit(study))
    out = []
    for column, scale in zip(study.columns, per_unit, strict=True):
        whole_middle = math.isclose(column.middle, round(column.middle), abs_tol=1e-12)
        whole_scale = np.rint(scale) >= 1 and math.isclose(scale, np.rint(scale), rel_tol=1e-9)
        if not (whole_middle and whole_scale):
            out.append(column.name)
    return tuple(out)


def unit(study: Study) -> int:
    """Return the number of grid steps of one stored integer. A record's row is its stored integers times
    this number; clips, centres and claims refer to the row. A coarse grid is a regular subset of the
    finest grid."""
    return S // study.grid_steps


def stored_dtype(study: Study) -> np.dtype[np.int8] | np.dtype[np.int16]:
    """Return the integer type of stored values: one byte if they fit, else two."""
    return np.dtype(np.int8) if study.grid_steps <= 64 else np.dtype(np.int16)


def record_bytes(study: Study) -> int:
    """Return the bytes that a site stores of one record."""
    return study.dimension * stored_dtype(study).itemsize


def offsets(study: Study) -> FloatArray:
    """Return the value of each column at grid point 0. Shape: (d,)."""
    return np.array([column.middle for column in study.columns])


def steps(study: Study) -> FloatArray:
    """Return the width of a grid step of each column, in its unit, before a frame scales it. Shape: (d,)."""
    half = np.array([column.half_range for column in study.columns])
    if study.scaling is Scaling.NONE:
        half = np.full_like(half, half.max())
    # Wider by a relative 2**-41, so that rounding never leaves [-S, S].
    step: FloatArray = half * (1 + 2.0**-41) / S
    return step


def midpoint(study: Study) -> IntArray:
    """Return the public centre before a mean is known: the middle of the bounds. Shape: (d,)."""
    return frozen(np.zeros(study.dimension, dtype=np.int64))
