"""Persons of rows, numbered in the order of their first rows, and their rows that do not fit into memory.
Such rows are spilled to a file in partitions. The partition of a row is a hash of its person's name, so a
partition holds all spilled rows of a person, in their order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil_client.records.scratch_files import Scratch
from eigenveil_client.records.tables.cells import distinct

NO_PERSON, SPILLED = -1, -2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowPersons:
    """Persons of the rows of a batch.

    `person_numbers`: the person of each row, `NO_PERSON`, or `SPILLED` if memory is full. `first`: the first
    row of each new person, in the order of their numbers. `persons`: the number of persons so far.

    Shape: person_numbers (rows,)."""

    person_numbers: IntArray
    first: IntArray
    persons: int


def named(words: pa.Array, missing: tuple[str, ...] = ()) -> pa.Array:
    """Return the name of the person of each row, null for words that mean "missing" in every file or, as
    `missing`, in this one. Otherwise all rows with such a word would be one person's."""
    known = distinct(words, missing)
    return known.words.take(known.indices)


class Persons:
    """Persons so far; memory grows with their number, not with their rows. Once there are `most`, new persons
    of later batches are `SPILLED`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def row_persons(self, names: pa.Array) -> RowPersons:
        """Return the persons of the rows of a batch, by the names from `named`."""
        words, known, before = names.dictionary_encode(), self._numbers, len(self._numbers)
        if before < self._most:
            found = [known.setdefault(word, len(known)) for word in words.dictionary.to_pylist()]
        else:
            found = [known.get(word, SPILLED) for word in words.dictionary.to_pylist()]
        numbers = np.array([*found, NO_PERSON], dtype=np.int64)  # the last one is for nulls
        positions = pc.fill_null(words.indices, len(found)).to_numpy(zero_copy_only=False)
        first = np.zeros(len(numbers), dtype=np.int64)
        there, row = np.unique(positions, return_index=True)
        first[there] = row
        return RowPersons(
            person_numbers=numbers[positions], first=first[numbers >= before], persons=len(known)
        )

    def by_name(self) -> IntArray:
        """Return the persons' numbers in the byte order of their names, which is not that of the rows."""
        return np.asarray(pc.sort_indices(pa.array(self._numbers, pa.string())), dtype=np.int64)


def row_by_row(rows: int) -> RowPersons:
    """Return rows of which each is one person."""
    rows_as_persons = np.arange(rows, dtype=np.int64)
    return RowPersons(person_numbers=rows_as_persons, first=rows_as_persons, persons=rows)


PARTITION_BITS = 10
PARTITIONS = 2**PARTITION_BITS
BUFFERED = 2**24  # bytes that are buffered, sorted and written together


# Numbers of a column, NaN where one is missing, and marks of unreadable cells. Shape: (rows,), each.
MarkedValues = tuple[FloatArray, NDArray[np.bool_]]


def joined(parts: Sequence[MarkedValues]) -> MarkedValues:
    """Concatenate parts of a column, if there are any."""
    values, marks = zip((np.empty(0), np.empty(0, dtype=np.bool_)), *parts, strict=True)
    return np.concatenate(values), np.concatenate(marks)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NamedRows:
    """Rows as columns of numbers, and the name of each row's person (null: none). Shape: names (rows,)."""

    names: pa.Array
    columns: list[MarkedValues]

    @property
    def nbytes(self) -> int:
        return int(self.names.nbytes) + sum(array.nbytes for column in self.columns for array in column)

    def only(self, rows: IntArray) -> NamedRows:
        """Return a copy of the rows at these positions."""
        columns = [(values[rows], unreadable[rows]) for values, unreadable in self.columns]
        return NamedRows(names=self.names.take(pa.array(rows)), columns=columns)


