"""Assignment of records to disjoint batches by their values, never by their positions [P9]."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from eigenveil.numerics.encoding import IntArray
from eigenveil.study.grid import GridRows

BLOCK_ENTRIES = 2**17  # entries of a block
HASH_RANGE = 2**62  # number of batches that makes the batch a plain hash


def assign_batches(rows: GridRows, batches: int, key: IntArray, unit: int = 1) -> IntArray:
    """Return each record's batch: a keyed hash of the record and its occurrence number, modulo `batches`.

    The occurrence number counts equal records. One record more adds one (record, number) pair and changes no
    other record's batch; batches by position would move every record behind it. The guarantee only needs a
    function of the pair, and the key is public. The hash is a mixed random linear form modulo 2^64, so that
    batches have about equal sizes (proto/PROTOCOL.md, R13; core/decisions/0013).

    Shape: rows (n, d) stored integers, which times `unit` are on the grid, key (4,) -> (n,) in [0, batches).
    Cost: about 40 bytes a record while equal records are counted, 16 after that.
    """
    multipliers = _hash_multipliers(key, rows.shape[1] + 1)
    mixed: NDArray[np.uint64] = _occurrence_numbers(rows).view(np.uint64)
    mixed *= multipliers[0]
    multipliers = multipliers[1:] * np.uint64(unit)
    for here in _chunks(rows):
        mixed[here] += rows[here].astype(np.int64).view(np.uint64) @ multipliers
    for shift, multiplier in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # splitmix64's finalizer
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(multiplier)
    mixed ^= mixed >> np.uint64(31)
    return np.asarray(mixed % np.uint64(batches), dtype=np.int64)


def _hash_multipliers(key: IntArray, count: int) -> NDArray[np.uint64]:
    """Return odd multipliers derived from a key. Shape: (count,)."""
    text = hashlib.shake_256(b"eigenveil/deal/v1" + key.astype("<i8").tobytes()).digest(8 * count)
    return np.frombuffer(text, dtype="<u8") | np.uint64(1)


def _occurrence_numbers(rows: GridRows) -> IntArray:
    """Return each record's number among equal records, in file order. Shape: (n, d) -> (n,)."""
    if not len(rows):
        return np.zeros(0, dtype=np.int64)
    row_bytes = (
        np.ascontiguousarray(rows).view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).reshape(-1)
    )
    order = np.argsort(row_bytes, kind="stable")
    begin = np.ones(len(rows), dtype=np.bool_)
    for here in _chunks(rows):
        ranked = rows[order[max(here.start - 1, 0) : here.stop]]
        begin[max(here.start, 1) : here.stop] = (ranked[1:] != ranked[:-1]).any(axis=1)
    begins = np.flatnonzero(begin)
    numbers = np.empty(len(rows), dtype=np.int64)
    numbers[order] = np.arange(len(rows)) - np.repeat(begins, np.diff(np.r_[begins, len(rows)]))
    return numbers


def _chunks(rows: GridRows) -> Iterator[slice]:
    """Return consecutive blocks of the rows that fit into the cache."""
    size = max(1, BLOCK_ENTRIES // rows.shape[1])
    return (slice(start, min(start + size, len(rows))) for start in range(0, len(rows), size))


def shuffle_slots(records: int, slots: int, key: IntArray, secret: bytes) -> IntArray:
    """Return the record in each slot: the first `slots` of a random order of records and empty positions.

    Positions from `records` on are empty. The order is that of a hash keyed with a secret of the site and the
    key of the pass. Without the secret it is indistinguishable from a uniform order, and it is the same each
    time [P24].

    Shape: key (4,) -> (slots,).
    """
    salt = key.astype("<i8").tobytes()
    positions = range(max(records, slots))
    messages = (salt + position.to_bytes(8, "little") for position in positions)
    hashes = [hashlib.blake2b(name, digest_size=16, key=secret).digest() for name in messages]
    return np.array(sorted(positions, key=hashes.__getitem__)[:slots], dtype=np.int64)
