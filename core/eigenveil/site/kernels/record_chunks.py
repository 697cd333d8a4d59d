"""Chunks of records, processed by numpy or by optional C kernels. numpy converts to float64 once and
multiplies by BLAS; C reads as stored and widens in registers. The kernels are present where the wheel was
built with a compiler (hatch_build.py)."""

from __future__ import annotations

import ctypes
import math
import os
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.queries.limits import OFFSET_STEPS
from eigenveil.site.kernels import clipping
from eigenveil.site.kernels.clipping import clip_rows, gradient_coefficients
from eigenveil.study.grid import GridRows

LIBRARY_FILE = "kernels.so"


@cache
def load_kernels() -> ctypes.CDLL | None:
    """Return the kernels, or None if they were not built for this machine; numpy gives the same results.
    Their functions run without the interpreter's lock."""
    try:
        found = ctypes.CDLL(os.path.join(os.path.dirname(__file__), LIBRARY_FILE))
    except OSError:
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    for name, arguments in {
        "eigenveil_project": [pointer, pointer, number, pointer, pointer],
        "eigenveil_squared_norms": [pointer, pointer],
        "eigenveil_coefficients": [pointer],
        "eigenveil_weighted_sum": [pointer, pointer, number, pointer],
        "eigenveil_clipped": [pointer, ctypes.c_double, pointer],
        "eigenveil_widened": [pointer, pointer],
    }.items():
        function = getattr(found, name)
        function.argtypes, function.restype = arguments, None
    return found