class SpilledRows:
    """Spilled rows of `width` columns, in partitions; each row has a person. `level`: the number of earlier
    spills of these rows; each level distributes persons by another hash."""

    def __init__(self, scratch: Scratch, width: int, level: int) -> None:
        self._file, self._width, self._level = scratch.file(), width, level
        self._waiting: list[NamedRows] = []
        self._written: list[tuple[IntArray, IntArray]] = []  # offsets and rows of the partitions

    def add(self, rows: NamedRows) -> None:
        """Add rows. Raises BadRecords: they cannot be written to the disk."""
        self._waiting.append(rows)
        if sum(one.nbytes for one in self._waiting) > BUFFERED:
            self._write()

    def partitions(self) -> Iterator[Iterator[NamedRows]]:
        """Return the rows of each nonempty partition, in large pieces, after all rows were added."""
        if self._waiting:
            self._write()
        rows = sum((rows for _, rows in self._written), np.zeros(PARTITIONS, dtype=np.int64))
        return (self._partition(int(partition)) for partition in np.flatnonzero(rows))

    def close(self) -> None:
        """Free the space on the disk."""
        self._file.close()

    def _write(self) -> None:
        """Write the buffered rows, partition by partition."""
        rows, self._waiting = _joined(self._waiting), []
        partition = partition_of(rows.names, self._level)
        order, counts = np.argsort(partition, kind="stable"), np.bincount(partition, minlength=PARTITIONS)
        offsets = [self._file.size]
        for end, count in zip(np.cumsum(counts), counts, strict=True):
            if count:
                self._file.append(_packed(rows.only(order[end - count : end])))
            offsets.append(self._file.size)
        self._written.append((np.array(offsets), counts))

    def _partition(self, partition: int) -> Iterator[NamedRows]:
        pieces: list[NamedRows] = []
        for offsets, counts in self._written:
            if counts[partition]:
                data = bytearray(int(offsets[partition + 1] - offsets[partition]))
                self._file.read_into(int(offsets[partition]), memoryview(data))
                pieces.append(_unpacked(bytes(data), int(counts[partition]), self._width))
            if sum(one.nbytes for one in pieces) > BUFFERED:
                yield _joined(pieces)
                pieces = []
        if pieces:
            yield _joined(pieces)


def _joined(rows: list[NamedRows]) -> NamedRows:
    columns = [joined(parts) for parts in zip(*(one.columns for one in rows), strict=True)]
    return NamedRows(names=pa.concat_arrays([one.names for one in rows]), columns=columns)


def _packed(rows: NamedRows) -> bytes:
    """Return the lengths of names, the names, and each column's numbers and marks, as bytes."""
    ends, text = _text(rows.names)
    arrays = (np.diff(ends).astype(np.int32), text, *(array for column in rows.columns for array in column))
    return b"".join(array.tobytes() for array in arrays)


def _unpacked(data: bytes, rows: int, width: int) -> NamedRows:
    begin, size = len(data) - 9 * rows * width, 9 * rows
    ends = np.concatenate([[0], np.cumsum(np.frombuffer(data, dtype=np.int32, count=rows))]).astype(np.int32)
    text = pa.py_buffer(data[4 * rows : begin])
    columns = [
        (np.frombuffer(column[: 8 * rows]), np.frombuffer(column[8 * rows :], dtype=np.bool_))
        for column in (data[at : at + size] for at in range(begin, len(data), size))
    ]
    names = pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends.tobytes()), text])
    return NamedRows(names=names, columns=columns)


def partition_of(names: pa.Array, level: int) -> IntArray:
    """Return the partition of each name: a hash with another public key at each level. It is the same after a
    restart. Shape: (rows,) -> (rows,) in [0, PARTITIONS)."""
    ends, text = _text(names)
    lengths = np.diff(ends)
    key = hashlib.shake_256(b"eigenveil/aside/%d" % level).digest(8 * int(lengths.max(initial=1)))
    position = np.arange(len(text)) - np.repeat(ends[:-1], lengths)
    weighed = np.frombuffer(key, dtype="<u8")[position] * (text.astype(np.uint64) + np.uint64(1))
    mixed: NDArray[np.uint64] = np.add.reduceat(weighed, ends[:-1])
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # splitmix64's finalizer
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    return (mixed >> np.uint64(64 - PARTITION_BITS)).astype(np.int64)


def _text(names: pa.Array) -> tuple[IntArray, NDArray[np.uint8]]:
    """Return the offset of each name and of the end of the last, and the bytes of all."""
    _, offsets, data = names.buffers()
    at = slice(names.offset, names.offset + len(names) + 1)
    ends = np.frombuffer(offsets, dtype=np.int32)[at].astype(np.int64)
    return ends - ends[0], np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]]
