"""The private side at one site: records on the grid, and the exact answer to a query.

All products are float64 BLAS products of integer-valued matrices whose sums of absolute products
stay below 2**53, so they are exact and independent of order, threads and chunks [P1].
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import assert_never

import numpy as np

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
from eigenveil.queries.columns import same_frame
from eigenveil.site import columns, single_pass, subspaces
from eigenveil.site.cross_covariance import cross_covariance, cross_norms
from eigenveil.site.gradients import gradient, gradient_norms
from eigenveil.site.partition import deal, shuffled
from eigenveil.site.rows import (
    CentredRows,
    GridPiece,
    centred,
    clipped_sum,
    gram,
    row_norms,
    spans,
    squared_norm_sum,
)
from eigenveil.study.grid import GridRows

CHUNK = 4096  # rows a product: they stay in the cache, and 4096 * 2**30 < 2**53 keeps it exact
OnRows = RowNorms | RadiusSearch | ClippedSum | SquaredNormSum | Grams | CrossNorms | CrossCovariance
PieceByPiece = GradientNorms | Gradient | Coordinates | CoordinateClippedSum  # each record by itself


class Site:
    """One site's records, in a piece for each of so many `workers`, which may run side by side. Keeps the
    rows as the last frame showed them, and about the last centre, that it was asked for. `secret` (32 bytes)
    keys the secret order; without one, a new one.

    Shape: rows (n, d) int16 on the study's grid.
    """

    def __init__(
        self, rows: GridRows, *, chunk: int = CHUNK, workers: int = 1, secret: bytes | None = None
    ) -> None:
        self.rows = rows
        self._secret = os.urandom(32) if secret is None else secret
        self._chunk = chunk
        self._piece = max(1, -(-len(rows) // workers))
        self._frame: Frame | None = None
        self._seen = rows
        self._centre = b""
        self._centred: CentredRows | None = None
        self._pass: tuple[int, bytes] | None = None
        self._dealt: IntArray = np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def answer(self, query: Query, apply: Apply = map, *, frame: Frame | None = None) -> IntArray:
        """The exact sum over this site's records, as the frame shows them. Shape: (query.length,).

        `apply` may work on the pieces side by side (an executor's `map`): integer sums do not mind.

        Neighbours: one record more changes the answer to an additive query by at most
        sqrt(query.l2_squared(add-remove)) in L2.
        Privacy: none by itself; it goes to the barrier [P1].

        Raises:
            RequestError: the query is about another number of columns.
        """
        if isinstance(query, Count):
            return frozen([len(self.rows)])
        self._check(columns_of(query))
        seen = self._through(frame)
        if isinstance(query, OnSubspaces):
            return subspaces.answer(self.rows, query)  # which no frame shows otherwise
        if isinstance(query, OnGradients):
            answers = self._kept(query, apply)
        elif isinstance(query, OfColumns):
            answers = apply(lambda rows: _of_columns(rows, query), spans(seen, self._piece))
        else:
            pieces = (GridPiece(rows=rows, centre=query.centre) for rows in spans(seen, self._piece))
            answers = apply(lambda piece: _of_rows(piece, query, self._chunk), pieces)
        return frozen(sum(answers, np.zeros(query.length, dtype=np.int64)))

    def _through(self, frame: Frame | None) -> GridRows:
        """The rows as a frame shows them; those of the last one are kept."""
        if not same_frame(frame, self._frame):
            self._check(None if frame is None else frame.columns)
            self._centre, self._centred = b"", None  # of the rows as they were seen before
            self._seen = self.rows if frame is None else columns.seen(self.rows, frame)
            self._frame = frame
        return self._seen

    def _kept(self, query: OnGradients, apply: Apply) -> Iterable[IntArray]:
        """Gradients are asked for round after round about one centre: the centred rows are worth keeping.

        Batches and subsets are dealt by the records themselves: whatever frame shows them, each stays in the
        one that it is in [P9].
        """
        rows, records, batch = self.about(query.spec.centre), self.rows, batch_of(query)
        if batch is not None:
            mine = self._shuffled(batch) if isinstance(query, ShuffledRecord) else self._of(batch)
            rows, records = rows.only(mine), records[mine]
        if isinstance(query, ShuffledRecord):
            return [gradient(rows, Gradient(spec=query.spec, radius=query.radius), self._chunk)]
        if isinstance(query, Votes):  # the records of a subset may lie anywhere: no pieces
            return [single_pass.votes(rows, records, query)]
        return apply(lambda piece: _of_gradients(piece, query, self._chunk), rows.pieces(self._piece))

    def _of(self, batch: Batch) -> IntArray:
        """The positions of the records in a batch; the dealing of a pass is kept while it lasts."""
        name = (batch.batches, batch.key.tobytes())
        if name != self._pass:
            self._pass, self._dealt = name, deal(self.rows, batch.batches, batch.key)
        return np.flatnonzero(self._dealt == batch.index)

    def _shuffled(self, batch: Batch) -> IntArray:
        """The position of the one record whose turn it is in the secret order; none if the place is empty."""
        name = (-batch.batches, batch.key.tobytes())
        if name != self._pass:
            self._pass, self._dealt = name, shuffled(len(self), batch.batches, batch.key, self._secret)
        position = self._dealt[batch.index : batch.index + 1]
        return position[position < len(self)]

    def about(self, centre: IntArray) -> CentredRows:
        """The rows, as they are seen now, about a public centre; the last one asked for is kept.

        Raises:
            RequestError: another number of columns.
        """
        self._check(centre.size)
        if self._centred is None or self._centre != centre.tobytes():
            self._centred = None  # free the old copy before making the new one
            self._centred, self._centre = centred(self._seen, centre), centre.tobytes()
        return self._centred

    def _check(self, asked: int | None) -> None:
        if asked is not None and asked != self.rows.shape[1]:
            raise RequestError(
                Code.BAD_DATA, f"asked about {asked} columns, the records have {self.rows.shape[1]}"
            )


def _of_columns(rows: GridRows, query: OfColumns) -> IntArray:
    match query:
        case ColumnHistograms():
            return columns.column_histograms(rows, query)
        case ColumnMoments():
            return columns.column_moments(rows, query)
        case _:
            assert_never(query)


def _of_rows(rows: GridPiece, query: OnRows, chunk: int) -> IntArray:
    match query:
        case RowNorms() | RadiusSearch():
            return row_norms(rows, query, chunk)
        case ClippedSum():
            return clipped_sum(rows, query, chunk)
        case SquaredNormSum():
            return squared_norm_sum(rows, query, chunk)
        case Gram() | Spectrum() | Eigenvectors() | Subspace():
            return gram(rows, query, chunk)
        case CrossNorms():
            return cross_norms(rows, query, chunk)
        case CrossCovariance():
            return cross_covariance(rows, query, chunk)
        case _:
            assert_never(query)


def _of_gradients(rows: CentredRows, query: PieceByPiece, chunk: int) -> IntArray:
    match query:
        case GradientNorms():
            return gradient_norms(rows, query, chunk)
        case Gradient():
            return gradient(rows, query, chunk)
        case Coordinates():
            return single_pass.coordinates(rows, query, chunk)
        case CoordinateClippedSum():
            return single_pass.coordinate_clipped_sum(rows, query, chunk)
        case _:
            assert_never(query)
