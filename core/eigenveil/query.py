"""The closed vocabulary of questions a site can be asked, and what each may reveal.

Every question is answered by one fixed-length vector of 64-bit integers, summed over records.
Sensitivity, length and overflow bound are computed here, from the clip the question itself
carries; nothing else in the code states a sensitivity.

Symbols (see core/PRIVACY.md): d columns, k directions, z = integer row minus the public centre,
R = clip radius, S = 2**ROW_BITS (a row entry lies in [-S, S]).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from eigenveil.accounting import Cost
from eigenveil.errors import Code, RequestError
from eigenveil.ints import EXACT, IntArray, digest, frozen
from eigenveil.study import Neighbours

ROW_BITS = 12
S: int = 2**ROW_BITS
WEIGHT_BITS = 10
WEIGHT: int = 2**WEIGHT_BITS  # a record of a clipped sum is multiplied by 0..WEIGHT, then added
PULL_BITS = 12
PULL: int = 2**PULL_BITS  # a record pulls by 0..PULL times the public `pull` matrix
DIRECTION_LIMIT = 2**20
GRADIENT_LIMIT = 2**29  # keeps every exact norm check of a gradient below 2**62
EDGE_LIMIT = 2**62
SUM_LIMIT = 2**62  # sums stay below it; the other half of int64 is room for noise


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise RequestError(Code.OVERFLOW, message)


def _freeze(owner: object, *names: str) -> None:
    for name in names:
        object.__setattr__(owner, name, frozen(getattr(owner, name)))


def row_norm_limit(d: int) -> int:
    """The largest possible norm of a centred integer row, rounded up: 2 S sqrt(d)."""
    return 2 * S * (math.isqrt(d - 1) + 1)


def _within(values: IntArray, limit: int) -> bool:
    """Every |value| <= limit; np.abs would let -2**63 through, which has no absolute value in int64."""
    return bool(((values >= -limit) & (values <= limit)).all())


def _check_centre(centre: IntArray) -> None:
    _need(centre.ndim == 1 and centre.size > 0, "the centre must be a vector with one entry a column")
    _need(_within(centre, S), f"the centre must lie in the row box, [-{S}, {S}]")


def _check_whole(name: str, value: int, least: int, most: int) -> None:
    """A Python integer within limits: a numpy integer would wrap around in `l2_squared`."""
    fits = type(value) is int and least <= value <= most
    _need(fits, f"{name} {value} must lie between {least} and {most}, as a whole number of type int")


def _check_radius(radius: int, centre: IntArray) -> None:
    _check_whole("clip radius", radius, 1, row_norm_limit(centre.size))


def _check_edges(edges: IntArray) -> None:
    _need(edges.ndim == 1 and 1 <= edges.size <= 1024, "a histogram has between 1 and 1024 edges")
    inside = bool(((edges > 0) & (edges < EDGE_LIMIT)).all())
    rising = inside and bool((np.diff(edges) > 0).all())
    _need(rising, "histogram edges must be positive, increasing and below 2**62")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Count:
    """How many records.

    Shape: answer (1,).
    """

    length: int = field(default=1, init=False)

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: one record counts at most one; under replace-one with a rule that drops
        incomplete records, the replaced record may disappear, so 1 there too."""
        return 1

    def bound(self) -> int:
        """Largest magnitude one record adds to an entry."""
        return 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowNorms:
    """Histogram of ||z||: bin i counts edges[i-1] <= ||z|| < edges[i].

    Shape: centre (d,), edges (b,); answer (b + 1,).
    """

    centre: IntArray
    edges: IntArray

    def __post_init__(self) -> None:
        _freeze(self, "centre", "edges")
        _check_centre(self.centre)
        _check_edges(self.edges)
        _need(int(self.edges[-1]) < 2**31, "row norm edges must stay below 2**31")

    @property
    def length(self) -> int:
        """Number of bins."""
        return self.edges.size + 1

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: a record sits in one bin; replacing it moves one count: 1^2 + 1^2."""
        return 1 if neighbours is Neighbours.ADD_REMOVE else 2

    def bound(self) -> int:
        """Largest magnitude one record adds to an entry."""
        return 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClippedSum:
    """Sum of t z, t = floor(WEIGHT min(1, R / ||z||)): rows shortened to at most R.

    Shape: centre (d,); answer (d,), in units of 1 / WEIGHT of the row grid.
    """

    centre: IntArray
    radius: int

    def __post_init__(self) -> None:
        _freeze(self, "centre")
        _check_centre(self.centre)
        _check_radius(self.radius, self.centre)

    @property
    def length(self) -> int:
        """d."""
        return self.centre.size

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: a record adds a vector of norm <= WEIGHT R; two such differ by 2 WEIGHT R."""
        return (WEIGHT * self.radius) ** 2 * (1 if neighbours is Neighbours.ADD_REMOVE else 4)

    def bound(self) -> int:
        """Largest magnitude one record adds to an entry."""
        return WEIGHT * self.radius


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Energy:
    """Sum of min(||z||^2, R^2).

    Shape: centre (d,); answer (1,).
    """

    centre: IntArray
    radius: int
    length: int = field(default=1, init=False)

    def __post_init__(self) -> None:
        _freeze(self, "centre")
        _check_centre(self.centre)
        _check_radius(self.radius, self.centre)

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: a record adds a number in [0, R^2], and two such differ by at most R^2."""
        return int(self.radius**4)

    def bound(self) -> int:
        """Largest magnitude one record adds to an entry."""
        return int(self.radius**2)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gram:
    """Sum of z z^T over rows shortened to ||z|| <= R (entries truncated towards zero).

    Shape: centre (d,); answer (d (d + 1) / 2,): the diagonal, then the strict upper triangle row by row.
    """

    centre: IntArray
    radius: int

    def __post_init__(self) -> None:
        _freeze(self, "centre")
        _check_centre(self.centre)
        _check_radius(self.radius, self.centre)

    @property
    def length(self) -> int:
        """Entries of the upper triangle with diagonal."""
        d = self.centre.size
        return d * (d + 1) // 2

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity in Frobenius norm: ||z z^T||_F = ||z||^2 <= R^2;
        ||x x^T - y y^T||_F^2 = |x|^4 + |y|^4 - 2 (x.y)^2 <= 2 R^4."""
        return self.radius**4 * (1 if neighbours is Neighbours.ADD_REMOVE else 2)

    def bound(self) -> int:
        """Largest magnitude one record adds to an entry."""
        return int(self.radius**2)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Field:
    """The per-record gradient g(z) = z (z . W) / 2**shift, and PULL pull, which is subtracted from it.

    Shape: centre (d,), directions W (d, k), pull (d, k).
    """

    centre: IntArray
    directions: IntArray
    pull: IntArray
    shift: int

    def __post_init__(self) -> None:
        _freeze(self, "centre", "directions", "pull")
        _check_centre(self.centre)
        d = self.centre.size
        _need(
            self.directions.ndim == 2
            and self.directions.shape[0] == d
            and 1 <= self.directions.shape[1] <= d,
            "directions must be a d-by-k matrix with 1 <= k <= d",
        )
        _need(self.pull.shape == self.directions.shape, "pull must have the shape of directions")
        _check_whole("shift", self.shift, 0, 60)
        _need(
            _within(self.directions, DIRECTION_LIMIT),
            f"directions must have entries of at most {DIRECTION_LIMIT}",
        )
        _need(
            sum(int(v) ** 2 for v in self.pull.flat) * PULL**2 <= GRADIENT_LIMIT**2,
            f"the pull must have norm of at most {GRADIENT_LIMIT} / {PULL}",
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradientNorms:
    """Histogram of 2**shift ||g(z) - PULL pull||_F, bins as in `RowNorms`.

    Shape: edges (b,); answer (b + 1,).
    """

    field: Field
    edges: IntArray

    def __post_init__(self) -> None:
        _freeze(self, "edges")
        _check_edges(self.edges)

    @property
    def length(self) -> int:
        """Number of bins."""
        return self.edges.size + 1

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: a record sits in one bin; replacing it moves one count: 1^2 + 1^2."""
        return 1 if neighbours is Neighbours.ADD_REMOVE else 2

    def bound(self) -> int:
        """Largest magnitude one record adds to an entry."""
        return 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gradient:
    """Sum of clip_R(g(z) - PULL pull), each record as z b^T - u pull with integers b, u.

    Shape: answer (d k,), the d-by-k matrix row by row.
    """

    field: Field
    radius: int

    def __post_init__(self) -> None:
        _check_whole("gradient radius", self.radius, 1, GRADIENT_LIMIT)

    @property
    def length(self) -> int:
        """d k."""
        return self.field.directions.size

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: a record adds a matrix of Frobenius norm <= R; two such differ by 2 R."""
        return self.radius**2 * (1 if neighbours is Neighbours.ADD_REMOVE else 4)

    def bound(self) -> int:
        """Largest magnitude one record adds to an entry."""
        return self.radius


Ask = Count | RowNorms | ClippedSum | Energy | Gram | GradientNorms | Gradient

KINDS: dict[str, type[Any]] = {
    "count": Count,
    "row-norms": RowNorms,
    "clipped-sum": ClippedSum,
    "energy": Energy,
    "gram": Gram,
    "gradient-norms": GradientNorms,
    "gradient": Gradient,
}
NAMES = {kind: name for name, kind in KINDS.items()}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Priced:
    """What an algorithm yields: a question and what it may cost, in micro-rho (zCDP)."""

    ask: Ask
    micro_rho: int

    def __post_init__(self) -> None:
        if self.micro_rho < 1:
            raise RequestError(
                Code.BAD_STUDY,
                "a question's share of the budget is below one micro-rho; raise epsilon",
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Query:
    """A priced question at its place in a study: what a site is asked in one round.

    Raises:
        RequestError: the round is negative, or the price is not a whole number from 1 to below 2**53.
    """

    plan_digest: str
    round: int
    ask: Ask
    micro_rho: int

    def __post_init__(self) -> None:
        whole = type(self.round) is int and type(self.micro_rho) is int
        if not (whole and self.round >= 0 and 1 <= self.micro_rho < EXACT):
            raise RequestError(
                Code.BAD_STUDY,
                f"round {self.round} at {self.micro_rho} micro-rho: every question has a round from 0 "
                "and a whole price from one micro-rho to below 2**53",
            )

    @property
    def cost(self) -> Cost:
        """The price of its answer."""
        return Cost(micro_rho=self.micro_rho)

    @property
    def digest(self) -> str:
        """SHA-256 over every field; sites persist it and answer no other query for this round."""
        scalars, arrays = _flatten(self.ask)
        header = {
            "plan": self.plan_digest,
            "round": self.round,
            "micro_rho": self.micro_rho,
            "kind": NAMES[type(self.ask)],
            "scalars": scalars,
            "shapes": [list(array.shape) for array in arrays],
        }
        return digest("query", header, arrays)


def _flatten(value: Any) -> tuple[dict[str, Any], list[IntArray]]:
    scalars: dict[str, Any] = {}
    arrays: list[IntArray] = []
    for name in (f.name for f in fields(value)):
        part = getattr(value, name)
        if isinstance(part, Field):
            inner, more = _flatten(part)
            scalars[name] = inner
            arrays += more
        elif isinstance(part, np.ndarray):
            arrays.append(part)
        else:
            scalars[name] = part
    return scalars, arrays


def check_no_overflow(ask: Ask, records: int) -> None:
    """Refuse a question whose exact integer sum over `records` records could leave int64.

    Raises:
        RequestError: code `plan-overflow`.
    """
    total = ask.bound() * records
    _need(
        total < SUM_LIMIT,
        f"the {NAMES[type(ask)]} sums of up to {records} records could reach {total:.3g}, "
        f"beyond the exact range {SUM_LIMIT:.3g}; lower max_records",
    )
