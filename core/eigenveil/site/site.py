"""The private side at one site: records as they are stored, and the exact answer to a query.

They are widened chunk by chunk, and nothing as long as they are is made of them. All products are float64
BLAS products of integer-valued matrices whose sums of absolute products stay below 2**53: they are exact and
independent of order, threads and chunks [P1].
"""

from __future__ import annotations

import os
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.apply import Apply
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.queries import (
    Batch,
    ClippedSum,
    ColumnHistograms,
    ColumnMoments,
    CoordinateClippedSum,
    Coordinates,
    Count,
    CrossCovariance,
    CrossNorms,
    Eigenvectors,
    Frame,
    Gradient,
    GradientNorms,
    Gram,
    Grams,
    OfColumns,
    OnGradients,
    OnSubspaces,
    Query,
    RadiusSearch,
    RowNorms,
    ShuffledRecord,
    Spectrum,
    SquaredNormSum,
    Subspace,
    Votes,
    batch_of,
    columns_of,
)
from eigenveil.site import columns, single_pass, subspaces
from eigenveil.site.cross_covariance import cross_covariance, cross_norms
from eigenveil.site.gradients import gradient, gradient_norms
from eigenveil.site.partition import deal, shuffled
from eigenveil.site.rows import clipped_sum, gram, row_norms, squared_norm_sum
from eigenveil.site.stored import Shown, StoredRows, on_grid

CHUNK = 4096  # rows of a chunk at most, however few their columns
OnRows = RowNorms | RadiusSearch | ClippedSum | SquaredNormSum | Grams | CrossNorms | CrossCovariance


class Site:
    """One site's records, in a part for each of so many `workers`, which may run side by side. `secret` (32
    bytes) keys the secret order; without one, a new one.

    Shape: rows (n, d) stored integers; times `unit` they are on the study's grid.
    Cost: a chunk and an answer or two a worker. While a pass lasts, at most 4 bytes a record for its dealing,
    or 8 a place of a secret order; where all rows are needed at once, these too if they are not in memory.
    """

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
        self._dealt: NDArray[np.integer[Any]] = np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def answer(self, query: Query, apply: Apply = map, *, frame: Frame | None = None) -> IntArray:
        """The exact sum over this site's records, as the frame shows them. Shape: (query.length,).

        `apply` may work on the parts side by side (an executor's `map`): integer sums do not mind.

        Neighbours: one record more changes the answer to an additive query by at most
        sqrt(query.l2_squared(add-remove)) in L2.
        Privacy: none by itself; it goes to the barrier [P1].

        Raises:
            RequestError: the query or the frame is about another number of columns.
        """
        if isinstance(query, Count):
            return frozen([len(self.rows)])
        self._check(columns_of(query))
        self._check(None if frame is None else frame.columns)
        shown = Shown(rows=self.rows, unit=self._unit, frame=frame, start=0, stop=len(self.rows))
        if isinstance(query, OnSubspaces):
            return subspaces.answer(on_grid(shown.all(), self._unit), query)  # which no frame shows otherwise
        batch = batch_of(query)
        if batch is not None:
            order = self._shuffled(batch) if isinstance(query, ShuffledRecord) else self._of(batch)
            shown = shown.only(order)
        if isinstance(query, Votes):  # the records of a subset may lie anywhere: no parts
            return single_pass.votes(shown, query, self._chunk)
        return self._summed(shown, query, apply)

    def _summed(self, shown: Shown, query: OnRows | OfColumns | OnGradients, apply: Apply) -> IntArray:
        total = np.zeros(query.length, dtype=np.int64)
        for answer in apply(lambda part: _of_part(part, query, self._chunk), shown.parts(self._workers)):
            total += answer
            del answer  # a long one goes before the next one comes
        total.setflags(write=False)
        return frozen(total)

    def _of(self, batch: Batch) -> IntArray:
        """The positions of the records in a batch; the dealing of a pass is kept while it lasts.

        They are dealt by the records themselves: whatever frame shows them, each stays in the batch that it
        is in [P9].
        """
        name = (batch.batches, batch.key.tobytes())
        if name != self._pass:
            dealt = deal(self.rows[0 : len(self)], batch.batches, batch.key, self._unit)
            self._pass, self._dealt = name, dealt.astype(np.min_scalar_type(batch.batches - 1))
        return np.flatnonzero(self._dealt == batch.index)

    def _shuffled(self, batch: Batch) -> IntArray:
        """The position of the one record whose turn it is in the secret order; none if the place is empty."""
        name = (-batch.batches, batch.key.tobytes())
        if name != self._pass:
            self._pass, self._dealt = name, shuffled(len(self), batch.batches, batch.key, self._secret)
        position = self._dealt[batch.index : batch.index + 1]
        return np.asarray(position[position < len(self)], dtype=np.int64)

    def _check(self, asked: int | None) -> None:
        if asked is not None and asked != self.rows.shape[1]:
            raise RequestError(
                Code.BAD_DATA, f"asked about {asked} columns, the records have {self.rows.shape[1]}"
            )


def _of_part(shown: Shown, query: OnRows | OfColumns | OnGradients, chunk: int) -> IntArray:
    if isinstance(query, OnGradients):
        return _of_gradients(shown, query, chunk)
    match query:
        case ColumnHistograms():
            return columns.column_histograms(shown, query, chunk)
        case ColumnMoments():
            return columns.column_moments(shown, query, chunk)
        case RowNorms() | RadiusSearch():
            return row_norms(shown, query, chunk)
        case ClippedSum():
            return clipped_sum(shown, query, chunk)
        case SquaredNormSum():
            return squared_norm_sum(shown, query, chunk)
        case Gram() | Spectrum() | Eigenvectors() | Subspace():
            return gram(shown, query, chunk)
        case CrossNorms():
            return cross_norms(shown, query, chunk)
        case CrossCovariance():
            return cross_covariance(shown, query, chunk)
        case _:
            assert_never(query)


def _of_gradients(shown: Shown, query: OnGradients, chunk: int) -> IntArray:
    match query:
        case GradientNorms():
            return gradient_norms(shown, query, chunk)
        case Gradient() | ShuffledRecord():
            return gradient(shown, query, chunk)
        case Coordinates():
            return single_pass.coordinates(shown, query, chunk)
        case CoordinateClippedSum():
            return single_pass.coordinate_clipped_sum(shown, query, chunk)
        case Votes():
            return single_pass.votes(shown, query, chunk)
        case _:
            assert_never(query)
