"""Encoding of numbers: integer vectors as bytes, canonical JSON, digests, exact sums and named columns.

Sites send only such vectors. Sums of float64 products of integers are exact for any number of records."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
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
WordArray = NDArray[np.uint64]

# Exact float64 products: integers of magnitude up to 2**53 are represented without rounding.
EXACT = 2**53
MAX_NESTING = 64  # nested containers allowed in JSON input
CHUNK = 2**16  # entries a chunk of a long vector, small enough for a core's cache


def frozen(values: ArrayLike) -> IntArray:
    """Return `values` as a read-only, C-contiguous int64 array; immutable arrays of that form are not copied.

    Raises:
        TypeError: `values` are not integers.
        OverflowError: a value needs more than 64 bits."""
    array = np.asarray(values)
    if array.dtype == np.int64 and array.flags.c_contiguous and _is_immutable(array):
        return array
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"integers are required, got {array.dtype}")
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise OverflowError(f"{array.max()} does not fit a signed 64-bit integer")
    array = array.astype(np.int64, order="C")
    array.setflags(write=False)
    return array


def _is_immutable(array: IntArray) -> bool:
    """Return True if no array or buffer gives write access to this memory."""
    buffer: object = array
    while isinstance(buffer, np.ndarray):
        if buffer.flags.writeable:
            return False
        if buffer.base is None:
            return True
        buffer = buffer.base
    return isinstance(buffer, bytes)


def add_noise(total: IntArray, drawn: IntArray) -> IntArray:
    """Return the sum plus its noise; never wraps around. Shape: equal.

    Overwrites `drawn` unless it is read-only: only a long sum and its noise are in memory. Overflow depends
    on the noised values alone, so the error reveals no more than they do.

    Raises:
        InternalError: noise and sum differ in shape or type; or a noised value needs more than 64 bits, which
            `protocol.noise_ratio` excludes for every plan."""
    if drawn.shape != total.shape or drawn.dtype.kind != "i":
        raise InternalError(Code.BUG, "the noise differs in shape or type from the sum that it is added to")
    out = drawn if drawn.flags.writeable else drawn.copy()
    for start in range(0, len(total), CHUNK):
        here = slice(start, start + CHUNK)
        known, noised = total[here], out[here]
        noise = noised.copy()
        noised += known
        if (((known ^ noised) & (noise ^ noised)) < 0).any():  # the sign of neither operand
            raise InternalError(Code.BUG, "a noised value does not fit 64 bits")
    out.setflags(write=False)
    return out


def to_bytes(values: IntArray) -> bytes:
    """Return little-endian 64-bit two's complement bytes, row by row."""
    return to_memoryview(values).tobytes()


def to_memoryview(values: IntArray) -> memoryview:
    """Return the bytes of `to_bytes` as a view, without a copy."""
    return np.ascontiguousarray(values, dtype="<i8").reshape(-1).view(np.uint8).data


def from_bytes(data: bytes, shape: tuple[int, ...]) -> IntArray:
    """Return the integers that `to_bytes` encoded. Raises PeerError: the length does not match `shape`."""
    wanted = 8 * math.prod(shape)
    if len(data) != wanted:
        raise PeerError(
            Code.BAD_CONTRIBUTION, f"expected {wanted} bytes for {shape} 64-bit integers, got {len(data)}"
        )
    return frozen(np.frombuffer(data, dtype="<i8").reshape(shape))  # of `bytes`: no copy


_COMPACT = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
SURROGATES = re.compile("[\ud800-\udfff]")  # halves of a character, which no encoder may write
LEAST_PLAIN, MOST_PLAIN = 1e-4, 1e16  # between them Python and RFC 8785 write a fraction alike


class _Text(str):
    """Canonical text of a value that the standard encoder does not write so."""

    __slots__ = ()


def canonical(value: Any) -> bytes:
    """Return canonical JSON (RFC 8785) of plain values. The standard encoder, which is compiled, writes the
    same bytes of all but unusual values, so the reference encoder writes only those."""
    return _text(_usual(value)).encode()


def _text(usual: Any) -> str:
    return usual if type(usual) is _Text else _COMPACT.encode(usual)


def _usual(value: Any) -> Any:
    """Return a value with whole floats as integers, of which the standard encoder writes the canonical form;
    or that form, if it would write another. Each value is visited once, whatever is inside of it."""
    kind = type(value)
    if kind is str:
        if value.isascii() or not SURROGATES.search(value):
            return value
    elif kind is float:
        if not value.is_integer() and LEAST_PLAIN <= abs(value) < MOST_PLAIN:
            return value
        if value.is_integer() and -EXACT < value < EXACT:
            return int(value)
    elif kind in (list, tuple):
        found = [_usual(one) for one in value]
        return _Text(f"[{','.join(map(_text, found))}]") if _Text in map(type, found) else found
    elif kind is dict:
        if all(type(key) is str and key.isascii() for key in value):
            return _usual_object({key: _usual(one) for key, one in value.items()})
    elif value is None or kind is bool or (kind is int and -EXACT < value < EXACT):
        return value
    return _Text(rfc8785.dumps(value).decode())