@dataclass(frozen=True, slots=True, eq=False)
class NumpyChunk:
    """Chunk of records z minus a public centre, integer-valued, and their exact products [P1].
    Shape: z (m, d)."""

    z: FloatArray

    def __len__(self) -> int:
        return len(self.z)

    def wide(self) -> FloatArray:
        """Return z as float64; the caller may overwrite it."""
        return self.z

    def squared_norms(self) -> FloatArray:
        """Return ||z||^2 <= 4 S^2 d, exact. Shape: (m,)."""
        return np.asarray(np.vecdot(self.z, self.z))

    def project(self, matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return z W and ||z||^2, exact where no sum of absolute products reaches 2**53 units of W.
        Shape: W (d, k) -> (m, k) in column-major order, and (m,)."""
        return np.asfortranarray(self.z @ matrix), self.squared_norms()

    def weighted_sum(self, b: FloatArray) -> FloatArray:
        """Return b^T z, exact under the same condition. Shape: b (m, k) -> (k, d)."""
        return np.asarray(b.T @ self.z)

    def coefficients(
        self, a: FloatArray, z_offset: FloatArray | None, norm2: FloatArray, offset2: float, radius: int
    ) -> tuple[FloatArray, FloatArray | None]:
        """Return `clipping.gradient_coefficients` of z."""
        return gradient_coefficients(a, z_offset, np.sqrt(norm2), norm2, offset2, radius)

    def clipped(self, radius: int) -> FloatArray:
        """Return `clipping.clip_rows` of z. Shape: (m, d)."""
        return clip_rows(self.z, self.squared_norms().astype(np.int64), radius)


class NumpyChunkBuffer:
    """Buffer of the chunks of a pass, each of at most `size` rows; each chunk overwrites the one before. The
    centre is repeated for each row: subtracting it by broadcasting takes three times as long."""

    def __init__(self, size: int, centre: IntArray, unit: int) -> None:
        self._narrow = np.empty((size, centre.size), dtype=np.int16)
        self._wide = np.empty((size, centre.size))
        self._centre = np.tile(centre.astype(np.int16), (size, 1))
        self._unit = np.int16(unit)

    def chunk(self, rows: GridRows) -> NumpyChunk:
        """Return stored rows on the grid minus the centre: at most 2 S, which fits int16. Shape: (m, d)."""
        narrow, wide = self._narrow[: len(rows)], self._wide[: len(rows)]
        if self._unit == 1:
            np.subtract(rows, self._centre[: len(rows)], out=narrow)
        else:
            np.copyto(narrow, rows)
            narrow *= self._unit
            narrow -= self._centre[: len(rows)]
        np.copyto(wide, narrow)
        return NumpyChunk(wide)


LINE = 8  # rows of centres and matrices are padded to a multiple of it


class _ChunkArguments(ctypes.Structure):
    _fields_ = (
        ("rows", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("m", ctypes.c_int64),
        ("d", ctypes.c_int64),
        ("unit", ctypes.c_int64),
        ("centre", ctypes.c_void_p),
    )


class _CoefficientArguments(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("m", "k", "radius")),
        *((name, ctypes.c_double) for name in ("offset2", "certain", "tiny", "safe", "steps")),
        *((name, ctypes.c_void_p) for name in ("a", "z_offset", "norm", "norm2", "b", "u")),
    )


class CompiledChunkBuffer:
    """Shared parameters and float64 buffer of the chunks of a pass, each of at most `size` rows."""

    def __init__(self, kernels: ctypes.CDLL, size: int, centre: IntArray, unit: int) -> None:
        self.kernels = kernels
        self.size = size
        self.unit = unit
        self.d = centre.size
        self.padded = -(-self.d // LINE) * LINE
        self.centre = np.zeros(self.padded, dtype=np.int16)
        self.centre[: self.d] = centre
        self._wide = np.empty(0)

    def chunk(self, rows: GridRows) -> CompiledChunk:
        """Return stored rows of any layout as a chunk. Shape: (m, d)."""
        plain = rows.flags.c_contiguous and rows.flags.aligned
        return CompiledChunk(self, rows if plain else np.require(rows, requirements=("C", "A")))

    def wide(self, *shape: int) -> FloatArray:
        """Return memory for a float64 chunk; it is allocated at the first call."""
        if not self._wide.size:
            self._wide = np.empty(self.size * self.padded)
        return self._wide[: math.prod(shape)].reshape(shape)


class CompiledChunk:
    """The same as `NumpyChunk` in C. Shape: rows (m, d) as stored, contiguous. Shapes are checked before the
    arrays are passed to C, which checks nothing."""

    def __init__(self, buffer: CompiledChunkBuffer, rows: GridRows) -> None:
        if rows.shape[1] != buffer.d or len(rows) > buffer.size or rows.dtype not in (np.int8, np.int16):
            raise ValueError(
                f"rows of {rows.dtype} {rows.shape}; expected at most {buffer.size} of {buffer.d}"
            )
        self._buffer, self._rows = buffer, rows
        self._stored = _ChunkArguments(
            _address(rows), rows.itemsize, len(rows), buffer.d, buffer.unit, _address(buffer.centre)
        )

    def __len__(self) -> int:
        return len(self._rows)

    def wide(self) -> FloatArray:
        z = self._buffer.wide(len(self), self._buffer.d)
        self._buffer.kernels.eigenveil_widened(self._reference, _address(z))
        return z

    def squared_norms(self) -> FloatArray:
        norm2 = np.empty(len(self))
        self._buffer.kernels.eigenveil_squared_norms(self._reference, _address(norm2))
        return norm2

    def project(self, matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
        k, buffer = matrix.shape[1], self._buffer
        if len(matrix) != buffer.d:
            raise ValueError(f"the matrix has {len(matrix)} rows; the records have {buffer.d} columns")
        across = np.zeros((k, buffer.padded))
        across[:, : buffer.d] = matrix.T
        a, norm2 = np.zeros((k, len(self))), np.zeros(len(self))
        buffer.kernels.eigenveil_project(self._reference, _address(across), k, _address(a), _address(norm2))
        return a.T, norm2

    def weighted_sum(self, b: FloatArray) -> FloatArray:
        if len(b) != len(self):
            raise ValueError(f"{len(b)} coefficients for {len(self)} records")
        by_column = np.ascontiguousarray(b.T, dtype=np.float64)
        total = np.zeros((len(by_column), self._buffer.padded))
        self._buffer.kernels.eigenveil_weighted_sum(
            self._reference, _address(by_column), len(by_column), _address(total)
        )
        return total[:, : self._buffer.d]

    def coefficients(
        self, a: FloatArray, z_offset: FloatArray | None, norm2: FloatArray, offset2: float, radius: int
    ) -> tuple[FloatArray, FloatArray | None]:
        shapes = {a.shape, a.shape if z_offset is None else z_offset.shape, (*norm2.shape, a.shape[1])}
        if len(shapes) > 1:
            raise ValueError(f"records of different shapes {shapes}")
        columns, norm2, norm = np.ascontiguousarray(a.T), np.ascontiguousarray(norm2), np.sqrt(norm2)
        offset_products = None if z_offset is None else np.ascontiguousarray(z_offset.T)
        b, u = np.empty_like(columns), None if offset_products is None else np.empty_like(norm)
        limits = clipping.certain_bound(radius, offset2), clipping.TINY, clipping.SAFE, OFFSET_STEPS
        given = (columns, offset_products, norm, norm2, b, u)
        arrays = (0 if one is None else _address(one) for one in given)
        arguments = _CoefficientArguments(*a.shape, radius, offset2, *limits, *arrays)
        self._buffer.kernels.eigenveil_coefficients(ctypes.byref(arguments))
        return b.T, u

    def clipped(self, radius: int) -> FloatArray:
        z = self._buffer.wide(len(self), self._buffer.padded)
        self._buffer.kernels.eigenveil_clipped(self._reference, radius, _address(z))
        return z[:, : self._buffer.d]

    @property
    def _reference(self) -> object:
        return ctypes.byref(self._stored)


def _address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]  # faster than `ctypes.data`, which makes objects
    return address


Chunk = NumpyChunk | CompiledChunk


def chunk_buffer(size: int, centre: IntArray, unit: int) -> NumpyChunkBuffer | CompiledChunkBuffer:
    """Return the buffer of a pass in chunks of at most `size` rows, compiled where possible."""
    kernels = load_kernels()
    if kernels is None:
        return NumpyChunkBuffer(size, centre, unit)
    return CompiledChunkBuffer(kernels, size, centre, unit)
