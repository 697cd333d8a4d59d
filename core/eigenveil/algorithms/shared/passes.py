"""What the algorithms by batches share: counted rounds, passes, and components one after the other."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import orthonormal
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseLaw, PricedQuery
from eigenveil.protocol.release import Release
from eigenveil.queries import Batch, Gradient, OnGradients, ShuffledRecord
from eigenveil.queries.batch import pass_key

Answer = TypeVar("Answer")


class Rounds:
    """Counts the queries, so that a pass knows in which round it begins."""

    def __init__(self) -> None:
        self.asked = 0

    def through(
        self, steps: Generator[PricedQuery, Release, Answer]
    ) -> Generator[PricedQuery, Release, Answer]:
        """`steps`, counted."""
        try:
            priced = next(steps)
            while True:
                self.asked += 1
                priced = steps.send((yield priced))
        except StopIteration as end:
            answer: Answer = end.value
            return answer


@dataclass(slots=True, kw_only=True)
class Pass:
    """One pass over the disjoint batches of the records: a query about each, in turn, all for one price."""

    plan: Plan
    first: int
    micro_rho: int
    atto_delta: int = 0
    next: int = 0

    @property
    def size(self) -> int:
        return self.plan.batches

    def about(self, query: OnGradients, law: NoiseLaw = NoiseLaw.GAUSSIAN) -> PricedQuery:
        """`query` about the next batch; the first one carries the price of the pass [P9]."""
        return self._priced(replace(query, batch=self._batch()), law)

    def about_record(self, query: Gradient) -> PricedQuery:
        """The gradient of the next record in the secret order."""
        return self._priced(
            ShuffledRecord(spec=query.spec, radius=query.radius, batch=self._batch()), NoiseLaw.GAUSSIAN
        )

    def _batch(self) -> Batch:
        key = pass_key(self.plan.digest, self.first, self.size)
        self.next += 1
        return Batch(first=self.first, index=self.next - 1, batches=self.size, key=key)

    def _priced(self, query: OnGradients, law: NoiseLaw) -> PricedQuery:
        return PricedQuery(query=query, micro_rho=self.micro_rho, atto_delta=self.atto_delta, law=law)


def apart(w: FloatArray, found: FloatArray) -> FloatArray:
    """Orthonormal directions for the columns of w, orthogonal to `found`. Shape: (d, m), (d, j) -> (d, m)."""
    return orthonormal(np.hstack([found, w]))[:, found.shape[1] :]
