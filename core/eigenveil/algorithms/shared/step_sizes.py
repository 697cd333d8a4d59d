"""Step lengths for Oja's rule, and the choice among several schedules.

[DPPCA] steps by h / (gap (offset + t)) and searches (h, offset) by the angle to the true component; neither
the gap nor that angle is known here. So a schedule is stated relative to the released strength of a
direction, w . g, and candidates are scored by a private Rayleigh quotient: the variance along what they
found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eigenveil.numerics.encoding import FloatArray

FLOOR = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Step t (from 0) is gain / (strength (offset + t)): h kappa for a gap of strength / kappa."""

    gain: float
    offset: float

    def step(self, t: int, strength: float) -> float:
        return self.gain / (max(strength, FLOOR) * (self.offset + t))


# From a gap as wide as the variance itself to one of an eighth of it.
CANDIDATES = (
    Rates(gain=8.0, offset=1.0),
    Rates(gain=3.0, offset=1.0),
    Rates(gain=24.0, offset=1.0),
)


def spectrum_rates(values: FloatArray, k: int, longest: float) -> Rates:
    """The schedule of the paper for a known spectrum: h / (gap (offset + t)), with h = 2.

    `longest` bounds ||x||^2: the first step is then at most 1 / longest. In units of strength = 1.

    Shape: values (d,), falling.
    """
    below = float(values[k]) if k < len(values) else 0.0
    gap = max(float(values[k - 1]) - below, 1e-3 * float(values[0]), FLOOR)
    return Rates(gain=2 / gap, offset=max(2 * longest / gap, 1.0))


class Strength:
    """A running mean of w . g for each direction, from releases: it costs nothing.

    Shape: (m,).
    """

    def __init__(self, m: int) -> None:
        self._sum, self._seen = np.zeros(m), 0

    def after(self, directions: FloatArray, gradient: FloatArray) -> FloatArray:
        """The mean with one more gradient. Shape: directions, gradient (d, m) -> (m,)."""
        self._sum += (directions * gradient).sum(axis=0)
        self._seen += 1
        return np.asarray(self._sum / self._seen)


def best(quotients: FloatArray, k: int) -> int:
    """Which group of k consecutive directions has the largest noised Rayleigh quotients in all.

    Shape: quotients (candidates k,).
    """
    return int(np.argmax(quotients.reshape(-1, k).sum(axis=1)))
