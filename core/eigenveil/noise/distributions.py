"""Exact or proven samplers of three distributions: Haar matrices, Bingham directions, discrete Cauchy noise.

Random orthogonal matrices have a proven distance from the exact Haar distribution. Discrete Cauchy noise is
exact: integers z with probability proportional to 1 / (s^2 + z^2)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import reduce

import numpy as np

from eigenveil.noise.source import NoiseSource
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import normal_quantiles, orthogonal_complement

MIN_LENGTH = 1 / 16  # of sqrt m: shorter normal vectors are redrawn, because their direction is inexact


def haar(k: int, noise: NoiseSource) -> FloatArray:
    """Return a random orthogonal matrix: a direction, then a matrix of its complement (Stewart 1980).

    Unlike the QR decomposition of a Gaussian matrix, it never divides by a small number. Up to an event of
    probability 2^-50, it lies within `eigenspace_sensitivity.off(k)` of a matrix that has exactly the Haar
    distribution [P20].

    Shape: (k, k)."""
    q = np.where(noise.uniform(1) < 0.5, -1.0, 1.0).reshape(1, 1)
    for m in range(2, k + 1):
        u = direction(m, noise)
        q = np.hstack([u[:, None], orthogonal_complement(u) @ q])
    return q


def direction(m: int, noise: NoiseSource) -> FloatArray:
    """Return a uniform unit vector; redrawing short vectors does not change its distribution. Shape: (m,)."""
    while True:
        x = fine_normals(m, noise)
        length = float(np.linalg.norm(x))
        if length >= MIN_LENGTH * math.sqrt(m):
            return x / length


def fine_normals(count: int, noise: NoiseSource) -> FloatArray:
    """Return standard normals by inversion, each within 2^-49 (1 + |z|) of an exact one. Shape: (count,).

    One uniform number has a grid that is coarse in the tails: from 5 standard deviations on, the error is
    2^-33. So the distance to the nearer end of (0, 1) has 52 more bits."""
    coarse, fine = noise.uniform(2 * count).reshape(2, count)
    tail = np.minimum(coarse, 1 - coarse) + (fine - 0.5) * 2.0**-52
    return np.where(coarse < 0.5, 1.0, -1.0) * normal_quantiles(tail)


PROPOSALS = 32  # drawn at once


def bingham(exponents: FloatArray, noise: NoiseSource) -> FloatArray:
    """Return one random direction. Shape: exponents (m,) -> (m,), a unit vector.

    Density on the sphere proportional to exp(sum_i e_i u_i^2). Rejection from an angular central Gaussian
    envelope (Kent, Ganeiber & Mardia 2013): with a_i = max e - e_i, x = sum a_i u_i^2 and
    1 + 2 x / b = u' Omega u, the envelope's density is proportional to (1 + 2 x / b)^(-m/2), so a proposal is
    accepted with probability exp(-x) (1 + 2 x / b)^(+m/2) / M. The power is *plus* m/2: minus gives another
    distribution, and from m = 12 on no proposal is accepted.

    Terminates with probability 1, after few proposals (measured: at most 15 on average at m = 200)."""
    m = exponents.size
    if m == 1:
        return np.ones(1)
    a = exponents.max() - exponents
    b = envelope(a)
    spread = 1 / np.sqrt(1 + 2 * a / b)
    while True:
        y = normal_quantiles(noise.uniform(PROPOSALS * m)).reshape(PROPOSALS, m) * spread
        u = y / np.sqrt((y**2).sum(axis=1))[:, None]
        accepted = np.flatnonzero(np.log(noise.uniform(PROPOSALS)) < log_accept(u**2 @ a, b, m))
        if accepted.size:
            return np.asarray(u[accepted[0]])


def envelope(a: FloatArray) -> float:
    """Return b in [1, m] with sum_i 1 / (b + 2 a_i) = 1, where min a = 0. Another b is valid but slower."""
    low, high = 1.0, float(a.size)
    for _ in range(60):
        b = (low + high) / 2
        low, high = (b, high) if float((1 / (b + 2 * a)).sum()) > 1 else (low, b)
    return high


def log_accept(x: FloatArray, b: float, m: int) -> FloatArray:
    """Return the logarithm of the acceptance probability; its maximum is 0, at x = (m - b) / 2."""
    largest = -(m - b) / 2 + m / 2 * math.log(m / b)
    return np.asarray(-x + m / 2 * np.log1p(2 * x / b) - largest)


WORD = 52  # bits of one uniform float
WORDS = 5  # a draw has 260 bits: the probability of any z up to 2^61 is right to a relative 2^-130
BATCH = 64


def cauchy(count: int, scale: int, noise: NoiseSource) -> list[int]:
    """Return `count` independent draws at integer scale s >= 1, of unlimited size.

    The draws are not truncated, because noise truncated before it is added would reveal the value behind it.

    Rejection, in integers: |z| below s evenly, or from s on with probability s / (z (z + 1)), one half each;
    accepted with probability s^2 / (2 (s^2 + z^2)) below s and z (z + 1) / (2 (s^2 + z^2)) above."""
    whole = _wholes(noise)
    return [_one(scale, whole) for _ in range(count)]


def _one(scale: int, whole: Iterator[int]) -> int:
    denominator = 1 << (WORD * WORDS)
    while True:
        coin = next(whole)
        if coin & 1:
            z = scale * next(whole) // denominator
            above = scale * scale
        else:
            z = scale * denominator // (next(whole) + 1)
            above = z * (z + 1)
        accepted = next(whole) * 2 * (scale * scale + z * z) < above * denominator
        negative = coin & 2
        if accepted and not (negative and z == 0):
            return -z if negative else z


def _wholes(noise: NoiseSource) -> Iterator[int]:
    """Yield uniform integers below 2^260."""
    while True:
        words = [int(u * 2.0**WORD) for u in noise.uniform(BATCH * WORDS)]
        for i in range(0, len(words), WORDS):
            yield reduce(lambda out, word: out << WORD | word, words[i : i + WORDS])
