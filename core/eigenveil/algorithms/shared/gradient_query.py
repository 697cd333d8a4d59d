"""Gradient questions in integers: choosing scales for real directions, and reading the answers back."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from eigenveil.algorithms.shared.clip_radius import Grid
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.queries import Gradient, GradientNorms, GradientSpec
from eigenveil.queries.gradients import least_gradient_radius
from eigenveil.queries.limits import DIRECTION_LIMIT, GRADIENT_LIMIT, OFFSET_STEPS
from eigenveil.study.grid import S


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slope:
    """The gradient x (x . W) of rows about a public centre, measured from C, in analysis units.

    Shape: centre (d,) integers, directions W (d, m), offset C (d, m).
    """

    centre: IntArray
    directions: FloatArray
    offset: FloatArray

    @property
    def reach(self) -> float:
        return max(float(np.linalg.norm(self.directions, axis=0).max()), 1e-300)

    @property
    def fine(self) -> float:
        """How many integers a direction of norm 1 is."""
        # Half the limit a column norm: edges of the norm histogram then stay below 2**62 for d < 2**17.
        return DIRECTION_LIMIT / 2 / self.reach

    def norms(self, grid: Grid) -> GradientNorms:
        """The question how long the gradients are."""
        spec = (
            self._spec(0, np.zeros(self.offset.shape))
            if not self.offset.any()
            else self._with_offset(grid.top)
        )
        return GradientNorms(spec=spec, edges=grid.edges(S**2 * self.fine))

    def query(self, radius: float) -> tuple[Gradient, float]:
        """The question for the sum of gradients clipped to `radius`, and how many integers a norm of 1 is."""
        spec = self._with_offset(radius)
        unit = self._unit(spec.shift)
        clip = min(max(math.floor(radius * unit), least_gradient_radius(spec.offset)), GRADIENT_LIMIT)
        return Gradient(spec=spec, radius=clip), unit

    def exact_offset(self, spec: GradientSpec) -> FloatArray:
        """C as the sites subtract it, after rounding. Shape: (d, m)."""
        return spec.offset.astype(np.float64) * (OFFSET_STEPS / self._unit(spec.shift))

    def _with_offset(self, radius: float) -> GradientSpec:
        longest = max(radius, 1.01 * float(np.linalg.norm(self.offset)), 1e-300)
        shift = max(0, math.ceil(math.log2(S**2 * self.fine * longest / GRADIENT_LIMIT)))
        return self._spec(shift, self.offset)

    def _spec(self, shift: int, offset: FloatArray) -> GradientSpec:
        return GradientSpec(
            centre=self.centre,
            directions=frozen(np.rint(self.directions * self.fine).astype(np.int64)),
            # Towards zero, so that rounding cannot carry the offset over its limit.
            offset=frozen(np.trunc(offset * (self._unit(shift) / OFFSET_STEPS)).astype(np.int64)),
            shift=shift,
        )

    def _unit(self, shift: int) -> float:
        return S**2 * self.fine / 2.0**shift
