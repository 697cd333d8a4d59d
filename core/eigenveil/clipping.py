"""Clipping of single records to integer multiples whose norm is checked exactly, in integers.

Floats propose how much a record is shortened; int64 arithmetic then decides whether the proposal
stands. A record whose integers exceed the radius contributes nothing. Each function maps rows
independently of each other, so what one record contributes is a function of that record and of
public values only [P1].
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from eigenveil.ints import FloatArray, IntArray
from eigenveil.query import PULL, WEIGHT

# Float products below this hold no int64 overflow whatever their last bits are.
SAFE = 2.0**60

Array = TypeVar("Array", FloatArray, IntArray)


def weights(norm2: IntArray, radius: int) -> IntArray:
    """t = floor(WEIGHT min(1, R / ||z||)) with t ||z|| <= WEIGHT R in integers.

    Shape: norm2 (m,) -> (m,).
    """
    norm = np.sqrt(norm2.astype(np.float64))
    proposed = np.where(norm <= radius, 1.0, radius / np.maximum(norm, 1.0))
    t: IntArray = np.floor(WEIGHT * proposed).astype(np.int64)
    t[t * t * norm2 > (WEIGHT * radius) ** 2] = 0
    return t


def shorten(z: FloatArray, norm2: IntArray, radius: int) -> FloatArray:
    """Integer rows of norm at most R: long rows scaled, entries truncated towards zero.

    Shape: z (m, d) integer-valued, norm2 (m,) -> (m, d) integer-valued; z itself if no row is long.
    """
    long = norm2 > radius * radius
    if not long.any():
        return z
    factor = radius / np.sqrt(norm2[long].astype(np.float64))
    cut = np.trunc(z[long] * factor[:, None])
    cut[np.einsum("ij,ij->i", cut, cut) > radius * radius] = 0.0
    out = z.copy()
    out[long] = cut
    return out


def gradient_norm2(a: FloatArray, pulled: FloatArray | None, norm2: FloatArray, pull2: float) -> FloatArray:
    """||z a^T - PULL pull||_F^2 for each record, in floats, one record at a time.

    Shape: a (m, k) = z W / 2**shift, pulled (m, k) = z pull (None where pull = 0), norm2 (m,) = ||z||^2;
    pull2 = ||pull||_F^2.
    """
    square = _row_dot(a, a) * norm2
    if pulled is None:
        return square
    square -= (2.0 * PULL) * _row_dot(a, pulled)
    square += (float(PULL) * PULL) * pull2
    return np.maximum(square, 0.0)


def gradient_coefficients(
    a: FloatArray, pulled: FloatArray | None, norm2: FloatArray, pull2: float, radius: int
) -> tuple[FloatArray, IntArray]:
    """Integers (b, u) with ||z b^T - u pull||_F <= R, close to min(1, R / norm) times (a, PULL).

    Truncating b and u towards zero moves the contribution by at most sqrt(k) ||z|| + ||pull||; the
    proposal leaves that much room, and the integer check decides.

    Shape: as `gradient_norm2` -> b (m, k) integer-valued, u (m,).
    """
    norm = np.sqrt(gradient_norm2(a, pulled, norm2, pull2))
    room = radius - np.sqrt(a.shape[1] * norm2)
    if pulled is not None:
        room -= np.sqrt(pull2)
    scale = np.maximum(room, 0.0)
    np.divide(scale, norm, out=scale, where=norm > scale)
    scale[norm <= room] = 1.0
    b = np.trunc(a * scale[:, None])
    u = np.floor(PULL * scale) if pulled is not None else np.zeros_like(scale)
    keep = _within(b, u, pulled, norm2, pull2, radius)
    return b * keep[:, None], (u * keep).astype(np.int64)


def _within(
    b: FloatArray,
    u: FloatArray,
    pulled: FloatArray | None,
    norm2: FloatArray,
    pull2: float,
    radius: int,
) -> FloatArray:
    """1.0 where ||z b^T - u pull||_F^2 <= R^2 holds in int64, else 0.0. Shape: (m,)."""
    safe = _row_dot(b, b) * norm2 < SAFE
    b64 = np.where(safe[:, None], b, 0.0).astype(np.int64)
    square = _row_dot(b64, b64) * norm2.astype(np.int64)
    if pulled is not None:
        u64 = u.astype(np.int64)
        square += u64 * u64 * int(pull2) - 2 * u64 * _row_dot(b64, pulled.astype(np.int64))
    return (safe & (square <= radius * radius)).astype(np.float64)


def _row_dot(left: Array, right: Array) -> Array:
    """Row by row, left . right, adding columns in order so that a row's bits depend on that row alone."""
    out = left[:, 0] * right[:, 0]
    for column in range(1, left.shape[1]):
        out += left[:, column] * right[:, column]
    return out
