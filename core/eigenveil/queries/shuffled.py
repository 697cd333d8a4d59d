"""One record at a time, in a secret order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from eigenveil.numerics.encoding import IntArray
from eigenveil.queries.batch import Batch
from eigenveil.queries.contract import Kind
from eigenveil.queries.describe import numbered
from eigenveil.queries.gradients import GradientSpec, least_gradient_radius
from eigenveil.queries.limits import GRADIENT_LIMIT, check_floor, check_whole, need
from eigenveil.queries.possible import falling_sum, is_short, most


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShuffledRecord:
    """The clipped gradient (see `Gradient`) of the record at place `batch.index` of `batch.batches`, or 0.

    The order is a secret of the site. What the site sends is about one record, not a sum: the coordinator
    is trusted with it and adds the noise of one local randomiser.

    Shape: answer and release (d k,), the d-by-k matrix row by row.
    """

    kind: ClassVar[Kind] = "slot"
    meaning: ClassVar[str] = (
        "one single record's pull on the current directions, shortened to a public radius: the coordinator "
        "sees it without noise, but not which record it is"
    )
    spec: GradientSpec
    radius: int
    batch: Batch

    imagined = falling_sum
    describe = numbered

    def __post_init__(self) -> None:
        need(isinstance(self.batch, Batch), "a record in a secret order is one of a pass")
        check_whole("gradient radius", self.radius, 1, GRADIENT_LIMIT)

    @property
    def length(self) -> int:
        return self.spec.directions.size

    @property
    def released(self) -> int:
        return self.length

    def diameter_squared(self) -> int:
        """Sensitivity: two gradients in a ball of radius R are at most 2 R apart."""
        return 4 * self.radius**2

    @property
    def bound(self) -> int:
        return self.radius

    def possible(self, values: IntArray, records: range) -> bool:
        return is_short(values, min(most(records), 1) * self.radius)

    def check_honest(self) -> None:
        check_floor(self.radius, least_gradient_radius(self.spec.offset))
