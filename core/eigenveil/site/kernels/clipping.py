"""Clipping of single records to integer multiples whose norm is checked exactly, in integers. Floating point
proposes a record's scale; int64 arithmetic accepts or rejects it. A record whose integers exceed the radius
contributes nothing. Rows are processed independently, so a record's contribution is a function of that record
and of public values only [P1]."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.queries.limits import OFFSET_STEPS, WEIGHT

# Below this, a float product cannot overflow int64 whatever its rounding error.
SAFE = 2.0**60
SLACK = 2.0**-30  # relative margin of a float bound that stands for the integer check

TINY = 1e-300

Array = TypeVar("Array", FloatArray, IntArray)
BoolArray = NDArray[np.bool_]


def weights(norm2: IntArray, radius: int) -> IntArray:
    """Return t = floor(WEIGHT min(1, R / ||z||)) with t ||z|| <= WEIGHT R in integers.
    Shape: norm2 (m,) -> (m,)."""
    norm = np.sqrt(norm2.astype(np.float64))
    proposed = np.where(norm <= radius, 1.0, radius / np.maximum(norm, 1.0))
    t: IntArray = np.floor(WEIGHT * proposed).astype(np.int64)
    limit = (WEIGHT * radius) ** 2
    t[t * t * norm2 > limit] -= 1  # the float quotient was rounded up to a whole number
    t[t * t * norm2 > limit] = 0
    return t


def clip_rows(z: FloatArray, norm2: IntArray, radius: int) -> FloatArray:
    """Clip integer rows to norm at most R: rows above it are scaled and truncated towards zero.
    Shape: z (m, d) integer-valued, norm2 (m,) -> z itself, its clipped rows overwritten."""
    above = np.flatnonzero(norm2 > radius * radius)
    if above.size:
        cut = z.take(above, axis=0)
        cut *= (radius / np.sqrt(norm2[above].astype(np.float64)))[:, None]
        np.trunc(cut, out=cut)
        cut[np.vecdot(cut, cut) > radius * radius] = 0.0
        z[above] = cut
    return z


def gradient_norms(
    a: FloatArray, z_offset: FloatArray | None, norm: FloatArray, offset2: float
) -> FloatArray:
    """Return ||z a^T - OFFSET_STEPS offset||_F of each record, in floats, one record at a time. z is a
    centred record. In a cross covariance z is a record's residual, a its leading part, and there is no
    offset.
    Shape: a (m, k) = z W / 2**shift, z_offset (m, k) = z offset (None where offset = 0), norm (m,) = ||z||;
    offset2 = ||offset||_F^2."""
    if z_offset is None:
        return _row_norms(a) * norm
    square = row_dot(a, a)
    square *= norm
    square *= norm
    cross = row_dot(a, z_offset)
    cross *= 2.0 * OFFSET_STEPS
    square -= cross
    square += (float(OFFSET_STEPS) * OFFSET_STEPS) * offset2
    np.maximum(square, 0.0, out=square)
    return np.sqrt(square, out=square)


def gradient_coefficients(
    a: FloatArray,
    z_offset: FloatArray | None,
    norm: FloatArray,
    norm2: FloatArray,
    offset2: float,
    radius: int,
) -> tuple[FloatArray, FloatArray | None]:
    """Return integers (b, u) with ||z b^T - u offset||_F <= R, close to min(1, R / norm) (a, OFFSET_STEPS). z
    and a are as in `gradient_norms`. Truncating b and u towards zero moves the contribution by at most
    sqrt(k) ||z|| + ||offset||. The proposal leaves that margin, and the integer check decides. Most records
    are certainly within the radius: (|a| + sqrt(k)) ||z|| + (OFFSET_STEPS + 1) ||offset|| is at most (1 -
    SLACK) R. For these the proposal is b = trunc(a) and u = OFFSET_STEPS; it passes the check. Every float in
    this comparison, in the proposal and in the norms has an error below 2 k + 32 < 2^16 parts in 2^53 of that
    sum, which SLACK covers 2^7 times. Only the other records are proposed and checked.
    Shape: as `gradient_norms`, norm2 (m,) = ||z||^2, in whole floats -> integer-valued b (m, k) and u (m,),
    the latter None where offset = 0."""
    bound = _row_norms(a)
    bound += math.sqrt(a.shape[1])
    bound *= norm
    doubtful = np.flatnonzero(bound > certain_bound(radius, offset2))
    b = np.trunc(a)
    u = None if z_offset is None else np.full(len(a), float(OFFSET_STEPS))
    if doubtful.size:
        offset_products = None if z_offset is None else z_offset[doubtful]
        found = _clip_doubtful(a[doubtful], offset_products, norm[doubtful], norm2[doubtful], offset2, radius)
        b[doubtful] = found[0]
        if u is not None and found[1] is not None:
            u[doubtful] = found[1]
    return b, u


def certain_bound(radius: int, offset2: float) -> float:
    """Return the bound below which a record is certainly within the radius."""
    return radius * (1 - SLACK) - (OFFSET_STEPS + 1) * math.sqrt(offset2)


def _clip_doubtful(
    a: FloatArray,
    z_offset: FloatArray | None,
    norm: FloatArray,
    norm2: FloatArray,
    offset2: float,
    radius: int,
) -> tuple[FloatArray, FloatArray | None]:
    """Return `gradient_coefficients` of the records that may exceed the radius."""
    margin = radius - math.sqrt(a.shape[1]) * norm
    if z_offset is not None:
        margin -= math.sqrt(offset2)
    np.maximum(margin, 0.0, out=margin)
    norms = gradient_norms(a, z_offset, norm, offset2)
    # margin / max(norm, margin) is exactly 1 for a record that needs no clipping.
    np.maximum(norms, margin, out=norms)
    np.maximum(norms, TINY, out=norms)
    scale = np.divide(margin, norms, out=norms)
    b = a * scale[:, None]
    np.trunc(b, out=b)
    u = None if z_offset is None else np.floor(np.multiply(scale, OFFSET_STEPS, out=scale), out=scale)
    within = _within_radius(b, u, z_offset, norm2, offset2, radius)
    if not within.all():
        b *= within[:, None]
        u = None if u is None else u * within
    return b, u


def _within_radius(
    b: FloatArray,
    u: FloatArray | None,
    z_offset: FloatArray | None,
    norm2: FloatArray,
    offset2: float,
    radius: int,
) -> BoolArray:
    """Return True for each record with ||z b^T - u offset||_F^2 <= R^2, in int64. Shape: (m,)."""
    safe = row_dot(b, b) * norm2 < SAFE
    if not safe.all():  # the square overflows int64, so the norm is far above R
        b = b * safe[:, None]
    b64 = b.astype(np.int64)
    square = row_dot(b64, b64)
    square *= norm2.astype(np.int64)
    if u is not None and z_offset is not None:
        u64 = u.astype(np.int64)
        cross = row_dot(b64, z_offset.astype(np.int64))
        cross *= -2
        cross += u64 * int(offset2)
        cross *= u64
        square += cross
    return safe & (square <= radius * radius)


def _row_norms(a: FloatArray) -> FloatArray:
    """Return ||a|| of each row. Shape: (m, k) -> (m,)."""
    return np.asarray(np.abs(a[:, 0]) if a.shape[1] == 1 else np.sqrt(row_dot(a, a)))


def row_dot(left: Array, right: Array) -> Array:
    """Return left . right of each row. Columns are added in order, so a row's bits depend on it alone."""
    out = left[:, 0] * right[:, 0]
    for column in range(1, left.shape[1]):
        out += left[:, column] * right[:, column]
    return out
