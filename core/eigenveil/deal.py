"""Dealing records into disjoint parts by what they are, never by where they stand [P9]."""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np

from eigenveil.grid import GridRows
from eigenveil.ints import IntArray


def deal(rows: GridRows, parts: int, key: IntArray) -> IntArray:
    """The part of each record: a keyed hash of the record and its number among its equals, modulo `parts`.

    A record more is one (record, number) pair more, wherever it is put: nobody else's part changes. Parts
    by position would move every record behind it.

    Shape: rows (n, d) int16, key (4,) -> (n,) in [0, parts).
    """
    secret, seen = key.astype("<i8").tobytes(), Counter[bytes]()
    out = np.empty(len(rows), dtype=np.int64)
    for position, row in enumerate(np.ascontiguousarray(rows, dtype="<i2")):
        record = row.tobytes()
        equals = seen[record]
        seen[record] += 1
        text = hashlib.blake2b(record, digest_size=16, key=secret, salt=equals.to_bytes(8, "little"))
        out[position] = int.from_bytes(text.digest(), "little") % parts
    return out
