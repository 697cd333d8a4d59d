"""Queries with their cost, as an algorithm yields them and as they are sent in a round, and their comparison.
Queries are computed in float64 from the plan and the releases, then rounded to integers. Two builds of BLAS,
or two processors, may round a number on a boundary to either side. Nothing else may differ."""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np

from eigenveil.accounting.zcdp import ATTO, Cost
from eigenveil.errors import Code, RequestError, round_label
from eigenveil.numerics.encoding import EXACT, IntArray, canonical, digest_of, field_names, to_memoryview
from eigenveil.queries import NAMES, Query, SubspaceQuery, batch_of
from eigenveil.queries.columns import Frame, same_frame
from eigenveil.queries.contract import QueryProtocol
from eigenveil.queries.gradients import pass_key
from eigenveil.queries.limits import SUM_LIMIT, require

TOO_LITTLE = "a query's share of the budget is below one micro-rho; raise epsilon"


class NoiseDistribution(Enum):
    """Noise distribution of an additive query, at a cost of rho. `gaussian`: rho-zCDP. `laplace`: pure,
    epsilon = sqrt(2 rho). `stability`: for counts only, a stability histogram; noise on the bins that are not
    empty, small ones suppressed: (epsilon, delta)."""

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"
    STABILITY = "stability"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PricedQuery:
    """Query that an algorithm yields, with its cost in micro-rho (zCDP) and atto-delta. A mechanism with its
    own noise takes epsilon = sqrt(2 rho) from the cost and ignores `distribution`. `frame` is the linear map
    that is applied to the rows first; None is the grid of the study's bounds."""

    query: Query
    micro_rho: int
    atto_delta: int = 0
    distribution: NoiseDistribution = NoiseDistribution.GAUSSIAN
    frame: Frame | None = None

    def __post_init__(self) -> None:
        if self.micro_rho < 1:
            raise RequestError(Code.BAD_STUDY, TOO_LITTLE)

    @property
    def cost(self) -> Cost:
        """Privacy cost of the answer for the records that it is about."""
        return Cost(micro_rho=self.micro_rho, atto_delta=self.atto_delta)


@dataclass(frozen=True, eq=False)
class RoundQuery:
    """Priced query of one round of a study, as it is sent to sites. Raises RequestError: the round is
    negative, the cost is not a whole number from 1 to below 2**53, the batch is not that of this round, or a
    query about subsamples has a frame."""

    priced: PricedQuery
    plan_digest: str
    round: int

    def __post_init__(self) -> None:
        micro_rho, atto_delta = self.priced.micro_rho, self.priced.atto_delta
        whole = all(type(value) is int for value in (self.round, micro_rho, atto_delta))
        if not (whole and self.round >= 0 and 1 <= micro_rho < EXACT and 0 <= atto_delta < ATTO):
            raise RequestError(
                Code.BAD_STUDY,
                f"round = {self.round} with micro_rho = {micro_rho} is invalid: a query has a round "
                "from 0 and a whole cost from 1 to below 2**53",
            )
        require(
            self.priced.frame is None or not isinstance(self.query, SubspaceQuery),
            "a query about subsamples has no frame, because records are assigned by their unscaled values",
        )
        batch = batch_of(self.query)
        if batch is not None:
            expected_key = pass_key(self.plan_digest, batch.first_round, batch.batches)
            require(
                self.round - batch.first_round == batch.index and bool((batch.key == expected_key).all()),
                f"{round_label(self.round)} cannot query batch {batch.index} "
                f"of a pass that began in {round_label(batch.first_round)}",
            )

    @property
    def query(self) -> Query:
        """Query without its cost and its place in the study."""
        return self.priced.query

    @property
    def cost(self) -> Cost:
        """Charge to the ledger; the first batch of a pass pays for all its disjoint batches [P9]."""
        batch = batch_of(self.query)
        if batch is not None and batch.index > 0:
            return Cost(micro_rho=0)
        return self.priced.cost

    @cached_property
    def digest(self) -> str:
        """SHA-256 over all fields; sites persist it and answer no other query for this round. Cached: all
        fields are immutable, arrays included."""
        header, arrays = self._hashed
        return digest_of("query", header, *map(to_memoryview, arrays))

    @cached_property
    def _hashed(self) -> tuple[bytes, list[IntArray]]:
        header, arrays = _hashed_fields(self)
        return canonical(header), arrays

    def is_identical(self, other: RoundQuery) -> bool:
        """Return True if `other` has the same hashed bytes, and so the same digest."""
        (mine, values), (theirs, others) = self._hashed, other._hashed
        return mine == theirs and all(map(np.array_equal, values, others))


