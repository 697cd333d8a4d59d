"""Exact discrete Cauchy noise: integers z with probability proportional to 1 / (s^2 + z^2)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from eigenveil.noise.source import NoiseSource

WORD = 52  # bits of one uniform float
WORDS = 5  # a draw has 260 bits: the probability of any z up to 2^61 is right to a relative 2^-130
BATCH = 64


def cauchy(count: int, scale: int, noise: NoiseSource) -> list[int]:
    """`count` independent draws at integer scale s >= 1, as large as they come: cut off before it is added,
    the noise would give away what lies behind it.

    Rejection, in integers: |z| below s evenly, or from s on with probability s / (z (z + 1)), one half each;
    accepted with probability s^2 / (2 (s^2 + z^2)) below s and z (z + 1) / (2 (s^2 + z^2)) above.
    """
    whole = _wholes(noise)
    return [_one(scale, whole) for _ in range(count)]


def _one(scale: int, whole: Iterator[int]) -> int:
    top = 1 << (WORD * WORDS)
    while True:
        coin = next(whole)
        if coin & 1:
            z = scale * next(whole) // top
            above = scale * scale
        else:
            z = scale * top // (next(whole) + 1)
            above = z * (z + 1)
        accepted = next(whole) * 2 * (scale * scale + z * z) < above * top
        negative = coin & 2
        if accepted and not (negative and z == 0):
            return -z if negative else z


def _wholes(noise: NoiseSource) -> Iterator[int]:
    """Uniform integers below 2^260."""
    while True:
        words = [int(u * 2.0**WORD) for u in noise.uniform(BATCH * WORDS)]
        for i in range(0, len(words), WORDS):
            yield reduce(lambda out, word: out << WORD | word, words[i : i + WORDS])
