"""Rows of persons for whom memory has no room yet, set aside in a file until it has.

Which of the parts a row goes to follows from its person's name alone, so a part holds persons whole, and
their rows in the order in which they came.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil_client.records.overflow.scratch import Scratch

PART_BITS = 10
PARTS = 2**PART_BITS
BUFFERED = 2**24  # bytes that wait to be sorted and written together


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NamedRows:
    """Rows as numbers, each with the name of its person, and which numbers are missing as a cell could not be
    read. Shape: names (rows,), text without a null or an empty one; numbers and unreadable (rows, w)."""

    names: pa.Array
    numbers: FloatArray
    unreadable: NDArray[np.bool_]

    @property
    def nbytes(self) -> int:
        return int(self.names.nbytes) + self.numbers.nbytes + self.unreadable.nbytes

    def only(self, rows: IntArray) -> NamedRows:
        """The rows at these positions, as a copy."""
        return NamedRows(
            names=self.names.take(pa.array(rows)),
            numbers=self.numbers[rows],
            unreadable=self.unreadable[rows],
        )


class Aside:
    """Rows of `width` numbers in parts. `level`: how often these rows were set aside before, so that persons
    who were in one part then are in many now."""

    def __init__(self, scratch: Scratch, width: int, level: int) -> None:
        self._file = scratch.file()
        self._width = width
        self._level = level
        self._waiting: list[NamedRows] = []
        self._written: list[tuple[IntArray, IntArray]] = []  # at each writing: places and rows of the parts

    def add(self, rows: NamedRows) -> None:
        """Set rows aside. Raises BadRecords: the disk does not take them."""
        self._waiting.append(rows)
        if sum(one.nbytes for one in self._waiting) > BUFFERED:
            self._write()

    def parts(self) -> Iterator[Iterator[NamedRows]]:
        """The rows of each part that has any, in large pieces; after all of them were added."""
        if self._waiting:
            self._write()
        rows = sum((rows for _, rows in self._written), np.zeros(PARTS, dtype=np.int64))
        return (self._part(int(part)) for part in np.flatnonzero(rows))

    def close(self) -> None:
        """Give the disk's room back."""
        self._file.close()

    def _write(self) -> None:
        """Write what waits, part by part."""
        rows, self._waiting = _joined(self._waiting), []
        part = parts_of(rows.names, self._level)
        order, counts = np.argsort(part, kind="stable"), np.bincount(part, minlength=PARTS)
        places = [self._file.size]
        for end, count in zip(np.cumsum(counts), counts, strict=True):
            if count:
                self._file.append(_packed(rows.only(order[end - count : end])))
            places.append(self._file.size)
        self._written.append((np.array(places), counts))

    def _part(self, part: int) -> Iterator[NamedRows]:
        held: list[NamedRows] = []
        for places, counts in self._written:
            if counts[part]:
                data = bytearray(int(places[part + 1] - places[part]))
                self._file.read_into(int(places[part]), memoryview(data))
                held.append(_unpacked(bytes(data), int(counts[part]), self._width))
            if sum(one.nbytes for one in held) > BUFFERED:
                yield _joined(held)
                held = []
        if held:
            yield _joined(held)


def _joined(rows: list[NamedRows]) -> NamedRows:
    return NamedRows(
        names=pa.concat_arrays([one.names for one in rows]),
        numbers=np.concatenate([one.numbers for one in rows]),
        unreadable=np.concatenate([one.unreadable for one in rows]),
    )


def _packed(rows: NamedRows) -> bytes:
    """Lengths of names, names, numbers, and marks of what could not be read."""
    ends, text = _text(rows.names)
    lengths = np.diff(ends).astype(np.int32)
    return b"".join(part.tobytes() for part in (lengths, text, rows.numbers, rows.unreadable))


def _unpacked(data: bytes, rows: int, width: int) -> NamedRows:
    begin, numbers = 4 * rows, len(data) - 9 * rows * width
    ends = np.concatenate([[0], np.cumsum(np.frombuffer(data, dtype=np.int32, count=rows))]).astype(np.int32)
    text = pa.py_buffer(data[begin:numbers])
    shape = (rows, width)
    return NamedRows(
        names=pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends.tobytes()), text]),
        numbers=np.frombuffer(data[numbers : numbers + 8 * rows * width]).reshape(shape),
        unreadable=np.frombuffer(data, dtype=np.bool_, offset=numbers + 8 * rows * width).reshape(shape),
    )


def parts_of(names: pa.Array, level: int) -> IntArray:
    """The part of each name: a keyed hash, the key another one at each level. Nothing is secret about it, and
    a start after a restart gives the same. Shape: (rows,) -> (rows,) in [0, PARTS)."""
    ends, text = _text(names)
    lengths = np.diff(ends)
    key = hashlib.shake_256(b"eigenveil/aside/%d" % level).digest(8 * int(lengths.max(initial=1)))
    place = np.arange(len(text)) - np.repeat(ends[:-1], lengths)
    weighed = np.frombuffer(key, dtype="<u8")[place] * (text.astype(np.uint64) + np.uint64(1))
    mixed: NDArray[np.uint64] = np.add.reduceat(weighed, ends[:-1])
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # splitmix64's finalizer
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    return (mixed >> np.uint64(64 - PART_BITS)).astype(np.int64)


def _text(names: pa.Array) -> tuple[IntArray, NDArray[np.uint8]]:
    """Where each name begins, and where the last one ends; and the bytes of all."""
    _, offsets, data = names.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[names.offset : names.offset + len(names) + 1].astype(
        np.int64
    )
    return ends - ends[0], np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]]
