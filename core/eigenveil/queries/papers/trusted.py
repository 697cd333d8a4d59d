"""Queries that need an exact sum at a trusted coordinator; secure aggregation cannot serve them. Sites send
the answer of `Gram` or `RowNorms`. eigenveil.mechanisms releases a statistic of the exact sum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.numerics.linalg import SLACK, eigenpairs, symmetric
from eigenveil.queries.contract import GramAnswer, QueryKind, decreasing_values, mark
from eigenveil.queries.limits import MOST_RECORDS, check_whole, freeze, on_norm_grid, require
from eigenveil.queries.rows import RowBins

VECTOR_BITS = 24
VECTOR: int = 2**VECTOR_BITS  # a unit vector is released in steps of 1 / VECTOR
GAUSSIAN, CAUCHY, PROPOSE_TEST_RELEASE = "smooth-gaussian", "smooth-cauchy", "propose-test-release"
ENTRY_BITS = 40
ENTRY_STEPS: int = 2**ENTRY_BITS  # a subspace is released in steps of 1 / ENTRY_STEPS, far below any noise
GAP_STEPS = 64  # a released bound of the gap is in steps of 1 / GAP_STEPS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrustedGram(GramAnswer):
    """`GramAnswer` of at most `records` records, a limit that bounds the float error of the eigenpairs."""

    records: int

    def __post_init__(self) -> None:
        GramAnswer.__post_init__(self)
        check_whole("records", self.records, 1, MOST_RECORDS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spectrum(TrustedGram):
    """All eigenvalues of the matrix, falling, with noise. Shape: release (d,) in the units of the matrix."""

    kind: ClassVar[QueryKind] = "spectrum"
    label: ClassVar[str] = "products of the columns: only noised variances are released"
    lay_meaning: ClassVar[str] = mark(
        "for every two measurements, and each with itself, their product added up over all patients, of "
        "which only how strong each direction is is ever published, with noise"
    )
    meaning: ClassVar[str] = "the sum of products of column pairs; only its noised eigenvalues are released"

    @property
    def released_length(self) -> int:
        return self.centre.size

    def assumed_release(self, records: int) -> IntArray:
        return decreasing_values(records * self.bound // (4 * self.released_length), self.released_length)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Eigenvectors(TrustedGram):
    """`count` orthogonal random directions, by the exponential mechanism on the same matrix.
    Shape: release (count d,), vector after vector, in steps of 1 / VECTOR."""

    kind: ClassVar[QueryKind] = "eigenvectors"
    label: ClassVar[str] = "products of the columns: only random directions are released"
    lay_meaning: ClassVar[str] = mark(
        "for every two measurements, and each with itself, their product added up over all patients, of "
        "which only directions are ever published, with noise"
    )
    meaning: ClassVar[str] = (
        "the sum of products of column pairs; only random directions near its eigenvectors are released"
    )
    count: int

    def __post_init__(self) -> None:
        TrustedGram.__post_init__(self)
        check_whole("number of vectors", self.count, 1, self.centre.size)

    @property
    def released_length(self) -> int:
        return self.count * self.centre.size

    def assumed_release(self, records: int) -> IntArray:
        return frozen(VECTOR * np.eye(self.count, self.centre.size, dtype=np.int64).reshape(-1))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subspace(TrustedGram):
    """Leading `count` eigenvectors of the same matrix, with noise scaled to their sensitivity. `mechanism`
    scales the noise by the smooth sensitivity (`smooth-gaussian`, `smooth-cauchy`), or by a tested lower
    bound of the eigengap (`propose-test-release`).
    Shape: release (d count + 1,): a d-by-count matrix row by row in steps of 1 / ENTRY_STEPS, rotated at
    random within its span, then the bound of the gap in steps of 1 / GAP_STEPS (0 unless tested; all zeros if
    the test fails)."""

    kind: ClassVar[QueryKind] = "subspace"
    label: ClassVar[str] = "products of the columns: only noised directions are released"
    lay_meaning: ClassVar[str] = mark(
        "for every two measurements, and each with itself, their product added up over all patients, of "
        "which only directions taken together are ever published, with noise"
    )
    meaning: ClassVar[str] = "the sum of products of column pairs; only noised directions are released"
    count: int
    mechanism: str

    def __post_init__(self) -> None:
        TrustedGram.__post_init__(self)
        check_whole("number of vectors", self.count, 1, self.centre.size)
        require(
            self.mechanism in (GAUSSIAN, CAUCHY, PROPOSE_TEST_RELEASE),
            f"mechanism {self.mechanism!r} is unknown",
        )

    @property
    def released_length(self) -> int:
        return self.centre.size * self.count + 1

    def assumed_release(self, records: int) -> IntArray:
        leading = ENTRY_STEPS * np.eye(self.centre.size, self.count, dtype=np.int64)
        return frozen(np.append(leading.reshape(-1), 1))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RadiusSearch(RowBins):
    """First edge with few enough records beyond: #{||z|| >= edges[j]} <= limits[j], both noised. Edges are
    tested from the smallest on.
    Shape: centre (d,), limits (b,) in records; release (1,): the index j, or b if no edge passes."""

    kind: ClassVar[QueryKind] = "radius_search"
    label: ClassVar[str] = "distances from the centre: only one radius is released"
    lay_meaning: ClassVar[str] = mark(
        "how many patients lie how far from the middle, of which one distance is published"
    )
    meaning: ClassVar[str] = (
        "a histogram of the records' distances from the public centre; only one radius is released"
    )
    released_length: ClassVar[int] = 1
    centre: IntArray
    edges: IntArray
    limits: IntArray

    def __post_init__(self) -> None:
        RowBins.__post_init__(self)
        freeze(self, "limits")
        require(self.limits.shape == self.edges.shape, "each edge needs a limit")
        inside = bool(((self.limits >= 0) & (self.limits <= MOST_RECORDS)).all())
        require(inside, f"limits must be numbers of records from 0 to {MOST_RECORDS}")

    def check_honest(self) -> None:
        require(on_norm_grid(self.edges), "the edges of a radius search must be those of the public grid")

    def assumed_release(self, records: int) -> IntArray:
        return frozen([self.edges.size // 2])


@dataclass(frozen=True, slots=True, kw_only=True)
class EigenspaceSensitivity:
    """Sensitivity bounds for the shape of a query. Sensitivity of the leading subspace of a Gram matrix, from
    its eigengap [P19]. Source: Gonen & Gilad-Bachrach 2018, with the distance taken after the best right
    rotation, k columns of d entries each, and neighbours by adding or removing a record. `step` is the
    sensitivity of the gap, `cap` the largest possible distance, `float_slack` the effect of floats and the
    grid on any distance."""

    step: int
    cap: float
    float_slack: float

    @classmethod
    def of(cls, query: Subspace, neighbours: Neighbours, unit: float) -> EigenspaceSensitivity:
        """Return the bounds of a query with person weight `unit` (see `person_weight`)."""
        d, k = query.centre.size, query.count
        noise = float_error(query) / unit
        # Computed eigenvectors are exact for a matrix that close, at a gap of 1.5 or more. Each entry is
        # rounded to the grid, and the random rotation is inexact. All of this on both sides.
        slack = 4 * math.sqrt(2 * k) * noise + 2 * math.sqrt(d * k) / ENTRY_STEPS + 2 * rotation_error(k)
        return cls(step=neighbours.records, cap=math.sqrt(2 * min(k, d - k)), float_slack=slack)

    def local(self, gap: float) -> float:
        """Return the local sensitivity of a subspace at `gap`, in units of a person's weight. Added to a gap
        G, a record turns it by at most 1 / (2 (G - 1)) (the tan 2 Theta theorem; its block off the diagonal
        is at most 1 / 2); removed, it was added to a gap of at least G - 1. A replacement does both."""
        if self.cap == 0:
            return 0.0
        if gap - self.step - 1 <= 0.5:
            return self.cap
        sines = [subspace_distance(1 / (2 * (gap - 1 - i))) for i in range(1, self.step + 1)]
        return min(self.cap, sum(sines))

    def smooth(self, gap: float, beta: float) -> float:
        """Return max over j of exp(-beta j) local(gap - step j): no neighbour changes it by more than e^beta.
        log local is convex up to its cap, so the maximum is at an end of that interval or at the cap."""
        last = max(0, math.ceil((gap - self.step - 1.5) / self.step) - 1)
        terms = [(0, self.local(gap)), (last, self.local(gap - self.step * last)), (last + 1, self.cap)]
        if self.local(gap) >= self.cap:
            return self.cap
        return max(math.exp(-beta * j) * value for j, value in terms)


def subspace_distance(sine: float) -> float:
    """Return min over right rotations Q of ||V - V' Q||_F for a Frobenius sine: largest for one angle."""
    return sine * math.sqrt(2 / (1 + math.sqrt(max(0.0, 1 - sine * sine))))


def rotation_error(k: int) -> float:
    """Return the Frobenius error bound of a random rotation of k columns: k directions, each within 2^-43
    (eigenveil.noise.distributions)."""
    return k * k * 2.0**-41


def float_error(query: Subspace) -> float:
    """Return the error bound of computed eigenvalues of the Gram matrix, in its integers."""
    return query.centre.size * SLACK * query.records * float(query.radius) ** 2


def person_weight(query: Subspace, multiplicity: int) -> float:
    """Return the most that one person adds to the matrix in spectral norm, plus the float error of a gap."""
    return multiplicity * float(query.radius) ** 2 + 4 * float_error(query)


def leading_subspace_and_gap(query: Subspace, total: IntArray, unit: float) -> tuple[FloatArray, float]:
    """Return the leading eigenvectors (d, count) and the gap after them in persons; 0 where count = d."""
    values, vectors = eigenpairs(symmetric(total, query.centre.size))
    k = query.count
    gap = float(values[k - 1] - values[k]) / unit if k < len(values) else 0.0
    return np.ascontiguousarray(vectors[:, :k]), gap
