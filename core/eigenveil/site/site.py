"""Private side at one site: stored records and the exact answer to a query. Records are converted to float64
chunk by chunk; no full-length copy is made. All products are float64 BLAS products of integer-valued
matrices. Their sums of absolute products stay below 2**53, so they are exact and independent of order,
threads and chunks [P1]."""

from __future__ import annotations

import os
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.queries import (
    Batch,
    ClippedSum,
    ColumnHistograms,
    ColumnMoments,
    ColumnQuery,
    CoordinateClippedSum,
    CoordinateHistograms,
    Count,
    CrossCovariance,
    CrossNorms,
    EigenvalueVotes,
    Frame,
    Gradient,
    GradientNorms,
    GradientQuery,
    Query,
    ShuffledRecord,
    SquaredNormSum,
    SubspaceQuery,
    batch_of,
    columns_of,
)
from eigenveil.queries.contract import GramAnswer
from eigenveil.queries.rows import RowBins
from eigenveil.site import batches, subspaces, sums
from eigenveil.site.batches import assign_batches, shuffle_slots
from eigenveil.site.record_view import ParallelMap, RecordView, StoredRows, on_grid

CHUNK = 4096  # rows of a chunk at most
FEW_PRODUCTS = 2**20  # of records and numbers of an answer: less than a millisecond of one core
OnRows = RowBins | ClippedSum | SquaredNormSum | GramAnswer | CrossNorms | CrossCovariance


class Site:
    """Records of one site, split among `workers` that may run in parallel. `secret` (32 bytes) keys the
    secret order of records; the default is a new random one.
    Shape: rows (n, d) stored integers; times `unit` they are on the study's grid.
    Cost: per worker a chunk and up to two answers. During a pass at most 4 bytes a record for the batches, or
    8 bytes a slot of a secret order. The last Gram matrix is kept: wide studies ask for it twice, with noise
    of its own each time. Queries that need all rows at once also load them into memory."""

    def __init__(
        self,
        rows: StoredRows,
        *,
        unit: int = 1,
        chunk: int = CHUNK,
        workers: int = 1,
        secret: bytes | None = None,
    ) -> None:
        self.rows = rows
        self._unit = unit
        self._secret = os.urandom(32) if secret is None else secret
        self._chunk = chunk
        self._workers = workers
        self._pass: tuple[int, bytes] | None = None
        self._assignment: NDArray[np.integer[Any]] = np.zeros(0, dtype=np.int64)
        self._gram: tuple[bytes, IntArray] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def answer(self, query: Query, apply: ParallelMap = map, *, frame: Frame | None = None) -> IntArray:
        """Return the exact sum over this site's records in the units of `frame`. Shape: (query.length,).
        `apply` may process the parts in parallel, like an executor's `map`; integer sums do not depend on it.
        Neighbours: one record more changes the answer to an additive query by at most
        sqrt(query.l2_squared(add-remove)) in L2.
        Privacy: none by itself; the answer goes to the barrier [P1].
        Raises RequestError: the query or the frame has another number of columns."""
        if isinstance(query, Count):
            return frozen([len(self.rows)])
        self._check_columns(columns_of(query))
        self._check_columns(None if frame is None else frame.columns)
        view = RecordView(rows=self.rows, unit=self._unit, frame=frame, start=0, stop=len(self.rows))
        if isinstance(query, SubspaceQuery):  # it has no frame
            return subspaces.answer(on_grid(view.all_rows(), self._unit), query)
        if isinstance(query, GramAnswer):
            return self._gram_answer(view, query, apply)
        batch = batch_of(query)
        if batch is not None:
            shuffled = isinstance(query, ShuffledRecord)
            order = self._slot_position(batch) if shuffled else self._batch_positions(batch)
            view = view.select(order)
        return self._sum(view, query, apply)

    def _sum(
        self, view: RecordView, query: OnRows | ColumnQuery | GradientQuery, apply: ParallelMap
    ) -> IntArray:
        total = np.zeros(query.length, dtype=np.int64)
        # A voting subset's records are scattered, so the rows are not split; few are answered sooner in one.
        few = 0 < len(view) * max(query.length, self.rows.shape[1]) <= FEW_PRODUCTS
        parts = [view] if few or isinstance(query, EigenvalueVotes) else view.split(self._workers)
        in_order = map if len(parts) == 1 else apply
        for answer in in_order(lambda part: _answer_part(part, query, self._chunk), parts):
            total += answer
            del answer  # frees a long answer before the next one is made
        total.setflags(write=False)
        return frozen(total)

    def _gram_answer(self, view: RecordView, query: GramAnswer, apply: ParallelMap) -> IntArray:
        """Return the Gram matrix, without another pass if the last one was of the same clipped rows."""
        frame = () if view.frame is None else (view.frame.middles, view.frame.factors)
        name = query.radius.to_bytes(8, "little") + b"".join(map(bytes, (query.centre, *frame)))
        if self._gram is None or self._gram[0] != name:
            self._gram = None  # freed before the new one is made
            self._gram = name, self._sum(view, query, apply)
        return self._gram[1]

    def _batch_positions(self, batch: Batch) -> IntArray:
        """Return the positions of the records in a batch. The assignment is cached for the pass. It depends
        on the stored records alone, so a frame does not change a record's batch [P9]."""
        name = (batch.batches, batch.key.tobytes())
        if name != self._pass:
            assignment = assign_batches(self.rows[0 : len(self)], batch.batches, batch.key, self._unit)
            self._pass, self._assignment = name, assignment.astype(np.min_scalar_type(batch.batches - 1))
        return np.flatnonzero(self._assignment == batch.index)

    def _slot_position(self, batch: Batch) -> IntArray:
        """Return the position of the record in this slot of the secret order; empty if the slot is empty."""
        name = (-batch.batches, batch.key.tobytes())
        if name != self._pass:
            order = shuffle_slots(len(self), batch.batches, batch.key, self._secret)
            self._pass, self._assignment = name, order
        position = self._assignment[batch.index : batch.index + 1]
        return np.asarray(position[position < len(self)], dtype=np.int64)

    def _check_columns(self, columns_of_query: int | None) -> None:
        if columns_of_query is not None and columns_of_query != self.rows.shape[1]:
            raise RequestError(
                Code.BAD_DATA,
                f"the query has {columns_of_query} columns; the records have {self.rows.shape[1]}",
            )


def _answer_part(view: RecordView, query: OnRows | ColumnQuery | GradientQuery, chunk: int) -> IntArray:
    match query:
        case ColumnHistograms():
            return sums.column_histograms(view, query, chunk)
        case ColumnMoments():
            return sums.column_moments(view, query, chunk)
        case RowBins():
            return sums.row_norms(view, query, chunk)
        case ClippedSum():
            return sums.clipped_sum(view, query, chunk)
        case SquaredNormSum():
            return sums.squared_norm_sum(view, query, chunk)
        case GramAnswer():
            return sums.gram(view, query, chunk)
        case CrossNorms():
            return sums.cross_norms(view, query, chunk)
        case CrossCovariance():
            return sums.cross_covariance(view, query, chunk)
        case GradientNorms():
            return sums.gradient_norms(view, query, chunk)
        case Gradient() | ShuffledRecord():
            return sums.gradient(view, query, chunk)
        case CoordinateHistograms():
            return batches.coordinates(view, query, chunk)
        case CoordinateClippedSum():
            return batches.coordinate_clipped_sum(view, query, chunk)
        case EigenvalueVotes():
            return batches.votes(view, query, chunk)
        case _:
            assert_never(query)
