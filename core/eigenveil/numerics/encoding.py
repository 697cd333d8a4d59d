"""Integer vectors: the only thing that leaves a site, and the only thing that is ever noised."""

from __future__ import annotations

import hashlib
import json
import math
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
DEEPEST = 64  # containers within each other in JSON that is read
AT_ONCE = 2**16  # numbers of a long vector, so that what is computed on them stays in a core's cache


def frozen(values: ArrayLike) -> IntArray:
    """A read-only, C-contiguous int64 copy of `values`, or `values` itself where it is that and can never
    change: large answers are held once.

    Raises:
        TypeError: `values` are not integers.
        OverflowError: a value needs more than 64 bits.
    """
    array = np.asarray(values)
    if array.dtype == np.int64 and array.flags.c_contiguous and _never_changes(array):
        return array
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"integers are required, got {array.dtype}")
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise OverflowError(f"{array.max()} does not fit a signed 64-bit integer")
    array = array.astype(np.int64, order="C")
    array.setflags(write=False)
    return array


def _never_changes(array: IntArray) -> bool:
    """Whether nobody holds its memory under a name by which it can be written to."""
    held: object = array
    while isinstance(held, np.ndarray):
        if held.flags.writeable:
            return False
        if held.base is None:
            return True
        held = held.base
    return isinstance(held, bytes)


def added(total: IntArray, drawn: IntArray) -> IntArray:
    """`total` and noise, which may never wrap around. Shape: equal.

    Written over `drawn` unless that is read-only: a long sum and its noise are all that is in memory.

    Whether it would is a function of the noised values alone, so that refusing tells no more than they do.

    Raises:
        InternalError: there are not as many integers of noise as of the sum, so that some of either would
            have none of the other; or a sum needs more than 64 bits, and none is planned that loud
            (protocol.noise_ratio).
    """
    if drawn.shape != total.shape or drawn.dtype.kind != "i":
        raise InternalError(Code.BUG, "the noise has another shape or type than the sum that it is added to")
    out = drawn if drawn.flags.writeable else drawn.copy()
    for start in range(0, len(total), AT_ONCE):
        here = slice(start, start + AT_ONCE)
        known, noised = total[here], out[here]
        noise = noised.copy()
        noised += known
        if (((known ^ noised) & (noise ^ noised)) < 0).any():  # a sign that neither has
            raise InternalError(Code.BUG, "a noised value does not fit 64 bits")
    out.setflags(write=False)
    return out


def to_bytes(values: IntArray) -> bytes:
    """Little-endian 64-bit two's complement, row by row."""
    return octets(values).tobytes()


def octets(values: IntArray) -> memoryview:
    """The same without a copy."""
    return np.ascontiguousarray(values, dtype="<i8").reshape(-1).view(np.uint8).data


def from_bytes(data: bytes, shape: tuple[int, ...]) -> IntArray:
    """The inverse of `to_bytes`.

    Raises:
        PeerError: the length does not match `shape`.
    """
    wanted = 8 * math.prod(shape)
    if len(data) != wanted:
        raise PeerError(
            Code.BAD_CONTRIBUTION,
            f"expected {wanted} bytes for {shape} 64-bit integers, got {len(data)}",
        )
    return frozen(np.frombuffer(data, dtype="<i8").reshape(shape))  # of `bytes`: no copy


_COMPACT = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def canonical(value: Any) -> bytes:
    """Canonical JSON (RFC 8785) of plain values. Most headers have no float and no letter beyond ASCII; the
    standard library's encoder, which is compiled, then writes the same bytes."""
    return _COMPACT.encode(value).encode() if _simple(value) else rfc8785.dumps(value)


def parse_json(text: bytes | str) -> Any:
    """Return the value of a JSON text that somebody else wrote.

    Raises:
        ValueError: it is not JSON, or nests deeper than 64 containers: Python stops reading at a depth that
            depends on who calls.
    """
    try:
        value = json.loads(text)
    except RecursionError as problem:
        raise ValueError("it nests too deep") from problem
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for one in level for inner in _inner(one)]
        if not level:
            return value
    raise ValueError("it nests too deep")


def _inner(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [one for one in inner if isinstance(one, dict | list)]


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
    return digest_of(domain, canonical(header), *map(octets, arrays))


def digest_of(domain: str, *parts: bytes | memoryview) -> str:
    """The same of bytes that are canonical already."""
    state = hashlib.sha256(f"eigenveil/{domain}/v1\n".encode())
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.hexdigest()
