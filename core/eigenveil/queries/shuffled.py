"""One record at a time, in a secret order."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil.numerics.encoding import IntArray
from eigenveil.queries.batch import Batch
from eigenveil.queries.gradients import GradientSpec
from eigenveil.queries.limits import GRADIENT_LIMIT, check_whole, need
from eigenveil.queries.possible import is_short, most


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShuffledRecord:
    """The clipped gradient (see `Gradient`) of the record in slot `part.index` of `part.batches`; 0 if none is.

    The order is a secret of the site. What the site sends is about one record, not a sum: the coordinator
    is trusted with it and adds the noise of one local randomiser.

    Shape: answer and release (d k,), the d-by-k matrix row by row.
    """

    spec: GradientSpec
    radius: int
    batch: Batch

    def __post_init__(self) -> None:
        need(isinstance(self.batch, Batch), "a slot is one of a pass")
        check_whole("gradient radius", self.radius, 1, GRADIENT_LIMIT)

    @property
    def length(self) -> int:
        """d k."""
        return self.spec.directions.size

    @property
    def released(self) -> int:
        """d k."""
        return self.length

    def diameter_squared(self) -> int:
        """Sensitivity: two gradients in a ball of radius R are at most 2 R apart."""
        return 4 * self.radius**2

    def bound(self) -> int:
        """Largest magnitude one record adds to an entry."""
        return self.radius

    def possible(self, values: IntArray, records: range) -> bool:
        """Whether an honest site could answer this about one record."""
        return is_short(values, min(most(records), 1) * self.radius)
