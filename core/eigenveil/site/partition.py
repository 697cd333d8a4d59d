"""Dealing records into disjoint batches by what they are, never by where they stand [P9]."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from eigenveil.numerics.encoding import IntArray
from eigenveil.study.grid import GridRows

CACHED = 2**17  # entries worked on at a time
SPREAD = 2**62  # batches when a hash is wanted as a number


def deal(rows: GridRows, batches: int, key: IntArray, unit: int = 1) -> IntArray:
    """The batch of each record: a keyed hash of the record and its number among its equals, modulo `batches`.

    A record more is one (record, number) pair more, wherever it is put: nobody else's batch changes. Batches
    by position would move every record behind it. The guarantee needs a function of the pair, no more, and
    the key is public: the hash is a random linear form over the integers modulo 2^64, mixed, so that
    batches come out even (proto/PROTOCOL.md, R13; core/decisions/0013).

    Shape: rows (n, d) stored integers, which times `unit` are on the grid, key (4,) -> (n,) in [0, batches).
    Cost: about 40 bytes a record while equal records are looked for, 16 after that.
    """
    factors = _factors(key, rows.shape[1] + 1)
    mixed: NDArray[np.uint64] = _numbers(rows).view(np.uint64)
    mixed *= factors[0]
    factors = factors[1:] * np.uint64(unit)
    for here in _chunks(rows):
        mixed[here] += rows[here].astype(np.int64).view(np.uint64) @ factors
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # splitmix64's finalizer
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return np.asarray(mixed % np.uint64(batches), dtype=np.int64)


def _factors(key: IntArray, count: int) -> NDArray[np.uint64]:
    """Odd multipliers from a key. Shape: (count,)."""
    text = hashlib.shake_256(b"eigenveil/deal/v1" + key.astype("<i8").tobytes()).digest(8 * count)
    return np.frombuffer(text, dtype="<u8") | np.uint64(1)


def _numbers(rows: GridRows) -> IntArray:
    """Each record's number among its equals, in the order of the file. Shape: (n, d) -> (n,)."""
    if not len(rows):
        return np.zeros(0, dtype=np.int64)
    whole = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).reshape(-1)
    order = np.argsort(whole, kind="stable")
    begin = np.ones(len(rows), dtype=np.bool_)
    for here in _chunks(rows):
        ranked = rows[order[max(here.start - 1, 0) : here.stop]]
        begin[max(here.start, 1) : here.stop] = (ranked[1:] != ranked[:-1]).any(axis=1)
    begins = np.flatnonzero(begin)
    numbers = np.empty(len(rows), dtype=np.int64)
    numbers[order] = np.arange(len(rows)) - np.repeat(begins, np.diff(np.r_[begins, len(rows)]))
    return numbers


def _chunks(rows: GridRows) -> Iterator[slice]:
    """Consecutive parts of the rows that stay in the cache."""
    size = max(1, CACHED // rows.shape[1])
    return (slice(start, min(start + size, len(rows))) for start in range(0, len(rows), size))


def shuffled(records: int, slots: int, key: IntArray, secret: bytes) -> IntArray:
    """Which record is in each slot: the first `slots` of a uniformly random order of the records, and of as
    many empty places as the slots need. Positions from `records` on are empty.

    The order is that of a hash keyed with a secret of the site and the key of the pass: whoever has no secret
    cannot tell it from a random one, and a site that is asked again says the same [P24].

    Shape: key (4,) -> (slots,).
    """
    salt = key.astype("<i8").tobytes()
    places = range(max(records, slots))
    named = (salt + place.to_bytes(8, "little") for place in places)
    turns = [hashlib.blake2b(name, digest_size=16, key=secret).digest() for name in named]
    return np.array(sorted(places, key=turns.__getitem__)[:slots], dtype=np.int64)
