"""Clipping of single records to integer multiples whose norm is checked exactly, in integers.

Floats propose how much a record is shortened; int64 arithmetic then decides whether the proposal
stands. A record whose integers exceed the radius contributes nothing. Each function maps rows
independently of each other, so what one record contributes is a function of that record and of
public values only [P1].
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.queries.limits import OFFSET_STEPS, WEIGHT

# Float products below this hold no int64 overflow whatever their last bits are.
SAFE = 2.0**60
SLACK = 2.0**-30  # of a float bound that says what integers would

TINY = 1e-300

Array = TypeVar("Array", FloatArray, IntArray)
BoolArray = NDArray[np.bool_]


def weights(norm2: IntArray, radius: int) -> IntArray:
    """t = floor(WEIGHT min(1, R / ||z||)) with t ||z|| <= WEIGHT R in integers.

    Shape: norm2 (m,) -> (m,).
    """
    norm = np.sqrt(norm2.astype(np.float64))
    proposed = np.where(norm <= radius, 1.0, radius / np.maximum(norm, 1.0))
    t: IntArray = np.floor(WEIGHT * proposed).astype(np.int64)
    limit = (WEIGHT * radius) ** 2
    t[t * t * norm2 > limit] -= 1  # the float quotient was rounded up to a whole number
    t[t * t * norm2 > limit] = 0
    return t


def shorten(z: FloatArray, norm2: IntArray, radius: int) -> FloatArray:
    """Integer rows of norm at most R: long rows scaled, entries truncated towards zero.

    Shape: z (m, d) integer-valued, norm2 (m,) -> z itself, its long rows overwritten.
    """
    long = np.flatnonzero(norm2 > radius * radius)
    if long.size:
        cut = z.take(long, axis=0)
        cut *= (radius / np.sqrt(norm2[long].astype(np.float64)))[:, None]
        np.trunc(cut, out=cut)
        cut[np.vecdot(cut, cut) > radius * radius] = 0.0
        z[long] = cut
    return z


def gradient_norms(
    a: FloatArray, z_offset: FloatArray | None, norm: FloatArray, offset2: float
) -> FloatArray:
    """||z a^T - OFFSET_STEPS offset||_F for each record, in floats, one record at a time.

    z is a record about its centre, or the rest of one beside leading directions: then a is its leading part,
    and there is no offset.

    Shape: a (m, k) = z W / 2**shift, z_offset (m, k) = z offset (None where offset = 0), norm (m,) = ||z||;
    offset2 = ||offset||_F^2.
    """
    if z_offset is None:
        return _lengths(a) * norm
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
    """Integers (b, u) with ||z b^T - u offset||_F <= R, close to min(1, R / norm) times (a, OFFSET_STEPS).

    z and a are what they are in `gradient_norms`.

    Truncating b and u towards zero moves the contribution by at most sqrt(k) ||z|| + ||offset||; the
    proposal leaves that much room, and the integer check decides.

    Most records are short beyond doubt: where (|a| + sqrt(k)) ||z|| + (OFFSET_STEPS + 1) ||offset|| is
    at most (1 - SLACK) R, b = trunc(a) and u = OFFSET_STEPS are what the proposal would be, and they fit.
    Every float in this comparison, in the proposal and in the lengths is off by fewer than 2 k + 32 < 2^16
    parts in 2^53 of that sum, which SLACK covers 2^7 times. Only the others are proposed and checked.

    Shape: as `gradient_norms`, norm2 (m,) = ||z||^2, in whole floats -> integer-valued b (m, k) and
    u (m,), the latter None where offset = 0.
    """
    reach = _lengths(a)
    reach += math.sqrt(a.shape[1])
    reach *= norm
    doubted = np.flatnonzero(reach > certain(radius, offset2))
    b = np.trunc(a)
    u = None if z_offset is None else np.full(len(a), float(OFFSET_STEPS))
    if doubted.size:
        away = None if z_offset is None else z_offset[doubted]
        found = _shortened(a[doubted], away, norm[doubted], norm2[doubted], offset2, radius)
        b[doubted] = found[0]
        if u is not None and found[1] is not None:
            u[doubted] = found[1]
    return b, u


def certain(radius: int, offset2: float) -> float:
    """What a record may reach that is short beyond doubt."""
    return radius * (1 - SLACK) - (OFFSET_STEPS + 1) * math.sqrt(offset2)


def _shortened(
    a: FloatArray,
    z_offset: FloatArray | None,
    norm: FloatArray,
    norm2: FloatArray,
    offset2: float,
    radius: int,
) -> tuple[FloatArray, FloatArray | None]:
    """What `gradient_coefficients` says of records that may be too long."""
    room = radius - math.sqrt(a.shape[1]) * norm
    if z_offset is not None:
        room -= math.sqrt(offset2)
    np.maximum(room, 0.0, out=room)
    lengths = gradient_norms(a, z_offset, norm, offset2)
    # room / max(length, room) is exactly 1 for a record that needs no clipping.
    np.maximum(lengths, room, out=lengths)
    np.maximum(lengths, TINY, out=lengths)
    scale = np.divide(room, lengths, out=lengths)
    b = a * scale[:, None]
    np.trunc(b, out=b)
    u = None if z_offset is None else np.floor(np.multiply(scale, OFFSET_STEPS, out=scale), out=scale)
    keep = _fits(b, u, z_offset, norm2, offset2, radius)
    if not keep.all():
        b *= keep[:, None]
        u = None if u is None else u * keep
    return b, u


def _fits(
    b: FloatArray,
    u: FloatArray | None,
    z_offset: FloatArray | None,
    norm2: FloatArray,
    offset2: float,
    radius: int,
) -> BoolArray:
    """Where ||z b^T - u offset||_F^2 <= R^2, in int64. Shape: (m,)."""
    safe = row_dot(b, b) * norm2 < SAFE
    if not safe.all():  # cannot be squared in int64, hence far beyond R: never kept
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


def _lengths(a: FloatArray) -> FloatArray:
    """||a|| of each row. Shape: (m, k) -> (m,)."""
    return np.asarray(np.abs(a[:, 0]) if a.shape[1] == 1 else np.sqrt(row_dot(a, a)))


def row_dot(left: Array, right: Array) -> Array:
    """Row by row, left . right, adding columns in order so that a row's bits depend on that row alone."""
    out = left[:, 0] * right[:, 0]
    for column in range(1, left.shape[1]):
        out += left[:, column] * right[:, column]
    return out
