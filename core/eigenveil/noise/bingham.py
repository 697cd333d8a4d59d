"""Random directions u with density proportional to exp(sum_i e_i u_i^2) on the sphere: the Bingham law.

Rejection from an angular central Gaussian envelope (Kent, Ganeiber & Mardia 2013): with a_i = max e - e_i,
x = sum a_i u_i^2 and 1 + 2 x / b = u' Omega u, the envelope's density is proportional to
(1 + 2 x / b)^(-m/2), so a proposal is kept with probability exp(-x) (1 + 2 x / b)^(+m/2) / M. The power is
*plus* m/2: with minus, the law is another one, and from m = 12 on nothing is ever kept.
"""

from __future__ import annotations

import math

import numpy as np

from eigenveil.noise.source import NoiseSource
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.normal import quantiles

PROPOSALS = 32  # drawn at once


def bingham(exponents: FloatArray, noise: NoiseSource) -> FloatArray:
    """One direction. Shape: exponents (m,) -> (m,), of length 1.

    Ends with probability 1, after few proposals (measured: at worst 15 on average at m = 200).
    """
    m = exponents.size
    if m == 1:
        return np.ones(1)
    a = exponents.max() - exponents
    b = envelope(a)
    spread = 1 / np.sqrt(1 + 2 * a / b)
    while True:
        y = normals(PROPOSALS * m, noise).reshape(PROPOSALS, m) * spread
        u = y / np.sqrt((y**2).sum(axis=1))[:, None]
        kept = np.flatnonzero(np.log(noise.uniform(PROPOSALS)) < log_accept(u**2 @ a, b, m))
        if kept.size:
            return np.asarray(u[kept[0]])


def envelope(a: FloatArray) -> float:
    """b in [1, m] with sum_i 1 / (b + 2 a_i) = 1, where min a = 0. Any other b would be slower, not wrong."""
    low, high = 1.0, float(a.size)
    for _ in range(60):
        b = (low + high) / 2
        low, high = (b, high) if float((1 / (b + 2 * a)).sum()) > 1 else (low, b)
    return high


def log_accept(x: FloatArray, b: float, m: int) -> FloatArray:
    """Logarithm of the probability to keep a proposal: 0 at its largest, where x = (m - b) / 2."""
    largest = -(m - b) / 2 + m / 2 * math.log(m / b)
    return np.asarray(-x + m / 2 * np.log1p(2 * x / b) - largest)


def normals(count: int, noise: NoiseSource) -> FloatArray:
    """Independent standard normals, by inversion. Shape: (count,)."""
    return quantiles(noise.uniform(count))
