"""Gradient queries in integers: scales for real directions, and decoding of the releases.

Cross covariance queries in integers: public weights and scales, and decoding of the releases."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from eigenveil.algorithms.shared.clip_radius import NormGrid
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.protocol.rounds import Release
from eigenveil.queries import CrossCovariance, CrossNorms, CrossSpec, Gradient, GradientNorms, GradientSpec
from eigenveil.queries.cross_covariance import least_cross_radius, most_fraction_bits
from eigenveil.queries.gradients import least_gradient_radius
from eigenveil.queries.limits import DIRECTION_LIMIT, EDGE_LIMIT, GRADIENT_LIMIT, OFFSET_STEPS, WEIGHT
from eigenveil.study.grid import S


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradientQueryBuilder:
    """Builder of queries for the gradient x (x . W) of rows about a public centre, minus C. In analysis
    units. Shape: centre (d,) integers, directions W (d, m), offset C (d, m)."""

    centre: IntArray
    directions: FloatArray
    offset: FloatArray

    @property
    def largest_norm(self) -> float:
        return max(float(np.linalg.norm(self.directions, axis=0).max()), 1e-300)

    @property
    def integer_scale(self) -> float:
        """Return the integers per direction of norm 1."""
        # Half the limit for a column norm: edges of the norm histogram then stay below 2**62 for d < 2**17.
        return DIRECTION_LIMIT / 2 / self.largest_norm

    def norms(self, grid: NormGrid) -> GradientNorms:
        """Return the query for the norms of the gradients."""
        none = not self.offset.any()
        spec = self._spec(0, self.offset) if none else self._with_offset(grid.top)
        return GradientNorms(spec=spec, edges=grid.edges(S**2 * self.integer_scale))

    def query(self, radius: float) -> tuple[Gradient, float]:
        """Return the query for the sum of gradients clipped to `radius`, and the integers per norm of 1."""
        spec = self._with_offset(radius)
        unit = self._unit(spec.shift)
        clip = min(max(math.floor(radius * unit), least_gradient_radius(spec.offset)), GRADIENT_LIMIT)
        return Gradient(spec=spec, radius=clip), unit

    def exact_offset(self, spec: GradientSpec) -> FloatArray:
        """Return C as the sites subtract it, after rounding. Shape: (d, m)."""
        return spec.offset.astype(np.float64) * (OFFSET_STEPS / self._unit(spec.shift))

    def _with_offset(self, radius: float) -> GradientSpec:
        longest = max(radius, 1.01 * float(np.linalg.norm(self.offset)), 1e-300)
        shift = max(0, math.ceil(math.log2(S**2 * self.integer_scale * longest / GRADIENT_LIMIT)))
        return self._spec(shift, self.offset)

    def _spec(self, shift: int, offset: FloatArray) -> GradientSpec:
        return GradientSpec(
            centre=self.centre,
            directions=frozen(np.rint(self.directions * self.integer_scale).astype(np.int64)),
            # Towards zero, so that rounding cannot exceed the limit of the offset.
            offset=frozen(np.trunc(offset * (self._unit(shift) / OFFSET_STEPS)).astype(np.int64)),
            shift=shift,
        )

    def _unit(self, shift: int) -> float:
        return S**2 * self.integer_scale / 2.0**shift


UNIT: int = DIRECTION_LIMIT * WEIGHT * S**2  # integers of a leading part of 1 times a rest of 1
LEAST = WEIGHT // 32  # least weight, so that no direction vanishes
# Units of a rest a column up to which fraction bits make it finer. More are of no use, and leave fewer bits
# to the leading part, whose truncation is a bias: with 9 bits for it, three components of Diabetes-130 at
# epsilon 4 had 7 times the error (.023 for .003).
FINE_UNITS = 512
ITERATIONS = 30  # iterations of the two sets of weights, each optimal for the other; far more than needed


def weights(
    variances: FloatArray, k: int, level: float, count: int, gap_noise: float
) -> tuple[IntArray, IntArray]:
    """Return the weights of the leading and the spare directions, optimal for all entries under one radius.

    A leading direction i of variance l_i is divided by s_i, another of variance m_j by t_j, and the `count`
    others outside by one t at variance `level`. The noise of entry (i, j) is s_i t_j times a radius of
    order sqrt(sum l_i / s_i^2 sum m_j / t_j^2), and rotates component i by 1 / (l_i - m_j) of it. Each set is
    the minimum for the other (Cauchy-Schwarz). Gaps below `gap_noise` count as `gap_noise`. Weights are in
    units of 1 / WEIGHT, the weight of the directions outside.

    Shape: variances (k + q,), the leading ones first -> (k,), (q,)."""
    lead = variances[:k]
    others, times = np.append(variances[k:], level), np.append(np.ones(variances.size - k), float(count))
    turned = 1 / np.maximum(lead[:, None] - others, gap_noise) ** 2
    s2, t2 = np.ones(k), np.ones(others.size)
    for _ in range(ITERATIONS):
        s2 = np.sqrt(lead / (turned @ (t2 * times)))
        t2 = np.sqrt(others / (s2 @ turned))
    return _whole(np.sqrt(s2.min() / s2)), _whole(np.sqrt(t2[-1] / t2[:-1]))


def _whole(weights: FloatArray) -> IntArray:
    """Return weights in integers, at most 1: no direction weighs more than those outside."""
    return frozen(np.clip(np.rint(weights * WEIGHT), LEAST, WEIGHT).astype(np.int64))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CrossQueryBuilder:
    """Builder of queries for the cross covariance of k leading directions and the rest.

    `fraction_bits` are those of the rests (`CrossSpec`).
    Shape: centre (d,) integers, basis (d, k + q) orthonormal, the leading directions first; leading (k,) and
    spare (q,), the `weights` of those directions."""

    centre: IntArray
    basis: FloatArray
    leading: IntArray
    spare: IntArray
    fraction_bits: int = 0

    @property
    def k(self) -> int:
        return self.leading.size

    def norms(self, grid: NormGrid) -> CrossNorms:
        """Return the query for the norms of the records' parts. Edges stay below half of their limit."""
        spec = self._spec(grid.top, EDGE_LIMIT / 2)
        return CrossNorms(spec=spec, edges=grid.edges(part_unit(spec)))

    def query(self, radius: float) -> tuple[CrossCovariance, float]:
        """Return the query for the sum clipped to `radius`, and the integers per part of norm 1."""
        spec = self._spec(radius, GRADIENT_LIMIT)
        unit = part_unit(spec)
        least = least_cross_radius(self.centre.size, self.k, self.fraction_bits)
        clip = min(max(math.floor(radius * unit), least), GRADIENT_LIMIT)
        return CrossCovariance(spec=spec, radius=clip), unit

    def _spec(self, length: float, limit: float) -> CrossSpec:
        """Return the decomposition with the least shift that brings a norm below a limit."""
        unshifted = max(length, 1e-300) * UNIT * 2.0**self.fraction_bits
        return CrossSpec(
            centre=self.centre,
            directions=frozen(np.rint(self.basis * DIRECTION_LIMIT).astype(np.int64)),
            scales=self.leading,
            retained=self.spare,
            shift=max(0, math.ceil(math.log2(unshifted / limit))),
            fraction_bits=self.fraction_bits,
        )

    def about(self, basis: FloatArray) -> CrossQueryBuilder:
        """Return the builder for other directions. Shape: (d, k + q)."""
        return replace(self, basis=basis)

    def read(self, release: Release, unit: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return a release without its weights: entries along the spare directions (k, q) and outside (d, k).

        The third result is the sd of an entry, (k, q + 1), with the last column for those outside. `unit` is
        the integers per cross covariance of 1."""
        inside = self.leading / WEIGHT
        part = release.values.reshape(self.centre.size, self.k) / unit / inside
        spare = self.spare / WEIGHT
        along = (self.basis[:, self.k :].T @ part).T / spare
        outside = part - self.basis @ (self.basis.T @ part)
        return along, outside, release.sigma / unit / inside[:, None] / np.append(spare, 1.0)


def part_unit(spec: CrossSpec) -> float:
    """Return the integers per record's part of norm 1."""
    return UNIT * 2.0 ** (spec.fraction_bits - spec.shift)


def fraction_bits(rest: float, d: int, k: int) -> int:
    """Return the fraction bits for records with a rest of typical norm `rest`: as many as leave it at most
    FINE_UNITS units a column."""
    steps = max(rest * S / math.sqrt(d), 1e-3)
    return min(max(math.floor(math.log2(FINE_UNITS / steps)), 0), most_fraction_bits(d, k))