def _hashed_fields(round_query: RoundQuery) -> tuple[dict[str, Any], list[IntArray]]:
    """Return the header, which has the shapes, and the arrays. A frame is included only if there is one."""
    priced, values = round_query.priced, flatten(round_query.query)
    arrays = [one for one in values.values() if isinstance(one, np.ndarray)]
    header: dict[str, Any] = {
        "plan": round_query.plan_digest,
        "round": round_query.round,
        "micro_rho": priced.micro_rho,
        "atto_delta": str(priced.atto_delta),  # canonical JSON has no integers beyond 2**53
        "distribution": priced.distribution.value,
        "kind": NAMES[type(priced.query)],
        "scalars": _scalars(priced.query),
        "shapes": [list(array.shape) for array in arrays],
    }
    if priced.frame is None:
        return header, arrays
    return header | {"frame": priced.frame.columns}, [*arrays, *priced.frame.arrays]


# Fields since 1.1, hashed unless they have this value, so that queries of 1.0 keep their digests.
ADDED_FIELDS = {"fraction_bits": 0}


def _scalars(value: Any) -> dict[str, Any]:
    """Return every hashed field of a query that is not an array, by name."""
    field_value = {name: getattr(value, name) for name in field_names(type(value))}
    for name in field_value.keys() & ADDED_FIELDS.keys():
        if field_value[name] == ADDED_FIELDS[name]:
            del field_value[name]
    plain = {name: one for name, one in field_value.items() if not isinstance(one, np.ndarray)}
    return {name: _scalars(one) if is_dataclass(one) else one for name, one in plain.items()}


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return every number and array of a query by its dotted name, such as `spec.centre`."""
    out: dict[str, Any] = {}
    for name in field_names(type(value)):
        content = getattr(value, name)
        out |= flatten(content, f"{prefix}{name}.") if is_dataclass(content) else {prefix + name: content}
    return out


def check_no_overflow(query: QueryProtocol, records: int) -> None:
    """Check that the exact sum of a query over `records` records stays within int64. Raises RequestError:
    code `plan-overflow`."""
    total = query.bound * records
    require(
        total < SUM_LIMIT,
        f"the {NAMES[type(query)]} sums of up to {records} records could reach {total:.3g}, "
        f"beyond the exact range {SUM_LIMIT:.3g}; lower max_records",
    )


# Fields that floats decide: they may differ by one unit. All other fields of one query are equal.
ROUNDED_FIELDS = frozenset(
    {"centre", "directions", "offset", "scales", "retained", "middles", "halves", "radius", "width"}
)
EDGE_FIELD = "edges"  # equal up to the resolution of float64, which exceeds 1 for large edges
FLOAT_TOLERANCE = 2.0**-50  # a few units in the last place of a float64, relative to it


def is_same_query(ours: RoundQuery, theirs: RoundQuery) -> bool:
    """Return True if `theirs` equals `ours` up to one unit of rounded floats. Kind, plan, round, cost, noise
    distribution, frame, shapes and all numbers that floats do not decide must be equal."""
    left, right = flatten(ours.query), flatten(theirs.query)
    same = _header(ours) == _header(theirs) and left.keys() == right.keys()
    same = same and same_frame(ours.priced.frame, theirs.priced.frame)
    return same and all(_near(name, left[name], right[name]) for name in left)


def _header(round_query: RoundQuery) -> tuple[object, ...]:
    return (
        type(round_query.query),
        round_query.plan_digest,
        round_query.round,
        round_query.priced.cost,
        round_query.priced.distribution,
    )


def _near(path: str, ours: object, theirs: object) -> bool:
    name = path.rpartition(".")[2]
    if not isinstance(ours, np.ndarray | int) or isinstance(ours, bool):
        return ours == theirs
    left, right = np.asarray(ours), np.asarray(theirs)
    if left.shape != right.shape:
        return False
    if name in ROUNDED_FIELDS:
        return _within(left, right, 1)
    return _within(left, right, 0) if name == EDGE_FIELD else bool((left == right).all())


def _within(left: IntArray, right: IntArray, units: int) -> bool:
    tolerance = np.maximum(units, np.abs(right.astype(np.float64)) * FLOAT_TOLERANCE)
    return bool((np.abs(left.astype(np.float64) - right.astype(np.float64)) <= tolerance).all())
