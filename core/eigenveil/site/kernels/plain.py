"""Chunks of records in numpy: widened once, and multiplied by BLAS."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.site.kernels.clipping import gradient_coefficients, shorten
from eigenveil.study.grid import GridRows


@dataclass(frozen=True, slots=True, eq=False)
class Plain:
    """A chunk of centred records. Shape: z (m, d), integer-valued."""

    z: FloatArray

    def __len__(self) -> int:
        return len(self.z)

    def wide(self) -> FloatArray:
        return self.z

    def squared_norms(self) -> FloatArray:
        return np.asarray(np.vecdot(self.z, self.z))

    def along(self, matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.asfortranarray(self.z @ matrix), self.squared_norms()

    def combined(self, b: FloatArray) -> FloatArray:
        return np.asarray(b.T @ self.z)

    def coefficients(
        self,
        a: FloatArray,
        z_offset: FloatArray | None,
        norm2: FloatArray,
        offset2: float,
        radius: int,
    ) -> tuple[FloatArray, FloatArray | None]:
        return gradient_coefficients(a, z_offset, np.sqrt(norm2), norm2, offset2, radius)

    def short(self, radius: int) -> FloatArray:
        return shorten(self.z, self.squared_norms().astype(np.int64), radius)


class PlainRoom:
    """The memory that chunks of at most so many rows are written to, one over the other.

    The centre stands there once for each row: taken off line by line it would cost three times as much.
    """

    def __init__(self, size: int, centre: IntArray, unit: int) -> None:
        self._narrow = np.empty((size, centre.size), dtype=np.int16)
        self._wide = np.empty((size, centre.size))
        self._centre = np.tile(centre.astype(np.int16), (size, 1))
        self._unit = np.int16(unit)

    def chunk(self, rows: GridRows) -> Plain:
        """Stored rows on the grid, minus the centre: at most 2 S, which int16 holds. Shape: (m, d)."""
        narrow, wide = self._narrow[: len(rows)], self._wide[: len(rows)]
        if self._unit == 1:
            np.subtract(rows, self._centre[: len(rows)], out=narrow)
        else:
            np.copyto(narrow, rows)
            narrow *= self._unit
            narrow -= self._centre[: len(rows)]
        np.copyto(wide, narrow)
        return Plain(wide)
