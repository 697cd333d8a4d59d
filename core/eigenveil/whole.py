"""Bounds at which whole numbers stay whole on the grid, without which no exact subspace survives rounding."""

from __future__ import annotations

import math

import numpy as np

from eigenveil.asks import S
from eigenveil.errors import Code, RequestError
from eigenveil.grid import steps
from eigenveil.study import Study


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
    """The columns in which whole numbers are rounded: the middle or the number of steps to 1 is not whole."""
    per_unit = 1 / steps(study)
    out = []
    for column, scale in zip(study.columns, per_unit, strict=True):
        whole_middle = math.isclose(column.middle, round(column.middle), abs_tol=1e-12)
        whole_scale = np.rint(scale) >= 1 and math.isclose(scale, np.rint(scale), rel_tol=1e-9)
        if not (whole_middle and whole_scale):
            out.append(column.name)
    return tuple(out)
