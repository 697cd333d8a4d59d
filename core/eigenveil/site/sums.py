"""Exact answers of a site over its records: norms, sums, Gram matrices, gradients and cross covariances.
Queries about every column take one record at a time, in integers [P29]. Gradient and cross-covariance queries
count by norm and add clipped terms over chunks of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from eigenveil.numerics.encoding import ExactSum, FloatArray, IntArray, check_exact, frozen
from eigenveil.numerics.linalg import upper_triangle_rows
from eigenveil.queries import (
    ClippedSum,
    CrossCovariance,
    CrossNorms,
    CrossSpec,
    Gradient,
    GradientNorms,
    GradientSpec,
    ShuffledRecord,
    SquaredNormSum,
)
from eigenveil.queries.columns import (
    BIN,
    BINS,
    HALF,
    SQUARE_BITS,
    VALUE_BITS,
    ColumnHistograms,
    ColumnMoments,
)
from eigenveil.queries.contract import GramAnswer
from eigenveil.queries.cross_covariance import INNER_BITS, OUTER_BITS
from eigenveil.queries.gradients import offset_norm2
from eigenveil.queries.limits import DIRECTION_LIMIT, OFFSET_STEPS, WEIGHT, ceil_sqrt
from eigenveil.queries.rows import RowBins
from eigenveil.site.kernels import clipping
from eigenveil.site.kernels.clipping import row_dot, weights
from eigenveil.site.kernels.record_chunks import Chunk
from eigenveil.site.record_view import CHUNK_ENTRIES, RecordView
from eigenveil.study.grid import S

TALL_ROWS, PRODUCT_ENTRIES = 2**10, 2**20  # rows, and most entries, of a chunk that is multiplied by itself
BLOCK = 2**10  # columns of a Gram matrix that are summed together; the lower triangle is not stored


def squared_norms(z: Chunk) -> IntArray:
    """Return ||z||^2 in integers. Shape: (m,)."""
    return z.squared_norms().astype(np.int64)


def row_norms(view: RecordView, query: RowBins, chunk: int) -> IntArray:
    """Return the counts of records by norm; ||z||^2 is compared with edge^2 in integers."""
    return _histogram(query.edges**2, (squared_norms(z) for z in view.chunks(query.centre, chunk)))


def _histogram(edges: FloatArray | IntArray, chunks: Iterable[FloatArray | IntArray]) -> IntArray:
    counts = np.zeros(edges.size + 1, dtype=np.int64)
    for numbers in chunks:
        counts += np.bincount(np.searchsorted(edges, numbers, side="right"), minlength=counts.size)
    return frozen(counts)


def squared_norm_sum(view: RecordView, query: SquaredNormSum, chunk: int) -> IntArray:
    """Return the sum of min(||z||^2, R^2)."""
    most, chunks = query.radius**2, view.chunks(query.centre, chunk)
    return frozen([sum(int(np.minimum(squared_norms(z), most).sum()) for z in chunks)])


def clipped_sum(view: RecordView, query: ClippedSum, chunk: int) -> IntArray:
    """Return the sum of t z, with t from `clipping.weights`."""
    total = ExactSum((query.length,), query.bound)
    for z in view.chunks(query.centre, min(chunk, total.most)):
        t = weights(squared_norms(z), query.radius).astype(np.float64)
        total.add(z.weighted_sum(t[:, None])[0], len(z))
    return frozen(total.total())


def gram(view: RecordView, query: GramAnswer, chunk: int) -> IntArray:
    """Return the sum of z z^T over clipped rows: diagonal, then the strict upper triangle row by row.
    Cost: at most twice the memory of the answer; once while floats hold the sums of few records exactly."""
    d, bound = query.centre.size, query.radius**2
    sums = [ExactSum((min(BLOCK, d - start), d - start), bound) for start in range(0, d, BLOCK)]
    entries = max(CHUNK_ENTRIES, min(TALL_ROWS * d, PRODUCT_ENTRIES))
    for z in view.chunks(query.centre, min(chunk, sums[0].most), entries):
        clipped = z.clipped(query.radius)
        for start, block in zip(range(0, d, BLOCK), sums, strict=True):
            block.add(clipped[:, start : start + BLOCK].T @ clipped[:, start:], len(clipped))
    out, rows = np.empty(query.length, dtype=np.int64), upper_triangle_rows(d)
    for start in range(0, d, BLOCK):
        for i, row in enumerate(sums.pop(0).total()):
            out[start + i], out[next(rows)] = row[i], row[i + 1 :]
    out.setflags(write=False)
    return frozen(out)


def column_histograms(view: RecordView, query: ColumnHistograms, chunk: int) -> IntArray:
    """Return the counts of records by bin, column after column. Shape: rows (n, d) -> (BINS d,).
    Exact: x + BIN / 2 is a float64 integer, which a power of two divides."""
    first = np.arange(query.columns) * BINS + HALF
    counts = np.zeros(query.length, dtype=np.int64)
    for x in view.centred(np.zeros(query.columns, dtype=np.int64), chunk):
        x /= BIN
        x += 0.5
        bins = np.floor(x, out=x).astype(np.int64)
        bins += first
        counts += np.bincount(bins.reshape(-1), minlength=query.length)
    return frozen(counts)


def column_moments(view: RecordView, query: ColumnMoments, chunk: int) -> IntArray:
    """Return the sum of t v, with t from `clipping.weights`. Shape: rows (n, d) -> (2 d,)."""
    total = ExactSum((query.length,), query.bound)
    for x in view.centred(np.zeros(query.columns, dtype=np.int64), min(chunk, total.most)):
        v = np.hstack([np.rint(x * x / 2**SQUARE_BITS), np.rint(x / 2**VALUE_BITS)])
        t = weights(np.vecdot(v, v).astype(np.int64), query.radius)
        total.add(t.astype(np.float64) @ v, len(v))
    return frozen(total.total())


def _gradient_terms(
    view: RecordView, spec: GradientSpec, most: int
) -> Iterator[tuple[Chunk, FloatArray, FloatArray | None, FloatArray]]:
    """Yield chunks and the terms of their gradients: z, a, z_offset, norm2.
    Exact: integer sums below 2**53, those of a in units of 2**-shift.
    Shape: z (m, d) in a chunk, a (m, k) = z W / 2**shift, z_offset (m, k) = z offset (None where offset = 0),
    norm2 (m,) = ||z||^2."""
    given = [spec.directions, spec.offset] if spec.offset.any() else [spec.directions]
    check_exact(2.0 * S * spec.centre.size * float(max(np.abs(terms).max(initial=0) for terms in given)))
    matrix = np.hstack([spec.directions * 2.0**-spec.shift, *given[1:]])  # one product serves both
    for z in view.chunks(spec.centre, most):
        product, norm2 = z.project(matrix)
        yield z, product[:, : spec.k], product[:, spec.k :] if len(given) > 1 else None, norm2


def gradient_norms(view: RecordView, query: GradientNorms, chunk: int) -> IntArray:
    """Return the counts of records by 2**shift times the norm of their gradient."""
    offset2, unit = float(offset_norm2(query.spec.offset)), 2.0**query.spec.shift
    terms = _gradient_terms(view, query.spec, chunk)
    norms = (clipping.gradient_norms(a, off, np.sqrt(norm2), offset2) * unit for _, a, off, norm2 in terms)
    return _histogram(query.edges.astype(np.float64), norms)


def gradient(view: RecordView, query: Gradient | ShuffledRecord, chunk: int) -> IntArray:
    """Return the sum of z b^T - u offset, a d-by-k matrix row by row; see `clipping.gradient_coefficients`.
    Exactness: ||z b^T||_F <= R + OFFSET_STEPS ||offset||_F for every record that counts."""
    spec, offsets, offset2 = query.spec, 0, offset_norm2(query.spec.offset)
    total = ExactSum((spec.k, spec.centre.size), query.radius + OFFSET_STEPS * ceil_sqrt(offset2))
    for z, a, z_offset, norm2 in _gradient_terms(view, spec, min(chunk, total.most)):
        b, u = z.coefficients(a, z_offset, norm2, float(offset2), query.radius)
        total.add(z.weighted_sum(b), len(b))
        offsets += 0 if u is None else int(u.sum())
    return frozen((total.total().T - offsets * spec.offset).reshape(-1))


SPLIT_ENTRIES = 2**17  # entries of a chunk: with what is removed from it, it fits a core's cache
LEAST_ROWS = 64  # least rows of a chunk, so that products with many columns are matrix products


def _split_chunks(
    view: RecordView, spec: CrossSpec, most: int
) -> Iterator[tuple[Chunk, FloatArray, FloatArray, FloatArray]]:
    """Yield chunks, their parts along the leading directions, their residuals, and ||residual||^2. Matrices
    are scaled by powers of two, which is exact, and PRIVACY.md [P28] bounds every sum of absolute products
    below 2**53 units.
    Shape: a (m, k), b (m, d) integer-valued, norm2 (m,)."""
    fine = 2.0**spec.fraction_bits
    reconstruction = np.ascontiguousarray(spec.directions.T) * (2.0**-OUTER_BITS * fine)
    removed_shares = np.concatenate([np.full(spec.k, WEIGHT), WEIGHT - spec.retained]) * 2.0**-INNER_BITS
    removed = np.empty((0, 0))
    for chunk, z, y, a in _scored_chunks(view, spec, most):
        y *= removed_shares
        np.rint(y, out=y)
        removed = removed if removed.size else np.empty(z.shape)
        z *= fine
        z -= np.matmul(y, reconstruction, out=removed[: len(z)])
        np.rint(z, out=z)
        yield chunk, a, z, np.vecdot(z, z)


def _scored_chunks(
    view: RecordView, spec: CrossSpec, most: int
) -> Iterator[tuple[Chunk, FloatArray, FloatArray, FloatArray]]:
    """Yield chunks, their records z, y = z U, and their parts along the leading directions; exact.
    Shape: z (m, d), y (m, p), a (m, k)."""
    basis = spec.directions.astype(np.float64)
    score_scales = spec.scales.astype(np.float64) * 2.0**-spec.shift
    for chunk in view.chunks(spec.centre, most, max(LEAST_ROWS * spec.centre.size, SPLIT_ENTRIES)):
        z = chunk.wide()
        y = z @ basis
        yield chunk, z, y, y[:, : spec.k] * score_scales


def cross_norms(view: RecordView, query: CrossNorms, chunk: int) -> IntArray:
    """Return the counts of records by ||a|| ||b||, with b as it is before rounding if it has fraction bits:
    ||z||^2 - sum_j (1 - retained_j^2) y_j^2 for orthonormal directions, in floats, one record at a time."""
    spec = query.spec
    if spec.fraction_bits:
        kept = np.append(np.zeros(spec.k), spec.retained / WEIGHT)
        shares, fine = (1 - kept**2) / float(DIRECTION_LIMIT) ** 2, 2.0**spec.fraction_bits
        parts = (
            (a, np.sqrt(np.maximum(np.vecdot(z, z) - row_dot(y * shares, y), 0.0)) * fine)
            for _, z, y, a in _scored_chunks(view, spec, chunk)
        )
    else:
        parts = ((a, np.sqrt(norm2)) for _, a, _, norm2 in _split_chunks(view, spec, chunk))
    norms = (clipping.gradient_norms(a, None, rest, 0.0) for a, rest in parts)
    return _histogram(query.edges.astype(np.float64), norms)


def cross_covariance(view: RecordView, query: CrossCovariance, chunk: int) -> IntArray:
    """Return the sum of b a'^T, d by k, row by row; a' is `gradient_coefficients` of b instead of z.
    Exactness: ||b|| ||a'|| <= R bounds every record's products."""
    total = ExactSum((query.spec.centre.size, query.spec.k), query.radius)
    for rows, a, b, norm2 in _split_chunks(view, query.spec, min(chunk, total.most)):
        clipped, _ = rows.coefficients(a, None, norm2, 0.0, query.radius)
        total.add(b.T @ clipped, len(clipped))
    return frozen(total.total().reshape(-1))
