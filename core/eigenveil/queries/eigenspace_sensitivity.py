"""How far one person turns the leading subspace of a Gram matrix, from its gap [P19].

Source: Gonen & Gilad-Bachrach 2018, with the distance taken after the best right rotation, k columns of d
entries each, and neighbours by adding or removing a record.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from eigenveil.accounting.neighbours import Neighbours
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.numerics.linalg import SLACK, eigenpairs, symmetric
from eigenveil.queries.trusted import FRAME, Subspace


@dataclass(frozen=True, slots=True, kw_only=True)
class EigenspaceSensitivity:
    """Bounds for one shape of query.

    `step` is how far one person moves the gap, `cap` the largest distance there is, `blur` what floats and
    the grid add to any distance.
    """

    step: int
    cap: float
    blur: float

    @classmethod
    def of(cls, query: Subspace, neighbours: Neighbours, unit: float) -> EigenspaceSensitivity:
        """The bounds of a query whose persons weigh `unit` (see `weight`)."""
        d, k = query.centre.size, query.count
        noise = float_error(query) / unit
        # Computed eigenvectors are exact ones of a matrix that far off, at a gap of 1.5 or more; each entry
        # is rounded to the grid; their random turn is not quite the exact one; all of it on both sides.
        blur = 4 * math.sqrt(2 * k) * noise + 2 * math.sqrt(d * k) / FRAME + 2 * off(k)
        return cls(step=neighbours.records, cap=math.sqrt(2 * min(k, d - k)), blur=blur)

    def local(self, gap: float) -> float:
        """The farthest one person turns a subspace whose gap is `gap`, in units of a person's weight.

        Added to a gap G, a record turns it by at most 1 / (2 (G - 1)) (the tan 2 Theta theorem; its block off
        the diagonal is at most 1 / 2); removed, it was added to a gap of at least G - 1. Replaced: one after
        the other.
        """
        if self.cap == 0:
            return 0.0
        if gap - self.step - 1 <= 0.5:
            return self.cap
        turns = [distance(1 / (2 * (gap - 1 - i))) for i in range(1, self.step + 1)]
        return min(self.cap, sum(turns))

    def smooth(self, gap: float, beta: float) -> float:
        """max over j of exp(-beta j) local(gap - step j), which no neighbour changes by more than e^beta.

        log local is convex up to its cap, so the largest is at an end of that stretch or at the cap.
        """
        last = max(0, math.ceil((gap - self.step - 1.5) / self.step) - 1)
        terms = [(0, self.local(gap)), (last, self.local(gap - self.step * last)), (last + 1, self.cap)]
        if self.local(gap) >= self.cap:
            return self.cap
        return max(math.exp(-beta * j) * value for j, value in terms)


def distance(sine: float) -> float:
    """min over right rotations Q of ||V - V' Q||_F for a Frobenius sine: largest for a single angle."""
    return sine * math.sqrt(2 / (1 + math.sqrt(max(0.0, 1 - sine * sine))))


def off(k: int) -> float:
    """How far, in Frobenius norm, a random turn of k columns may be from its exact law: k directions, each
    within 2^-43 (eigenveil.noise.haar)."""
    return k * k * 2.0**-41


def float_error(query: Subspace) -> float:
    """How far off computed eigenvalues of the Gram matrix can be, in its integers."""
    return query.centre.size * SLACK * query.records * float(query.radius) ** 2


def weight(query: Subspace, multiplicity: int) -> float:
    """The most that one person adds to the matrix in spectral norm, with what floats can add to a gap."""
    return multiplicity * float(query.radius) ** 2 + 4 * float_error(query)


def decompose(query: Subspace, total: IntArray, unit: float) -> tuple[FloatArray, float]:
    """The leading eigenvectors (d, count) and the gap behind them in persons; 0 where count = d."""
    values, vectors = eigenpairs(symmetric(total, query.centre.size))
    k = query.count
    gap = float(values[k - 1] - values[k]) / unit if k < len(values) else 0.0
    return np.ascontiguousarray(vectors[:, :k]), gap
