"""The question for the leading subspace itself, noised by how far one person can turn it."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil.numerics.encoding import IntArray
from eigenveil.queries.limits import check_centre, check_radius, check_whole, freeze, need
from eigenveil.queries.possible import is_gram

GAUSSIAN, CAUCHY, TESTED = "smooth-gaussian", "smooth-cauchy", "propose-test-release"
FRAME_BITS = 40
FRAME: int = 2**FRAME_BITS  # an entry of the matrix is released in steps of 1 / FRAME, far below any noise
GAP_STEPS = 64  # a released bound of the gap is in steps of 1 / GAP_STEPS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subspace:
    """The leading `count` eigenvectors of the sum of z z^T over rows shortened to ||z|| <= R, with noise.

    `mechanism` scales the noise by the smooth sensitivity (`smooth-gaussian`, `smooth-cauchy`), or by a
    lower bound of the gap that is tested first (`propose-test-release`).

    Shape: centre (d,); answer (d (d + 1) / 2,) as `Gram`; release (d count + 1,): a d-by-count matrix row by
    row in steps of 1 / FRAME, turned at random within its span, then the gap's bound in steps of
    1 / GAP_STEPS (0 unless tested; all zeros if the test fails). `records` bounds how many records the sum
    can hold.
    """

    centre: IntArray
    radius: int
    records: int
    count: int
    mechanism: str

    def __post_init__(self) -> None:
        freeze(self, "centre")
        check_centre(self.centre)
        check_radius(self.radius, self.centre)
        check_whole("records", self.records, 1, 2**41)
        check_whole("number of vectors", self.count, 1, self.centre.size)
        need(self.mechanism in (GAUSSIAN, CAUCHY, TESTED), f"mechanism {self.mechanism!r} is unknown")

    @property
    def length(self) -> int:
        """Entries of the upper triangle with diagonal."""
        return self.centre.size * (self.centre.size + 1) // 2

    @property
    def released(self) -> int:
        """d count + 1."""
        return self.centre.size * self.count + 1

    def bound(self) -> int:
        """Largest magnitude one record adds to an entry."""
        return int(self.radius**2)

    def possible(self, values: IntArray, records: range) -> bool:
        """Whether an honest site could answer this."""
        return is_gram(values, self.centre.size, self.radius, records)
