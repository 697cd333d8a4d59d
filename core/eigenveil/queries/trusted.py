"""Questions answered from the exact Gram matrix, which only a trusted coordinator may hold.

Sites send the sum of products as for `Gram`; what is done to it behind the barrier is in
eigenveil.trusted. No secure aggregation can serve them.
"""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil.numerics.encoding import IntArray
from eigenveil.queries.limits import check_centre, check_radius, check_whole, freeze
from eigenveil.queries.possible import is_gram

VECTOR_BITS = 24
VECTOR: int = 2**VECTOR_BITS  # a unit vector is released in steps of 1 / VECTOR


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spectrum:
    """All eigenvalues of the sum of z z^T over rows shortened to ||z|| <= R, falling, with noise.

    Shape: centre (d,); answer (d (d + 1) / 2,) as `Gram`; release (d,) in the units of the Gram matrix.
    `records` bounds how many records the sum can hold; the float error of the eigenvalues rests on it.
    """

    centre: IntArray
    radius: int
    records: int

    def __post_init__(self) -> None:
        freeze(self, "centre")
        check_centre(self.centre)
        check_radius(self.radius, self.centre)
        check_whole("records", self.records, 1, 2**41)

    @property
    def length(self) -> int:
        """Entries of the upper triangle with diagonal."""
        return self.centre.size * (self.centre.size + 1) // 2

    @property
    def released(self) -> int:
        """d."""
        return self.centre.size

    def bound(self) -> int:
        """Largest magnitude one record adds to an entry."""
        return int(self.radius**2)

    def possible(self, values: IntArray, records: range) -> bool:
        """Whether an honest site could answer this."""
        return is_gram(values, self.centre.size, self.radius, records)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Eigenvectors:
    """`count` random directions, each likely to be long in the same sum of z z^T, at right angles.

    Shape: centre (d,); answer (d (d + 1) / 2,) as `Gram`; release (count d,), vector after vector, in steps
    of 1 / VECTOR. `records` bounds how many records the sum can hold; the float error rests on it.
    """

    centre: IntArray
    radius: int
    records: int
    count: int

    def __post_init__(self) -> None:
        freeze(self, "centre")
        check_centre(self.centre)
        check_radius(self.radius, self.centre)
        check_whole("records", self.records, 1, 2**41)
        check_whole("number of vectors", self.count, 1, self.centre.size)

    @property
    def length(self) -> int:
        """Entries of the upper triangle with diagonal."""
        return self.centre.size * (self.centre.size + 1) // 2

    @property
    def released(self) -> int:
        """count d."""
        return self.count * self.centre.size

    def bound(self) -> int:
        """Largest magnitude one record adds to an entry."""
        return int(self.radius**2)

    def possible(self, values: IntArray, records: range) -> bool:
        """Whether an honest site could answer this."""
        return is_gram(values, self.centre.size, self.radius, records)
