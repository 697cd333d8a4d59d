"""Probabilistic PCA of released numbers: covariance, precision and log-likelihood.

A record is normal about the mean, with each component's variance along it and one variance for all other
directions (Tipping & Bishop 1999). The model follows from a release [P7]; the scores depend on the records
that are scored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from eigenveil.numerics.encoding import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbabilisticPCA:
    """Probabilistic PCA model.

    `other_variance` is the variance along every other direction, and `noise` the sd of the privacy noise
    on a variance.
    A variance below `noise` is set to it, because it cannot be distinguished from it. Variances refer to
    columns divided by `scale`.

    Shape: components (k, d) with orthonormal rows, variances (k,), mean and scale (d,).
    """

    components: FloatArray
    variances: FloatArray
    other_variance: float
    noise: float
    mean: FloatArray
    scale: FloatArray

    @property
    def covariance(self) -> FloatArray:
        """Covariance in the columns' own units. Shape: (d, d)."""
        return self._matrix(self._component_variances, self._other_variance) * np.outer(
            self.scale, self.scale
        )

    @property
    def precision(self) -> FloatArray:
        """Inverse of the covariance. Shape: (d, d).

        Raises:
            ValueError: the release holds no variance.
        """
        return self._inverse() / np.outer(self.scale, self.scale)

    def log_likelihood(self, records: FloatArray) -> FloatArray:
        """Return the log-likelihood of each record in its own units. Shape: (n, d) -> (n,).

        Raises:
            ValueError: the release holds no variance.
        """
        inverse = self._inverse()
        off = (records - self.mean) / self.scale
        k, d = self.components.shape
        sizes = float(np.log(self._component_variances).sum()) + 2 * float(np.log(self.scale).sum())
        sizes += (d - k) * math.log(self._other_variance) if d > k else 0.0
        return np.asarray(
            -0.5 * (np.einsum("ij,ij->i", off @ inverse, off) + d * math.log(2 * math.pi) + sizes)
        )

    @property
    def _other_variance(self) -> float:
        return max(self.other_variance, self.noise)

    @property
    def _component_variances(self) -> FloatArray:
        """Variances of the components, at least that of the other directions."""
        return np.asarray(np.maximum(self.variances, self._other_variance))

    def _inverse(self) -> FloatArray:
        if not (self._component_variances > 0).all():
            raise ValueError("the release has no variance above 0, so records have no density")
        k, d = self.components.shape
        return self._matrix(1 / self._component_variances, 1 / self._other_variance if k < d else 0.0)

    def _matrix(self, along: FloatArray, rest: float) -> FloatArray:
        found = (self.components.T * (along - rest)) @ self.components
        return np.asarray(found + rest * np.eye(len(self.mean)))
