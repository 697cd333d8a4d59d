"""Whose row is whose: persons numbered as they first come, however many rows each has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eigenveil.numerics.encoding import IntArray
from eigenveil_client.records.tables.cells import MISSING


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Whose:
    """Of the rows of a batch: `who` is each one's person, -1 for nobody; `first` are the rows with which a
    new person comes, in the order of their numbers; `persons` is how many there are by now. Shape: who
    (rows,)."""

    who: IntArray
    first: IntArray
    persons: int


class Persons:
    """All persons so far; memory grows with them and not with their rows."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def whose(self, names: pa.Array) -> Whose:
        """The rows of a batch, by the text that names their person. Whatever says "missing" in a measurement
        names nobody: else its rows were one person's."""
        words, known = names.dictionary_encode(), self._numbers
        nobody = pc.is_in(pc.utf8_lower(words.dictionary), value_set=pa.array(MISSING)).to_pylist()
        before = len(known)
        found = [
            -1 if unnamed else known.setdefault(word, len(known))
            for word, unnamed in zip(words.dictionary.to_pylist(), nobody, strict=True)
        ]
        numbers = np.array([*found, -1], dtype=np.int64)  # the last one is a null's
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
