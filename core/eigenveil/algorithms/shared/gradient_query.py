"""Gradient questions in integers: choosing scales for real directions, and reading the answers back."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from eigenveil.algorithms.shared.bounds import least_gradient_radius
from eigenveil.algorithms.shared.clip_radius import Grid
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.queries import Gradient, GradientNorms, GradientSpec
from eigenveil.queries.limits import DIRECTION_LIMIT, GRADIENT_LIMIT, PULL
from eigenveil.study.grid import S


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slope:
    """The gradient x (x . W) of rows about a public centre, measured from C, in analysis units.

    Shape: centre (d,) integers, directions W (d, m), pull C (d, m).
    """

    centre: IntArray
    directions: FloatArray
    pull: FloatArray

    @property
    def reach(self) -> float:
        """The norm of the longest direction."""
        return max(float(np.linalg.norm(self.directions, axis=0).max()), 1e-300)

    @property
    def fine(self) -> float:
        """How many integers a direction of norm 1 is."""
        # Half the limit a column norm: edges of the norm histogram then stay below 2**62 for d <= 4096.
        return DIRECTION_LIMIT / 2 / self.reach

    def norms(self, grid: Grid) -> GradientNorms:
        """The question how long the gradients are."""
        field = self._field(0, np.zeros(self.pull.shape)) if not self.pull.any() else self._pulled(grid.top)
        return GradientNorms(field=field, edges=grid.edges(S**2 * self.fine))

    def query(self, radius: float) -> tuple[Gradient, float]:
        """The question for the sum of gradients clipped to `radius`, and how many integers a norm of 1 is."""
        field = self._pulled(radius)
        unit = self._unit(field.shift)
        clip = min(max(math.floor(radius * unit), least_gradient_radius(field.pull)), GRADIENT_LIMIT)
        return Gradient(field=field, radius=clip), unit

    def exact_pull(self, field: GradientSpec) -> FloatArray:
        """C as the sites subtract it, after rounding. Shape: (d, m)."""
        return field.pull.astype(np.float64) * (PULL / self._unit(field.shift))

    def _pulled(self, radius: float) -> GradientSpec:
        longest = max(radius, 1.01 * float(np.linalg.norm(self.pull)), 1e-300)
        shift = max(0, math.ceil(math.log2(S**2 * self.fine * longest / GRADIENT_LIMIT)))
        return self._field(shift, self.pull)

    def _field(self, shift: int, pull: FloatArray) -> GradientSpec:
        return GradientSpec(
            centre=self.centre,
            directions=frozen(np.rint(self.directions * self.fine).astype(np.int64)),
            # Towards zero, so that rounding cannot carry the pull over its limit.
            pull=frozen(np.trunc(pull * (self._unit(shift) / PULL)).astype(np.int64)),
            shift=shift,
        )

    def _unit(self, shift: int) -> float:
        return S**2 * self.fine / 2.0**shift