def _usual_object(found: dict[str, Any]) -> Any:
    if _Text not in map(type, found.values()):
        return found
    pairs = (f"{_COMPACT.encode(key)}:{_text(found[key])}" for key in sorted(found))
    return _Text(f"{{{','.join(pairs)}}}")


def parse_json(text: bytes | str) -> Any:
    """Return the value of an untrusted JSON text. Raises ValueError: it is not JSON, or nests deeper than 64
    containers. Python's own limit varies."""
    try:
        value = json.loads(text)
    except RecursionError as problem:
        raise ValueError("it nests too deep") from problem
    level = [value]
    for _ in range(MAX_NESTING):
        level = [inner for one in level for inner in _inner(one)]
        if not level:
            return value
    raise ValueError("it nests too deep")


def _inner(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [one for one in inner if isinstance(one, dict | list)]


_FIELD_NAMES: dict[Any, tuple[str, ...]] = {}


def field_names(kind: type[Any]) -> tuple[str, ...]:
    """Return the names of a dataclass's fields; `dataclasses.fields` makes its tuple anew each time."""
    if kind not in _FIELD_NAMES:
        _FIELD_NAMES[kind] = tuple(one.name for one in fields(kind))
    return _FIELD_NAMES[kind]


DIGEST = re.compile("[0-9a-f]{64}")


def digest(domain: str, header: Any, arrays: Sequence[IntArray] = ()) -> str:
    """Return the SHA-256 (hex) of canonical JSON and integer arrays, separated by domain and by length."""
    return digest_of(domain, canonical(header), *map(to_memoryview, arrays))


def is_digest(text: object) -> bool:
    """Return True if `text` is a SHA-256 as digests are written: 64 lower-case hexadecimal digits."""
    return isinstance(text, str) and DIGEST.fullmatch(text) is not None


def digest_of(domain: str, *parts: bytes | memoryview) -> str:
    """Return the SHA-256 (hex) of bytes that are canonical already."""
    state = hashlib.sha256(f"eigenveil/{domain}/v1\n".encode())
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.hexdigest()


class ExactSum:
    """Sum in float64 while no sum of absolute products can reach 2**53, then in int64.

    `bound` is the largest absolute sum, in any entry, of the products of one record. A product may cover at
    most `most` records.

    Shape: products and total are of one shape."""

    def __init__(self, shape: tuple[int, ...], bound: int) -> None:
        check_exact(float(bound))
        self.most = (EXACT - 1) // max(bound, 1)
        self._total: IntArray | None = None  # None while floats hold the sum exactly
        self._exact = np.zeros(shape)
        self._pending_records = 0

    def add(self, product: FloatArray, records: int) -> None:
        """Add a product over `records` records."""
        if self._pending_records + records > self.most:
            self._flush()
        self._exact += product
        self._pending_records += records

    def total(self) -> IntArray:
        """Return the sum. Call it once."""
        if self._total is None:
            return self._exact.astype(np.int64)
        self._flush()
        return self._total

    def _flush(self) -> None:
        if self._total is None:
            self._total = self._exact.astype(np.int64)
        else:
            self._total += self._exact.astype(np.int64)
        self._exact[:] = 0.0
        self._pending_records = 0


def select_columns(wanted: Sequence[str] | None, X: Any) -> Any:
    """Return the columns `wanted` of a table, in that order, and ignore all others.

    Data without column names, such as an array, is returned unchanged: its columns count by position.

    Raises:
        ValueError: a column is missing or occurs twice."""
    kind = type(X)  # read from the type: a column of a DataFrame may be called "select"
    available = next((getattr(X, name) for name in ("column_names", "columns") if hasattr(kind, name)), None)
    if wanted is None or available is None or not all(isinstance(name, str) for name in available):
        return X
    times = Counter(available)
    if missing := [name for name in wanted if not times[name]]:
        raise ValueError(f"the table has no column {_listed(missing)}; it has: {_listed(list(available))}")
    if twice := [name for name in wanted if times[name] > 1]:
        raise ValueError(f"the table has more than one column {_listed(twice)}")
    names = list(wanted)
    return X.select(names) if hasattr(kind, "select") else X[names]  # Arrow and polars; pandas


def _listed(names: list[str], most: int = 8) -> str:
    listed = ", ".join(repr(str(name)) for name in names[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"
