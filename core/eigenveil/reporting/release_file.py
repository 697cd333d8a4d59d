"""File of a release: an archive of its document, its signature and its arrays, the same bytes on every
machine [R32].

The file is a ZIP archive without compression, so that any tool opens it. Its members are, in this order:

- `release.json`, the canonical document;
- `signature.json`, unless the release is of a simulation. The signature covers the bytes of the document;
- each array in NumPy's format, by name: `numpy.load(file)["pca/components"]`. The document has the type, the
  shape and the SHA-256 of each of these members.

A file that differs in one byte from what this module writes is refused, also where no value differs."""

from __future__ import annotations

import hashlib
import math
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

DOCUMENT, SIGNATURE = "release.json", "signature.json"
TYPES = ("<f8", "<i4")  # of arrays: little-endian, 64-bit floating point and 32-bit integers

_LOCAL = struct.Struct("<4s5H3I2H")  # header before the bytes of a member
_ENTRY = struct.Struct("<4s6H3I5H2I")  # entry of the directory behind all members
_END = struct.Struct("<4s4H2IH")  # end of the directory
_LOCAL_MARK, _ENTRY_MARK, _END_MARK = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
_VERSION = 20  # of the ZIP format, 2.0
_MIDNIGHT, _DAY = 0, 33  # 1980-01-01, the first day of the format: a date would differ between two builds


Data = bytes | memoryview


def archive_parts(members: Mapping[str, Sequence[Data]]) -> list[Data]:
    """Return a ZIP archive of `members`, by name, uncompressed and in their order, in parts; the content of a
    member, itself in parts, is not copied."""
    return [part for frame, content in _frames(members) for part in (frame, *content)]


def write_archive(members: Mapping[str, Data]) -> bytes:
    """Return the same archive whole."""
    return b"".join(archive_parts({name: (data,) for name, data in members.items()}))


def _frames(members: Mapping[str, Sequence[Data]]) -> Iterator[tuple[bytes, Sequence[Data]]]:
    """Yield the bytes of the archive before the content of each member, with that content, then those behind
    all members."""
    directory: list[bytes] = []
    at = 0
    for name, content in members.items():
        path, size, checksum = name.encode("ascii"), sum(map(len, content)), 0
        for part in content:
            checksum = zlib.crc32(part, checksum)
        about = (_VERSION, 0, 0, _MIDNIGHT, _DAY, checksum, size, size, len(path), 0)
        directory += [_ENTRY.pack(_ENTRY_MARK, _VERSION, *about, 0, 0, 0, 0, at), path]
        yield _LOCAL.pack(_LOCAL_MARK, *about) + path, content
        at += _LOCAL.size + len(path) + size
    directory_bytes = b"".join(directory)
    size = len(directory_bytes)
    yield directory_bytes + _END.pack(_END_MARK, 0, 0, len(members), len(members), size, at, 0), ()


def read_archive(data: Data) -> dict[str, memoryview]:
    """Return the members of an archive, as views of `data`. Raises ValueError: it is not what `write_archive`
    writes."""
    whole = memoryview(data)
    try:
        members = dict(_members(whole))
        intact = _is_framed(whole, members)
    except struct.error as problem:
        raise ValueError("the archive is cut off") from problem
    if not intact:
        raise ValueError("the archive is not in canonical form")
    return members


def _members(data: memoryview) -> Iterator[tuple[str, memoryview]]:
    """Yield names and bytes of the members from the front. What stands behind them is not read:
    `read_archive` compares it."""
    at = 0
    while data[at : at + len(_LOCAL_MARK)] == _LOCAL_MARK:
        *_, size, _, name_bytes, _ = _LOCAL.unpack_from(data, at)
        start = at + _LOCAL.size
        at = start + name_bytes + size
        yield bytes(data[start : start + name_bytes]).decode("ascii"), data[start + name_bytes : at]


def _is_framed(data: memoryview, members: Mapping[str, memoryview]) -> bool:
    """True if these members, which are views of `data`, make the same archive again."""
    at = 0
    for frame, content in _frames({name: (view,) for name, view in members.items()}):
        if data[at : at + len(frame)] != frame:
            return False
        at += len(frame) + sum(map(len, content))
    return at == len(data)


HEADER_BYTES = 128  # of an array's file; the values follow, row by row


def array_parts(values: NDArray[Any]) -> tuple[bytes, memoryview]:
    """Return an array as a file in NumPy's format 1.0: its header, and its values, which are not copied."""
    kind = values.dtype.newbyteorder("<")
    content = np.ascontiguousarray(values, dtype=kind).reshape(-1).view(np.uint8).data
    return _header(kind.str, values.shape), content


def array_file(values: NDArray[Any]) -> bytes:
    """Return the same file whole."""
    return b"".join(array_parts(values))


def _header(kind: str, shape: tuple[int, ...]) -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    length = HEADER_BYTES - 10
    return b"\x93NUMPY\x01\x00" + length.to_bytes(2, "little") + text.ljust(length - 1).encode() + b"\n"


def describe_array(path: str, values: NDArray[Any]) -> dict[str, Any]:
    """Return the document's entry for an array that is the member `path`."""
    digest = hashlib.sha256()
    for part in array_parts(values):
        digest.update(part)
    return {
        "file": path,
        "dtype": values.dtype.newbyteorder("<").str,
        "shape": list(values.shape),
        "sha256": digest.hexdigest(),
    }


def read_array(described: Mapping[str, Any], members: Mapping[str, Data]) -> NDArray[Any]:
    """Return the array of an entry of the document. Read-only.

    Raises:
        KeyError: there is no such member.
        ValueError: the member has another SHA-256, or is not an array of the stated type and shape."""
    data, kind, shape = members[described["file"]], described["dtype"], tuple(described["shape"])
    if hashlib.sha256(data).hexdigest() != described["sha256"]:
        raise ValueError(f"{described['file']} was changed")
    known = kind in TYPES and all(type(size) is int and size >= 0 for size in shape)
    if not known or len(data) != HEADER_BYTES + math.prod(shape) * np.dtype(kind).itemsize:
        raise ValueError(f"{described['file']} is not the array that the document states")
    if data[:HEADER_BYTES] != _header(kind, shape):
        raise ValueError(f"{described['file']} has another header than the document states")
    # A copy: within the file an array is seldom aligned, which changes speed and the last bits of its sums.
    # NumPy makes it, because other threads can run meanwhile.
    array = np.empty(shape, dtype=kind)
    array.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, dtype=np.uint8)[HEADER_BYTES:]
    array.setflags(write=False)
    if not np.isfinite(array).all():
        raise ValueError(f"{described['file']} has a number that is not finite")
    return array
