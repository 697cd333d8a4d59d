"""Cross covariance questions in integers: public weights, scales, and answers read back."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from eigenveil.algorithms.shared.clip_radius import Grid
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.protocol.release import Release
from eigenveil.queries import CrossCovariance, CrossNorms, CrossSpec
from eigenveil.queries.cross_covariance import least_cross_radius
from eigenveil.queries.limits import DIRECTION_LIMIT, EDGE_LIMIT, GRADIENT_LIMIT, WEIGHT
from eigenveil.study.grid import S

UNIT: int = DIRECTION_LIMIT * WEIGHT * S**2  # integers that a leading part of 1 times a rest of 1 is
LEAST = WEIGHT // 32  # of a weight, so that no direction is lost
TURNS = 30  # of the two sets of weights, each chosen for the other; far more than they need


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weights:
    """How much louder than others a direction is asked about, as integers of 1 / WEIGHT.

    Shape: leading (k,), spare (q,); what lies outside of them has the weight WEIGHT.
    """

    leading: IntArray
    spare: IntArray


def weights(variances: FloatArray, k: int, level: float, count: int, blur: float) -> Weights:
    """The weights with which one clip serves all entries best.

    A leading direction i of variance l_i is divided by s_i, another of variance m_j by t_j, and the `count`
    others outside by one t at variance `level`. The noise of entry (i, j) is s_i t_j times a radius that
    goes with the root of sum l_i / s_i^2 sum m_j / t_j^2, and turns component i by 1 / (l_i - m_j) of it.
    Each set is the minimum for the other (Cauchy-Schwarz). A gap below `blur` is not seen, and counts as it.

    Shape: variances (k + q,), the leading ones first.
    """
    lead = variances[:k]
    others, times = np.append(variances[k:], level), np.append(np.ones(variances.size - k), float(count))
    turned = 1 / np.maximum(lead[:, None] - others, blur) ** 2
    s2, t2 = np.ones(k), np.ones(others.size)
    for _ in range(TURNS):
        s2 = np.sqrt(lead / (turned @ (t2 * times)))
        t2 = np.sqrt(others / (s2 @ turned))
    return Weights(leading=_whole(np.sqrt(s2.min() / s2)), spare=_whole(np.sqrt(t2[-1] / t2[:-1])))


def _whole(weights: FloatArray) -> IntArray:
    """Weights of at most 1 in integers; one that is larger would be louder than what lies outside."""
    return frozen(np.clip(np.rint(weights * WEIGHT), LEAST, WEIGHT).astype(np.int64))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cross:
    """The cross covariance of k leading directions and the rest, about a public centre.

    Shape: centre (d,) integers, basis (d, k + q) orthonormal, the leading directions first.
    """

    centre: IntArray
    basis: FloatArray
    weights: Weights

    @property
    def k(self) -> int:
        return self.weights.leading.size

    def norms(self, grid: Grid) -> CrossNorms:
        """The question how long the records' parts are. Edges keep apart from their limit by half."""
        shift = _shift(grid.top, EDGE_LIMIT / 2)
        return CrossNorms(spec=self._spec(shift), edges=grid.edges(part_unit(shift)))

    def query(self, radius: float) -> tuple[CrossCovariance, float]:
        """The question for the sum clipped to `radius`, and how many integers a part of norm 1 is."""
        shift = _shift(radius, GRADIENT_LIMIT)
        unit = part_unit(shift)
        least = least_cross_radius(self.centre.size, self.k)
        clip = min(max(math.floor(radius * unit), least), GRADIENT_LIMIT)
        return CrossCovariance(spec=self._spec(shift), radius=clip), unit

    def _spec(self, shift: int) -> CrossSpec:
        return CrossSpec(
            centre=self.centre,
            directions=frozen(np.rint(self.basis * DIRECTION_LIMIT).astype(np.int64)),
            scales=self.weights.leading,
            kept=self.weights.spare,
            shift=shift,
        )

    def about(self, basis: FloatArray) -> Cross:
        """The same question about other directions. Shape: (d, k + q)."""
        return replace(self, basis=basis)

    def read(self, release: Release, unit: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What a release says, without the weights: entries along the spare directions (k, q), the rest
        outside of all (d, k); and the sd of an entry of either, (k, q + 1), the last column the rest's.

        `unit`: integers that a cross covariance of 1 is.
        """
        inside = self.weights.leading / WEIGHT
        part = release.values.reshape(self.centre.size, self.k) / unit / inside
        spare = self.weights.spare / WEIGHT
        along = (self.basis[:, self.k :].T @ part).T / spare
        outside = part - self.basis @ (self.basis.T @ part)
        sd = release.sigma / unit / inside[:, None] / np.append(spare, 1.0)
        return along, outside, sd


def part_unit(shift: int) -> float:
    """How many integers a record's part of norm 1 is, after a shift."""
    return UNIT / 2.0**shift


def _shift(length: float, limit: float) -> int:
    """The least shift that brings a length below a limit."""
    return max(0, math.ceil(math.log2(max(length, 1e-300) * UNIT / limit)))
