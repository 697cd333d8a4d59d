"""A uniformly random orthogonal matrix, near enough to the exact law for a claim to count the difference."""

from __future__ import annotations

import math

import numpy as np

from eigenveil.noise.source import NoiseSource
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import complement
from eigenveil.numerics.normal import quantiles

SHORTEST = 1 / 16  # of sqrt m: shorter normal vectors would blur their direction, and are drawn again


def haar(k: int, noise: NoiseSource) -> FloatArray:
    """A uniform direction, then an orthogonal matrix of what is at right angles to it (Stewart 1980).

    Unlike the QR of a Gaussian matrix it never divides by anything small: up to an event of probability
    2^-50 it lies within `eigenspace_sensitivity.off(k)` of a matrix that has exactly the Haar law [P20].

    Shape: (k, k).
    """
    q = np.where(noise.uniform(1) < 0.5, -1.0, 1.0).reshape(1, 1)
    for m in range(2, k + 1):
        u = direction(m, noise)
        q = np.hstack([u[:, None], complement(u) @ q])
    return q


def direction(m: int, noise: NoiseSource) -> FloatArray:
    """A uniform unit vector. That long vectors alone are taken says nothing about directions. Shape: (m,)."""
    while True:
        x = normals(m, noise)
        length = float(np.linalg.norm(x))
        if length >= SHORTEST * math.sqrt(m):
            return x / length


def normals(count: int, noise: NoiseSource) -> FloatArray:
    """Standard normals by inversion, each within 2^-49 (1 + |z|) of an exact one. Shape: (count,).

    One uniform number alone lies on a grid that leaves the tails coarse: from 5 standard deviations on it is
    off by 2^-33. So the distance to the nearer end of (0, 1) gets 52 more bits.
    """
    coarse, fine = noise.uniform(2 * count).reshape(2, count)
    tail = np.minimum(coarse, 1 - coarse) + (fine - 0.5) * 2.0**-52
    return np.where(coarse < 0.5, 1.0, -1.0) * quantiles(tail)
