"""Whose row is whose: persons numbered as they first come, however many rows each has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eigenveil.numerics.encoding import IntArray
from eigenveil_client.records.tables.cells import MISSING

NOBODY, STRANGER = -1, -2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Whose:
    """Of the rows of a batch: `who` is each one's person, `NOBODY` or a `STRANGER`, who found no room;
    `first` are the rows with which a new person comes, in the order of their numbers; `persons` is how many
    there are by now. Shape: who (rows,)."""

    who: IntArray
    first: IntArray
    persons: int


def named(words: pa.Array) -> pa.Array:
    """The text that names the person of each row, null where it names nobody: whatever says "missing" in a
    measurement. Else the rows that say so were one person's."""
    known = words.dictionary_encode()
    nobody = pc.is_in(pc.utf8_lower(known.dictionary), value_set=pa.array(MISSING))
    names = pc.if_else(nobody, pa.scalar(None, pa.string()), known.dictionary)
    return names.take(known.indices)


class Persons:
    """Persons so far, in memory that grows with them and not with their rows; once there are `most`, all who
    come with later batches are strangers."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def whose(self, names: pa.Array) -> Whose:
        """The rows of a batch, by what `named` says."""
        words, known = names.dictionary_encode(), self._numbers
        before = len(known)
        if before < self._most:
            found = [known.setdefault(word, len(known)) for word in words.dictionary.to_pylist()]
        else:
            found = [known.get(word, STRANGER) for word in words.dictionary.to_pylist()]
        numbers = np.array([*found, NOBODY], dtype=np.int64)  # the last one is a null's
        places = pc.fill_null(words.indices, len(found)).to_numpy(zero_copy_only=False)
        first = np.zeros(len(numbers), dtype=np.int64)
        there, row = np.unique(places, return_index=True)
        first[there] = row
        return Whose(who=numbers[places], first=first[numbers >= before], persons=len(known))

    def by_name(self) -> IntArray:
        """The persons' numbers in the order of their names, byte by byte: not that of the rows."""
        order: IntArray = pc.sort_indices(pa.array(self._numbers, pa.string())).to_numpy().astype(np.int64)
        return order


def row_by_row(rows: int) -> Whose:
    """Rows of which each is another person."""
    everyone = np.arange(rows, dtype=np.int64)
    return Whose(who=everyone, first=everyone, persons=rows)
