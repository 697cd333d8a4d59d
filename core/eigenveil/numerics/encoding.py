"""Integer vectors: the only thing that leaves a site, and the only thing that is ever noised."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import rfc8785
from numpy.typing import ArrayLike, NDArray

from eigenveil.errors import Code, InternalError, PeerError


def check_exact(bound: float) -> None:
    if bound >= EXACT:
        raise InternalError(Code.BUG, f"a product could reach {bound:.3g}, beyond exact float64 integers")


IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
Words = NDArray[np.uint64]

# Exact float64 products: integers of magnitude up to 2**53 are represented without rounding.
EXACT = 2**53


def frozen(values: ArrayLike) -> IntArray:
    """A read-only, C-contiguous int64 copy of `values`.

    Raises:
        TypeError: `values` are not integers.
        OverflowError: a value needs more than 64 bits.
    """
    array = np.array(values, order="C")
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"integers are required, got {array.dtype}")
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise OverflowError(f"{array.max()} does not fit a signed 64-bit integer")
    array = array.astype(np.int64)
    array.setflags(write=False)
    return array


def added(total: IntArray, drawn: IntArray) -> IntArray:
    """`total` and noise, which may never wrap around. Shape: equal.

    Whether it would is a function of the noised values alone, so that refusing tells no more than they do.

    Raises:
        InternalError: a sum needs more than 64 bits; none is planned that loud (protocol.noise_ratio).
    """
    out: IntArray = total + drawn
    if (((total ^ out) & (drawn ^ out)) < 0).any():  # a sign that neither has
        raise InternalError(Code.BUG, "a noised value does not fit 64 bits")
    return out


def to_bytes(values: IntArray) -> bytes:
    """Little-endian 64-bit two's complement, row by row."""
    return np.ascontiguousarray(values, dtype="<i8").tobytes()


def from_bytes(data: bytes, shape: tuple[int, ...]) -> IntArray:
    """The inverse of `to_bytes`.

    Raises:
        PeerError: the length does not match `shape`.
    """
    wanted = 8 * int(np.prod(shape, dtype=np.int64))
    if len(data) != wanted:
        raise PeerError(
            Code.BAD_CONTRIBUTION,
            f"expected {wanted} bytes for {shape} 64-bit integers, got {len(data)}",
        )
    return frozen(np.frombuffer(data, dtype="<i8").reshape(shape))


_COMPACT = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def canonical(value: Any) -> bytes:
    """Canonical JSON (RFC 8785) of plain values. Most headers have no float and no letter beyond ASCII; the
    standard library's encoder, which is compiled, then writes the same bytes."""
    return _COMPACT.encode(value).encode() if _simple(value) else rfc8785.dumps(value)


def _simple(value: Any) -> bool:
    kind = type(value)
    if kind is str:
        return bool(value.isascii())
    if kind is int:
        return bool(-EXACT < value < EXACT)
    if kind is dict:
        return all(type(key) is str and key.isascii() and _simple(one) for key, one in value.items())
    return value is None or kind is bool or (kind in (list, tuple) and all(map(_simple, value)))


def digest(domain: str, header: Any, arrays: Sequence[IntArray] = ()) -> str:
    """SHA-256 (hex) of canonical JSON and integer arrays, separated by domain and by length."""
    return digest_of(domain, canonical(header), *map(to_bytes, arrays))


def digest_of(domain: str, *parts: bytes) -> str:
    """The same of bytes that are canonical already."""
    state = hashlib.sha256(f"eigenveil/{domain}/v1\n".encode())
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.hexdigest()
