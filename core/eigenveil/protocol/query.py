"""A query with its price: what an algorithm yields, and what a site is asked in one round."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from eigenveil.accounting.zcdp import ATTO, Cost
from eigenveil.errors import Code, RequestError, spoken
from eigenveil.numerics.encoding import EXACT, IntArray, canonical, digest
from eigenveil.queries import NAMES, OnSubspaces, Query, batch_of
from eigenveil.queries.batch import pass_key
from eigenveil.queries.columns import Frame
from eigenveil.queries.contract import Contract
from eigenveil.queries.limits import SUM_LIMIT, need

TOO_LITTLE = "a question's share of the budget is too small to be counted; raise epsilon"


class NoiseLaw(Enum):
    """How an additive question is made private, at the same price rho.

    `gaussian`: rho-zCDP. `laplace`: pure, epsilon = sqrt(2 rho). `stability`: for counts only; noise on
    the bins that are not empty, and silence about the small ones: (epsilon, delta).
    """

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"
    STABILITY = "stability"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PricedQuery:
    """What an algorithm yields: a question and what it may cost, in micro-rho (zCDP) and atto-delta.

    A trusted question reads epsilon = sqrt(2 rho) off its price, and `law` does not matter to it. `frame` is
    how the rows are seen that it is about; None: on the grid of the study's bounds.
    """

    query: Query
    micro_rho: int
    atto_delta: int = 0
    law: NoiseLaw = NoiseLaw.GAUSSIAN
    frame: Frame | None = None

    def __post_init__(self) -> None:
        if self.micro_rho < 1:
            raise RequestError(Code.BAD_STUDY, TOO_LITTLE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundQuery:
    """A priced question at its place in a study: what a site is asked in one round.

    Raises:
        RequestError: the round is negative, the price is not a whole number from 1 to below 2**53, or the
            query is about a batch that is not this round's, or about subsamples through a frame.
    """

    plan_digest: str
    round: int
    query: Query
    micro_rho: int
    atto_delta: int = 0
    law: NoiseLaw = NoiseLaw.GAUSSIAN
    frame: Frame | None = None
    _digest: str = field(init=False, repr=False)  # filled in when it is first asked for

    def __post_init__(self) -> None:
        whole = all(type(value) is int for value in (self.round, self.micro_rho, self.atto_delta))
        priced = whole and 1 <= self.micro_rho < EXACT and 0 <= self.atto_delta < ATTO
        if not (priced and self.round >= 0):
            raise RequestError(
                Code.BAD_STUDY,
                f"round = {self.round} at a price of {self.micro_rho}: every question has a round from 0 "
                "and a whole price from 1 to below 2**53",
            )
        need(
            self.frame is None or not isinstance(self.query, OnSubspaces),
            "subsamples are dealt by what records are, and no frame shows them otherwise",
        )
        batch = batch_of(self.query)
        if batch is not None:
            dealt = pass_key(self.plan_digest, batch.first, batch.batches)
            need(
                self.round - batch.first == batch.index and bool((batch.key == dealt).all()),
                f"{spoken(self.round)} cannot ask batch {batch.index} "
                f"of a pass begun in {spoken(batch.first)}",
            )

    @property
    def cost(self) -> Cost:
        """What the ledger is charged: a pass over disjoint batches is paid with its first batch [P9]."""
        batch = batch_of(self.query)
        if batch is not None and batch.index > 0:
            return Cost(micro_rho=0)
        return self.price

    @property
    def price(self) -> Cost:
        """What the answer costs the records that it is about."""
        return Cost(micro_rho=self.micro_rho, atto_delta=self.atto_delta)

    @property
    def digest(self) -> str:
        """SHA-256 over every field; sites persist it and answer no other query for this round.

        Kept: nothing that it is computed from can change, arrays included.
        """
        if not hasattr(self, "_digest"):
            object.__setattr__(self, "_digest", digest("query", *_hashed(self)))
        return self._digest

    def says(self, other: RoundQuery) -> bool:
        """Whether `other` would be hashed from the same bytes, so that either's digest stands for both."""
        (mine, values), (theirs, others) = _hashed(self), _hashed(other)
        return canonical(mine) == canonical(theirs) and all(map(np.array_equal, values, others))


def _hashed(asked: RoundQuery) -> tuple[dict[str, Any], list[IntArray]]:
    """Every field: a header, which has the shapes, and the arrays; those of a frame, which a header only
    mentions if there is one, come last."""
    arrays = [one for one in flatten(asked.query).values() if isinstance(one, np.ndarray)]
    header: dict[str, Any] = {
        "plan": asked.plan_digest,
        "round": asked.round,
        "micro_rho": asked.micro_rho,
        "atto_delta": str(asked.atto_delta),  # canonical JSON has no integers beyond 2**53
        "law": asked.law.value,
        "kind": NAMES[type(asked.query)],
        "scalars": _scalars(asked.query),
        "shapes": [list(array.shape) for array in arrays],
    }
    if asked.frame is None:
        return header, arrays
    return header | {"frame": asked.frame.columns}, [*arrays, *asked.frame.arrays]


def _scalars(value: Any) -> dict[str, Any]:
    """Every field of a query that is no array, by name."""
    held = {f.name: getattr(value, f.name) for f in fields(value)}
    plain = {name: one for name, one in held.items() if not isinstance(one, np.ndarray)}
    return {name: _scalars(one) if is_dataclass(one) else one for name, one in plain.items()}


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Every number and array of a query, by its dotted name, such as `spec.centre`."""
    out: dict[str, Any] = {}
    for name in (f.name for f in fields(value)):
        held = getattr(value, name)
        out |= flatten(held, f"{prefix}{name}.") if is_dataclass(held) else {prefix + name: held}
    return out


def check_no_overflow(query: Contract, records: int) -> None:
    """Refuse a question whose exact integer sum over `records` records could leave int64.

    Raises:
        RequestError: code `plan-overflow`.
    """
    total = query.bound * records
    need(
        total < SUM_LIMIT,
        f"the {NAMES[type(query)]} sums of up to {records} records could reach {total:.3g}, "
        f"beyond the exact range {SUM_LIMIT:.3g}; lower max_records",
    )
