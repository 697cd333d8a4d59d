"""The private side at one site: records on the grid, and the exact answer to a question.

All products are float64 BLAS products of integer-valued matrices whose sums of absolute products
stay below 2**53, so they are exact and independent of order, threads and chunks [P1].
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from eigenveil import batches, clipping, subspaces
from eigenveil.asks import (
    Ask,
    Boxed,
    ClippedSum,
    Coordinates,
    Count,
    Eigenvectors,
    Energy,
    Field,
    Gradient,
    GradientNorms,
    Gram,
    OnField,
    OnSubspaces,
    Part,
    RadiusSearch,
    RowNorms,
    S,
    Slot,
    Spectrum,
    Subspace,
    Votes,
    part_of,
)
from eigenveil.asks.limits import GRADIENT_LIMIT
from eigenveil.clipping import gradient_coefficients, shorten, weights
from eigenveil.deal import deal, shuffled
from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.grid import GridRows
from eigenveil.ints import EXACT, FloatArray, IntArray, frozen

Piece = TypeVar("Piece")

CHUNK = 4096  # rows a product: they stay in the cache, and 4096 * 2**30 < 2**53 keeps it exact
CACHED = 2**19  # entries of a piece that is centred on the fly


class Apply(Protocol):
    """`map`, or what an executor has instead."""

    def __call__(self, work: Callable[[Piece], IntArray], pieces: Iterable[Piece], /) -> Iterable[IntArray]:
        """The answers to the pieces, in any order."""


Grams = Gram | Spectrum | Eigenvectors | Subspace
Once = RowNorms | RadiusSearch | ClippedSum | Energy | Grams  # asked about rows, once about a centre


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CentredRows:
    """Rows minus a public centre.

    Shape: z (n, d) integer-valued float64, norm2 (n,) = ||z||^2, norm (n,) = ||z||.
    """

    z: FloatArray
    norm2: IntArray
    norm: FloatArray

    def only(self, positions: IntArray) -> CentredRows:
        """The records at `positions`, as a copy."""
        return CentredRows(z=self.z[positions], norm2=self.norm2[positions], norm=self.norm[positions])

    def pieces(self, size: int) -> Iterator[CentredRows]:
        """Consecutive pieces of at most `size` rows, as views."""
        for start in range(0, len(self.norm2), size):
            part = slice(start, start + size)
            yield CentredRows(z=self.z[part], norm2=self.norm2[part], norm=self.norm[part])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GridPart:
    """Rows asked about once: centred piece by piece, in the cache. Shape: rows (n, d), centre (d,)."""

    rows: GridRows
    centre: IntArray

    def pieces(self, size: int) -> Iterator[CentredRows]:
        """Consecutive pieces of at most `size` rows."""
        fits = max(1, CACHED // self.centre.size)
        return (centred(rows, self.centre) for rows in spans(self.rows, min(size, fits)))


class Site:
    """One site's records, worked on in `parts` that may run side by side. Keeps the rows about the
    last centre it was asked for. `secret` (32 bytes) keys the order of its slots; without one, a new one.

    Shape: rows (n, d) int16 on the study's grid.
    """

    def __init__(
        self, rows: GridRows, *, chunk: int = CHUNK, parts: int = 1, secret: bytes | None = None
    ) -> None:
        self.rows = rows
        self._secret = os.urandom(32) if secret is None else secret
        self._chunk = chunk
        self._part = max(1, -(-len(rows) // parts))
        self._centre = b""
        self._centred: CentredRows | None = None
        self._pass: tuple[int, bytes] | None = None
        self._parts: IntArray = np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def answer(self, ask: Ask, apply: Apply = map) -> IntArray:
        """The exact sum over this site's records. Shape: (ask.length,).

        `apply` may work on the parts side by side (an executor's `map`): integer sums do not mind.

        Neighbours: one record more changes the answer by at most sqrt(ask.l2_squared(add-remove)) in L2.
        Privacy: none by itself; it goes to the barrier [P1].

        Raises:
            RequestError: the question is about another number of columns.
        """
        if isinstance(ask, Count):
            return frozen([len(self.rows)])
        if isinstance(ask, OnField):
            answers = self._kept(ask, apply)
        else:
            self._check(ask.centre)
            if isinstance(ask, OnSubspaces):
                return subspaces.answer(self.rows, ask)
            parts = (GridPart(rows=rows, centre=ask.centre) for rows in spans(self.rows, self._part))
            answers = apply(lambda part: _answer(part, ask, self._chunk), parts)
        return frozen(sum(answers, np.zeros(ask.length, dtype=np.int64)))

    def _kept(self, ask: OnField, apply: Apply) -> Iterable[IntArray]:
        """Gradients are asked for round after round about one centre: the centred rows are worth keeping."""
        rows, records, part = self.about(ask.field.centre), self.rows, part_of(ask)
        if part is not None:
            mine = self._slot(part) if isinstance(ask, Slot) else self._dealt(part)
            rows, records = rows.only(mine), records[mine]
        if isinstance(ask, Slot):
            return [gradient(rows, Gradient(field=ask.field, radius=ask.radius), self._chunk)]
        if isinstance(ask, Votes):  # the records of a subset may lie anywhere: no pieces
            return [batches.votes(rows, records, ask)]
        return apply(lambda piece: _answer(piece, ask, self._chunk), rows.pieces(self._part))

    def _dealt(self, part: Part) -> IntArray:
        """The positions of the records in a part; the dealing of a pass is kept while it lasts."""
        name = (part.parts, part.key.tobytes())
        if name != self._pass:
            self._pass, self._parts = name, deal(self.rows, part.parts, part.key)
        return np.flatnonzero(self._parts == part.index)

    def _slot(self, part: Part) -> IntArray:
        """The position of the record in a slot; none if the slot is empty."""
        name = (-part.parts, part.key.tobytes())
        if name != self._pass:
            self._pass, self._parts = name, shuffled(len(self), part.parts, part.key, self._secret)
        position = self._parts[part.index : part.index + 1]
        return position[position < len(self)]

    def about(self, centre: IntArray) -> CentredRows:
        """The rows about a public centre; the last one asked for is kept.

        Raises:
            RequestError: another number of columns.
        """
        self._check(centre)
        if self._centred is None or self._centre != centre.tobytes():
            self._centred = None  # free the old copy before making the new one
            self._centred, self._centre = centred(self.rows, centre), centre.tobytes()
        return self._centred

    def _check(self, centre: IntArray) -> None:
        if centre.size != self.rows.shape[1]:
            raise RequestError(
                Code.BAD_DATA, f"asked about {centre.size} columns, the records have {self.rows.shape[1]}"
            )


def centred(rows: GridRows, centre: IntArray) -> CentredRows:
    """Rows minus a centre, exact. Shape: rows (m, d), centre (d,)."""
    # In int16 first (a centred entry is at most 2 S): three times as fast as one subtraction of mixed types.
    z = np.subtract(rows, centre.astype(np.int16)).astype(np.float64)
    norm2 = np.einsum("ij,ij->i", z, z)
    return CentredRows(z=z, norm2=norm2.astype(np.int64), norm=np.sqrt(norm2))


def spans(rows: GridRows, size: int) -> Iterator[GridRows]:
    """Consecutive spans of at most `size` rows, as views."""
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _answer(rows: CentredRows | GridPart, ask: Once | OnField, chunk: int) -> IntArray:
    match ask:
        case RowNorms() | RadiusSearch():
            return row_norms(rows, ask, chunk)
        case ClippedSum():
            return clipped_sum(rows, ask, chunk)
        case Energy():
            return energy(rows, ask, chunk)
        case Gram() | Spectrum() | Eigenvectors() | Subspace():
            return gram(rows, ask, chunk)
        case GradientNorms():
            return gradient_norms(rows, ask, chunk)
        case Gradient():
            return gradient(rows, ask, chunk)
        case Coordinates():
            return batches.coordinates(rows, ask, chunk)
        case Boxed():
            return batches.boxed(rows, ask, chunk)
        case Votes() | Slot():
            raise InternalError(Code.BUG, "this is asked of a whole part, never of a piece")


def _exact(bound: float) -> None:
    if bound >= EXACT:
        raise InternalError(Code.BUG, f"a product could reach {bound:.3g}, beyond exact float64 integers")


def row_norms(rows: CentredRows | GridPart, ask: RowNorms | RadiusSearch, chunk: int) -> IntArray:
    """Counts of records by norm; the comparison is ||z||^2 against edge^2 in integers."""
    squares, counts = ask.edges**2, np.zeros(ask.length, dtype=np.int64)
    for part in rows.pieces(chunk):
        counts += np.bincount(np.searchsorted(squares, part.norm2, side="right"), minlength=ask.length)
    return frozen(counts)


def energy(rows: CentredRows | GridPart, ask: Energy, chunk: int) -> IntArray:
    """Sum of min(||z||^2, R^2)."""
    return frozen([sum(int(np.minimum(part.norm2, ask.radius**2).sum()) for part in rows.pieces(chunk))])


def clipped_sum(rows: CentredRows | GridPart, ask: ClippedSum, chunk: int) -> IntArray:
    """Sum of t z (see `clipping.weights`)."""
    _exact(chunk * float(ask.bound()))
    total = np.zeros(ask.length, dtype=np.int64)
    for part in rows.pieces(chunk):
        total += (weights(part.norm2, ask.radius).astype(np.float64) @ part.z).astype(np.int64)
    return frozen(total)


def gram(rows: CentredRows | GridPart, ask: Grams, chunk: int) -> IntArray:
    """Sum of z z^T over shortened rows: diagonal, then the strict upper triangle row by row."""
    d = ask.centre.size
    size = max(1, min(chunk, (EXACT - 1) // ask.radius**2))
    _exact(size * float(ask.radius) ** 2)
    total = np.zeros((d, d), dtype=np.int64)
    for part in rows.pieces(size):
        short = shorten(part.z, part.norm2, ask.radius)
        total += (short.T @ short).astype(np.int64)
    return frozen(np.concatenate([np.diagonal(total), total[np.triu_indices(d, 1)]]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Side:
    """The public matrices of a field, side by side so that one product serves both.

    Shape: matrix (d, k) = W, or (d, 2 k) = [W, pull] where pull is not 0; pull2 = ||pull||_F^2.
    """

    matrix: FloatArray
    k: int
    pull2: float
    scale: float

    def project(self, z: FloatArray) -> tuple[FloatArray, FloatArray | None]:
        """a = z W / 2**shift (exact: a power of two) and z pull (None where pull = 0)."""
        product = z @ self.matrix
        pulled = product[:, self.k :] if self.pull2 else None
        return product[:, : self.k] * self.scale, pulled


def _side(field: Field) -> _Side:
    parts = [field.directions, field.pull] if field.pull.any() else [field.directions]
    matrix = np.hstack(parts).astype(np.float64)
    _exact(2.0 * S * field.centre.size * float(np.abs(matrix).max(initial=0.0)))
    return _Side(
        matrix=matrix,
        k=field.directions.shape[1],
        pull2=float((field.pull**2).sum()),
        scale=2.0**-field.shift,
    )


def gradient_norms(rows: CentredRows | GridPart, ask: GradientNorms, chunk: int) -> IntArray:
    """Counts of records by 2**shift times the norm of their pulled gradient."""
    side, edges = _side(ask.field), ask.edges.astype(np.float64)
    counts = np.zeros(ask.length, dtype=np.int64)
    for part in rows.pieces(chunk):
        a, pulled = side.project(part.z)
        norm = clipping.gradient_norms(a, pulled, part.norm, side.pull2) / side.scale
        counts += np.bincount(np.searchsorted(edges, norm, side="right"), minlength=ask.length)
    return frozen(counts)


def gradient(rows: CentredRows | GridPart, ask: Gradient, chunk: int) -> IntArray:
    """Sum of z b^T - u pull (see `clipping.gradient_coefficients`), the d-by-k matrix row by row.

    Exactness: ||z b^T||_F <= R + PULL ||pull||_F <= 2 GRADIENT_LIMIT for every kept record, so a chunk's
    sums of absolute products stay below chunk * 2**30.
    """
    _exact(chunk * 2.0 * GRADIENT_LIMIT)
    side = _side(ask.field)
    total = np.zeros(ask.field.directions.shape, dtype=np.int64)
    pulls = 0
    for part in rows.pieces(chunk):
        a, pulled = side.project(part.z)
        b, u = gradient_coefficients(a, pulled, part.norm, part.norm2, side.pull2, ask.radius)
        total += (part.z.T @ b).astype(np.int64)
        pulls += 0 if u is None else int(u.sum())
    return frozen((total - pulls * ask.field.pull).reshape(-1))
