"""Probabilistic PCA of released numbers: what the components say of a record's density.

A record is normal about the mean, with each component's variance along it and one variance for all directions
left out (Tipping & Bishop 1999). Everything here is read off a release [P7], but for the records that are
scored: what they give is theirs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from eigenveil.numerics.encoding import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Model:
    """Shape: components (k, d) with orthonormal rows, variances (k,), mean and scale (d,). `left` is the
    variance along every other direction, and `noise` the sd of the privacy noise on a variance: one below
    that is taken as that, as nothing more is known of it. Variances are about columns divided by `scale`."""

    components: FloatArray
    variances: FloatArray
    left: float
    noise: float
    mean: FloatArray
    scale: FloatArray

    @property
    def covariance(self) -> FloatArray:
        """In the columns' own units. Shape: (d, d)."""
        return self._matrix(self._along, self._rest) * np.outer(self.scale, self.scale)

    @property
    def precision(self) -> FloatArray:
        """The inverse of it. Shape: (d, d).

        Raises:
            ValueError: the release holds no variance.
        """
        return self._inverse() / np.outer(self.scale, self.scale)

    def log_likelihood(self, records: FloatArray) -> FloatArray:
        """Of each record, in its own units. Shape: (n, d) -> (n,).

        Raises:
            ValueError: the release holds no variance.
        """
        inverse = self._inverse()
        off = (records - self.mean) / self.scale
        k, d = self.components.shape
        sizes = float(np.log(self._along).sum()) + 2 * float(np.log(self.scale).sum())
        sizes += (d - k) * math.log(self._rest) if d > k else 0.0
        return np.asarray(
            -0.5 * (np.einsum("ij,ij->i", off @ inverse, off) + d * math.log(2 * math.pi) + sizes)
        )

    @property
    def _rest(self) -> float:
        return max(self.left, self.noise)

    @property
    def _along(self) -> FloatArray:
        """No component varies less than what was left out."""
        return np.asarray(np.maximum(self.variances, self._rest))

    def _inverse(self) -> FloatArray:
        if not (self._along > 0).all():
            raise ValueError("the release holds no variance, and a density needs one along each direction")
        k, d = self.components.shape
        return self._matrix(1 / self._along, 1 / self._rest if k < d else 0.0)

    def _matrix(self, along: FloatArray, rest: float) -> FloatArray:
        found = (self.components.T * (along - rest)) @ self.components
        return np.asarray(found + rest * np.eye(len(self.mean)))
