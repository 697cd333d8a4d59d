"""The sampler as it is specified [P26], slow and by another road: tail probabilities at the boundaries
between integers, by bisection, where the product inverts a quantile. It shares no code with it, and knows no
float."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from flint import arb, ctx

from eigenveil.numerics.encoding import IntArray, WordArray

PIECE = 8192  # words read before any that are appended
END = 2**63 - 1
SPARE = 256  # bits: an end of an interval this near to a boundary does not occur

Tail = Callable[[int, float], arb]


def gaussian(k: int, scale: float) -> arb:
    """P[scale Z > k - 1 / 2], Z standard normal."""
    return ((k - arb(0.5)) / (arb(scale) * arb(2).sqrt())).erfc() / 2


def laplace(k: int, scale: float) -> arb:
    """P[X >= k], k from 1 on, where P[X = x] is in proportion to exp(-|x| / scale)."""
    r = (-1 / arb(scale)).exp()
    return r**k / (1 + r)


@dataclass(slots=True)
class Given:
    """A stream of words that are given, and how many were read."""

    words: Sequence[int]
    read: int = field(default=0)

    def __call__(self, count: int) -> WordArray:
        """Shape: (count,)."""
        self.read += count
        assert self.read <= len(self.words)
        return np.array(self.words[self.read - count : self.read], dtype=np.uint64)


def fixed(name: str, count: int) -> list[int]:
    """Words that look fair, always the same for a name."""
    stream = hashlib.shake_256(name.encode()).digest(8 * count)
    return [int.from_bytes(stream[i : i + 8], "little") for i in range(0, len(stream), 8)]


def draws(tail: Tail, scale: float, count: int, words: Given) -> IntArray:
    """Expected draw of `count` integers. Shape: (count,)."""
    out = [
        one(tail, scale, int(first), words)
        for start in range(0, count, PIECE)
        for first in words(min(PIECE, count - start))
    ]
    return np.array(out, dtype=np.int64)


def one(tail: Tail, scale: float, first: int, words: Given) -> int:
    """The integer of one value: a sign, and the largest k that all of v's interval lies below the tail of."""
    low, bits = first // 2, 64
    while True:
        with ctx.workprec(bits + SPARE):
            ends = arb((low, -bits)), arb((low + 1, -bits))
            k = largest(lambda k, v=ends[0]: below(v, tail(k, scale))) if low else END  # type: ignore[misc]
            settled = k == 0 or below(ends[1], tail(k, scale))
        if settled:
            return -k if first % 2 else k
        low, bits = low * 2**64 + int(words(1)[0]), bits + 64


def below(left: arb, right: arb) -> bool:
    """True if `left` is certainly less."""
    assert left < right or right < left
    return bool(left < right)


def largest(holds: Callable[[int], bool]) -> int:
    """The largest k from 0 to END that still holds: all below do."""
    step = 1
    while step <= END and holds(step):
        step *= 2
    low, high = step // 2, min(step, END + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def boundary(tail: Tail, scale: float, k: int, bits: int = 64) -> int:
    """The first `bits` bits of the tail probability from which on |X| is below k, as an integer."""
    with ctx.workprec(bits + SPARE):
        whole = (tail(k, scale) * 2**bits).floor().unique_fmpz()
    assert whole is not None
    return int(whole)
