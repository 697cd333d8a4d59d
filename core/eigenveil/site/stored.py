"""Rows as they are stored, and on the grid as a question sees them: widened to float64 chunk by chunk, in the
cache, and never all.

Every chunk is written over the one before it: whoever takes one has done with it when taking the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.queries.columns import FRAME_BITS, Frame
from eigenveil.site.kernels import library
from eigenveil.site.kernels.compiled import CompiledRoom
from eigenveil.site.kernels.plain import Plain, PlainRoom
from eigenveil.study.grid import GridRows, S

CACHED = 3 * 2**15  # entries of a chunk: with what stands beside them 1.2 MB, which a core's cache holds


class StoredRows(Protocol):
    """A site's records as stored integers: an array, a memory map, or whatever gives contiguous slices.

    An answer to a query that does not need all rows at once (`queries.needs_all_rows`) takes slices
    `rows[start:stop]` from the front to the back, each row once; with several workers each of them does so in
    its own part.

    Shape: (n, d).
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, here: slice, /) -> GridRows: ...


class Chunk(Protocol):
    """Records z minus a public centre, integer-valued, and what is made of all their values [P1].

    Shape: z (m, d).
    """

    def __len__(self) -> int: ...

    def wide(self) -> FloatArray:
        """z, which the taker may write to."""

    def squared_norms(self) -> FloatArray:
        """||z||^2 <= 4 S^2 d, exact. Shape: (m,)."""

    def along(self, matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
        """z W and ||z||^2, exact where no sum of absolute products reaches 2**53 units of W.

        Shape: W (d, k) -> (m, k), to be read column by column, and (m,).
        """

    def combined(self, b: FloatArray) -> FloatArray:
        """b^T z, exact under the same condition. Shape: b (m, k) -> (k, d)."""

    def coefficients(
        self,
        a: FloatArray,
        z_offset: FloatArray | None,
        norm2: FloatArray,
        offset2: float,
        radius: int,
    ) -> tuple[FloatArray, FloatArray | None]:
        """`clipping.gradient_coefficients` of z."""

    def short(self, radius: int) -> FloatArray:
        """`clipping.shorten` of z. Shape: (m, d)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shown:
    """Records `start` to `stop` of a site. On the grid a record is its stored integers times `unit`; the
    frame, if there is one, shows that as another record of the same grid [P29].

    Shape: rows (n, d).
    Neighbours: each chunk's row is a function of that record and of public values alone, exact [P1].
    """

    rows: StoredRows
    unit: int
    frame: Frame | None
    start: int
    stop: int

    def parts(self, number: int) -> list[Shown]:
        """The same in at most so many parts, one after the other."""
        size = max(1, -(-(self.stop - self.start) // number))
        starts = range(self.start, self.stop, size)
        return [replace(self, start=start, stop=min(start + size, self.stop)) for start in starts]

    def __len__(self) -> int:
        return self.stop - self.start

    def all(self) -> GridRows:
        """Every record, as stored, for the few questions that need all rows at once."""
        return self.rows[self.start : self.stop]

    def only(self, positions: IntArray) -> Shown:
        """The records at `positions` among these, in that order; they are fetched as they are asked for."""
        picked = Picked(rows=self.all(), positions=positions)
        return replace(self, rows=picked, start=0, stop=len(picked))

    def stored(self, most: int, entries: int = CACHED) -> Iterator[GridRows]:
        """Chunks of at most `most` rows and about so many entries, as they are stored."""
        size = max(1, min(most, entries // self.rows.shape[1]))
        for start in range(self.start, self.stop, size):
            yield self.rows[start : min(start + size, self.stop)]

    def chunks(self, centre: IntArray, most: int, entries: int = CACHED) -> Iterator[Chunk]:
        """Chunks on the grid minus a public centre, exact: an entry is at most 2 S."""
        room: PlainRoom | CompiledRoom | None = None
        for rows in self.stored(most, entries):
            if self.frame is not None:
                z = seen(rows, self.frame, self.unit)
                z -= centre
                yield Plain(z)
            else:
                room = _room(len(rows), centre, self.unit) if room is None else room
                yield room.chunk(rows)

    def centred(self, centre: IntArray, most: int, entries: int = CACHED) -> Iterator[FloatArray]:
        """The same in float64."""
        return (chunk.wide() for chunk in self.chunks(centre, most, entries))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Picked:
    """Some of the records, wherever they lie. Shape: rows (n, d), positions (m,)."""

    rows: GridRows
    positions: IntArray

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.positions.size, self.rows.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.rows.dtype

    def __len__(self) -> int:
        return self.positions.size

    def __getitem__(self, here: slice, /) -> GridRows:
        return self.rows[self.positions[here]]


def _room(size: int, centre: IntArray, unit: int) -> PlainRoom | CompiledRoom:
    kernels = library.library()
    return PlainRoom(size, centre, unit) if kernels is None else CompiledRoom(kernels, size, centre, unit)


def on_grid(rows: GridRows, unit: int) -> GridRows:
    """Stored integers as grid rows, in two bytes unless they are that already: at most S. Shape: (m, d)."""
    return rows if unit == 1 else rows.astype(np.int16) * np.int16(unit)


def seen(rows: GridRows, frame: Frame, unit: int = 1) -> FloatArray:
    """Stored rows as the frame shows them. Shape: (m, d) -> (m, d).

    Exact: |x - m| <= 2 S = 2^13 and a factor of at most 2^30 have a product below 2^53, which a power of two
    divides exactly, and rint of an exact number is a function of that number.

    Neighbours: each row is a function of that record and of the public frame.
    Privacy: none by itself; it goes on to a query [P29].
    """
    part = rows.astype(np.float64)
    part *= unit
    part -= frame.middles
    part *= frame.factors * 2.0**-FRAME_BITS
    np.rint(part, out=part)
    return np.clip(part, -S, S, out=part)
