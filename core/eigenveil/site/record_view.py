"""Records on the study's grid: imputed or dropped, clamped, scaled and rounded, then read chunk by chunk. The
site ensures that each record belongs to one person [P30]. Chunks are float64 within the processor's cache and
share one buffer: each overwrites the one before, so a chunk must be used before the next is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.queries.columns import FRAME_BITS, Frame
from eigenveil.site.kernels import record_chunks
from eigenveil.site.kernels.record_chunks import Chunk, CompiledChunkBuffer, NumpyChunk, NumpyChunkBuffer
from eigenveil.study.grid import GridRows, S, offsets, steps, stored_dtype, unit
from eigenveil.study.study import Missing, Study

Piece = TypeVar("Piece")
Done = TypeVar("Done")


class ParallelMap(Protocol):
    """`map` or the map of an executor. Core starts no thread; the caller supplies this."""

    def __call__(self, work: Callable[[Piece], Done], pieces: Iterable[Piece], /) -> Iterable[Done]:
        """Return the results in the order of the pieces."""


BLOCK_ENTRIES = 2**17  # entries of a block


def to_grid(values: FloatArray, study: Study, apply: ParallelMap = map) -> GridRows:
    """Return stored integers in [-grid_steps, grid_steps], one row per usable record. Values beyond the
    public bounds are moved to the bound. A record with a missing value (NaN) is dropped or filled, by the
    study's setting. `apply` may process blocks of records in parallel.
    Shape: values (n, d) -> (m, d) with m <= n.
    Raises RequestError: wrong number of columns, or an infinite value."""
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
    Shape: (n, d) -> (n, d)."""
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


CHUNK_ENTRIES = 3 * 2**15  # of a chunk: 1.2 MB with its intermediate arrays, which fits a core's cache


class StoredRows(Protocol):
    """Records of a site as stored integers: an array, a memory map or another source of contiguous slices.
    Unless a query needs all rows at once (`queries.needs_all_rows`), slices `rows[start:stop]` are read in
    ascending order, each row once. With several workers, each reads its own part that way.
    Shape: (n, d)."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, here: slice, /) -> GridRows: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordView:
    """Records `start` to `stop` of a site on the grid. A grid record is its stored integers times `unit`. A
    frame maps it to another record of the grid [P29].
    Shape: rows (n, d).
    Neighbours: each chunk's row is an exact function of that record and of public values alone [P1]."""

    rows: StoredRows
    unit: int
    frame: Frame | None
    start: int
    stop: int

    def split(self, number: int) -> list[RecordView]:
        """Return at most `number` consecutive parts of this view."""
        size = max(1, -(-(self.stop - self.start) // number))
        starts = range(self.start, self.stop, size)
        return [replace(self, start=start, stop=min(start + size, self.stop)) for start in starts]

    def __len__(self) -> int:
        return self.stop - self.start

    def all_rows(self) -> GridRows:
        """Return every record as stored, for the queries that need all rows at once."""
        return self.rows[self.start : self.stop]

    def select(self, positions: IntArray) -> RecordView:
        """Return a view of the records at `positions`, in that order; rows are read when they are used."""
        picked = SelectedRows(rows=self.all_rows(), positions=positions)
        return replace(self, rows=picked, start=0, stop=len(picked))

    def chunks(self, centre: IntArray, most: int, entries: int = CHUNK_ENTRIES) -> Iterator[Chunk]:
        """Yield chunks of at most `most` rows, about `entries` entries, on the grid minus a public centre.
        Exact: an entry is at most 2 S."""
        buffer: NumpyChunkBuffer | CompiledChunkBuffer | None = None
        size = max(1, min(most, entries // self.rows.shape[1]))
        for start in range(self.start, self.stop, size):
            rows = self.rows[start : min(start + size, self.stop)]
            if self.frame is not None:
                z = apply_frame(rows, self.frame, self.unit)
                z -= centre
                yield NumpyChunk(z)
            else:
                buffer = buffer or record_chunks.chunk_buffer(len(rows), centre, self.unit)
                yield buffer.chunk(rows)

    def centred(self, centre: IntArray, most: int, entries: int = CHUNK_ENTRIES) -> Iterator[FloatArray]:
        """Return the same chunks in float64."""
        return (chunk.wide() for chunk in self.chunks(centre, most, entries))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SelectedRows:
    """Records at given positions. Shape: rows (n, d), positions (m,)."""

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


def on_grid(rows: GridRows, unit: int) -> GridRows:
    """Return stored integers as grid rows of at most S, in int16 unless unit is 1. Shape: (m, d)."""
    return rows if unit == 1 else rows.astype(np.int16) * np.int16(unit)


def apply_frame(rows: GridRows, frame: Frame, unit: int = 1) -> FloatArray:
    """Return stored rows scaled and rounded by the frame. Shape: (m, d) -> (m, d).
    Exact: |x - m| <= 2 S = 2^13 and a factor of at most 2^30 have a product below 2^53. A power of two
    divides it exactly, and rint of an exact number is a function of that number.
    Neighbours: each row is a function of that record and of the public frame.
    Privacy: none by itself; the rows go to a query [P29]."""
    part = rows.astype(np.float64)
    part *= unit
    part -= frame.middles
    part *= frame.factors * 2.0**-FRAME_BITS
    np.rint(part, out=part)
    return np.clip(part, -S, S, out=part)
