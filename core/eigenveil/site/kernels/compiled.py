"""Chunks of records in C: read as they are stored, and widened in registers."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.queries.limits import OFFSET_STEPS
from eigenveil.site.kernels import clipping
from eigenveil.study.grid import GridRows

LINE = 8  # what rows of centres and matrices are filled up to


class _Stored(ctypes.Structure):
    _fields_ = (
        ("rows", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("m", ctypes.c_int64),
        ("d", ctypes.c_int64),
        ("unit", ctypes.c_int64),
        ("centre", ctypes.c_void_p),
    )


class _Pulls(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("m", "k", "radius")),
        *((name, ctypes.c_double) for name in ("offset2", "certain", "tiny", "safe", "steps")),
        *((name, ctypes.c_void_p) for name in ("a", "z_offset", "norm", "norm2", "b", "u")),
    )


class CompiledRoom:
    """What chunks of at most so many rows have in common, and the memory that they are widened to."""

    def __init__(self, kernels: ctypes.CDLL, size: int, centre: IntArray, unit: int) -> None:
        self.kernels = kernels
        self.size = size
        self.unit = unit
        self.d = centre.size
        self.padded = -(-self.d // LINE) * LINE
        self.centre = np.zeros(self.padded, dtype=np.int16)
        self.centre[: self.d] = centre
        self._wide = np.empty(0)

    def chunk(self, rows: GridRows) -> Compiled:
        """Stored rows, of whatever layout, as they will be centred. Shape: (m, d)."""
        plain = rows.flags.c_contiguous and rows.flags.aligned
        return Compiled(self, rows if plain else np.require(rows, requirements=("C", "A")))

    def wide(self, *shape: int) -> FloatArray:
        """Memory for a widened chunk; a pass that widens none takes none."""
        if not self._wide.size:
            self._wide = np.empty(self.size * self.padded)
        return self._wide[: math.prod(shape)].reshape(shape)


class Compiled:
    """A chunk of centred records. Shape: rows (m, d) as stored, one after the other.

    What is handed to C is measured first: there nobody would notice.
    """

    def __init__(self, room: CompiledRoom, rows: GridRows) -> None:
        if rows.shape[1] != room.d or len(rows) > room.size or rows.dtype not in (np.int8, np.int16):
            raise ValueError(f"rows of {rows.dtype} {rows.shape} where {room.size} of {room.d} were expected")
        self._room, self._rows = room, rows
        self._stored = _Stored(_of(rows), rows.itemsize, len(rows), room.d, room.unit, _of(room.centre))

    def __len__(self) -> int:
        return len(self._rows)

    def wide(self) -> FloatArray:
        z = self._room.wide(len(self), self._room.d)
        self._room.kernels.eigenveil_widened(self._at, _of(z))
        return z

    def squared_norms(self) -> FloatArray:
        norm2 = np.empty(len(self))
        self._room.kernels.eigenveil_squared_norms(self._at, _of(norm2))
        return norm2

    def along(self, matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
        k, room = matrix.shape[1], self._room
        if len(matrix) != room.d:
            raise ValueError(f"a matrix of {len(matrix)} rows for {room.d} columns")
        across = np.zeros((k, room.padded))
        across[:, : room.d] = matrix.T
        a, norm2 = np.zeros((k, len(self))), np.zeros(len(self))
        room.kernels.eigenveil_along(self._at, _of(across), k, _of(a), _of(norm2))
        return a.T, norm2

    def combined(self, b: FloatArray) -> FloatArray:
        if len(b) != len(self):
            raise ValueError(f"{len(b)} coefficients for {len(self)} records")
        by_column = np.ascontiguousarray(b.T, dtype=np.float64)
        total = np.zeros((len(by_column), self._room.padded))
        self._room.kernels.eigenveil_combined(self._at, _of(by_column), len(by_column), _of(total))
        return total[:, : self._room.d]

    def coefficients(
        self,
        a: FloatArray,
        z_offset: FloatArray | None,
        norm2: FloatArray,
        offset2: float,
        radius: int,
    ) -> tuple[FloatArray, FloatArray | None]:
        shapes = {a.shape, a.shape if z_offset is None else z_offset.shape, (*norm2.shape, a.shape[1])}
        if len(shapes) > 1:
            raise ValueError(f"records of different shapes {shapes}")
        columns, norm2, norm = np.ascontiguousarray(a.T), np.ascontiguousarray(norm2), np.sqrt(norm2)
        away = None if z_offset is None else np.ascontiguousarray(z_offset.T)
        b, u = np.empty_like(columns), None if away is None else np.empty_like(norm)
        (m, k), limits = (
            a.shape,
            (clipping.certain(radius, offset2), clipping.TINY, clipping.SAFE, OFFSET_STEPS),
        )
        arrays = [0 if one is None else _of(one) for one in (columns, away, norm, norm2, b, u)]
        self._room.kernels.eigenveil_coefficients(
            ctypes.byref(_Pulls(m, k, radius, offset2, *limits, *arrays))
        )
        return b.T, u

    def short(self, radius: int) -> FloatArray:
        z = self._room.wide(len(self), self._room.padded)
        self._room.kernels.eigenveil_shortened(self._at, radius, _of(z))
        return z[:, : self._room.d]

    @property
    def _at(self) -> object:
        return ctypes.byref(self._stored)


def _of(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]  # `ctypes.data` makes objects on the way
    return address
