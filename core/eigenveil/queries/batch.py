"""Disjoint batches of the records: one pass over the data is many queries at the price of one.

Which batch a record is in depends on that record, its number among its equals and a public key, and on
nothing else; so one record more adds to one batch only (parallel composition, [P9]).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eigenveil.numerics.encoding import IntArray, digest
from eigenveil.queries.limits import check_whole, freeze, need

MOST_BATCHES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Batch `index` of `batches`. The pass began (and was paid) in round `first`; round first + i asks for i.

    Shape: key (4,), from `pass_key`: another pass deals the records anew.
    """

    first: int
    index: int
    batches: int
    key: IntArray

    def __post_init__(self) -> None:
        freeze(self, "key")
        check_whole("number of batches", self.batches, 1, MOST_BATCHES)
        check_whole("batch", self.index, 0, self.batches - 1)
        check_whole("first round of the pass", self.first, 0, 2**31)
        need(self.key.shape == (4,), "a pass has a key of four integers")


def pass_key(plan_digest: str, first: int, batches: int) -> IntArray:
    """The key that deals records into batches in the pass that begins in round `first`. Shape: (4,)."""
    text = digest("pass", {"plan": plan_digest, "first": first, "batches": batches})
    return np.frombuffer(bytes.fromhex(text), dtype="<i8").astype(np.int64)
