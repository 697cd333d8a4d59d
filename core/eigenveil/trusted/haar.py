"""A uniformly random orthogonal matrix from uniform numbers."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from eigenveil.ints import FloatArray
from eigenveil.linalg import orthonormal
from eigenveil.noise import NoiseSource


def haar(k: int, noise: NoiseSource) -> FloatArray:
    """QR of a Gaussian matrix, with R's diagonal made positive (Mezzadri 2007). Shape: (k, k)."""
    normal = np.asarray(ndtri(noise.uniform(k * k)), dtype=np.float64).reshape(k, k)
    q = orthonormal(normal)
    signs: FloatArray = np.where((q * normal).sum(axis=0) < 0, -1.0, 1.0)
    return q * signs
