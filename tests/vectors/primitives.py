"""X25519, HKDF and ChaCha20 as their RFCs say, in Python integers; slow, and for vectors alone."""

from __future__ import annotations

import hmac
from collections.abc import Iterator

PRIME = 2**255 - 19
A24 = 121_665

Point = tuple[int, int]  # x / z


def x25519(private: bytes, public: bytes) -> bytes:
    """RFC 7748, section 5: the Montgomery ladder."""
    k = int.from_bytes(private, "little") & ~7 & ~(1 << 255) | 1 << 254
    u = int.from_bytes(public, "little") & ~(1 << 255)
    low, high = (1, 0), (u, 1)  # multiples k' and k' + 1 of the point, k' the leading bits of k
    for bit in reversed(range(255)):
        if k >> bit & 1:
            high, low = step(u, high, low)
        else:
            low, high = step(u, low, high)
    x, z = low
    return (x * pow(z, -1, PRIME) % PRIME).to_bytes(32, "little")


def step(u: int, one: Point, other: Point) -> tuple[Point, Point]:
    """Twice the one point, and the sum of both, which are `u` apart."""
    a, b, c, d = sum(one), one[0] - one[1], sum(other), other[0] - other[1]
    aa, bb = a * a, b * b
    e, da, cb = aa - bb, d * a, c * b
    return (aa * bb % PRIME, e * (aa + A24 * e) % PRIME), ((da + cb) ** 2 % PRIME, u * (da - cb) ** 2 % PRIME)


def hkdf(secret: bytes, info: bytes) -> bytes:
    """RFC 5869 with SHA-256, without salt: 32 bytes, so one block."""
    extracted = hmac.digest(bytes(32), secret, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")


def keystream(key: bytes) -> Iterator[int]:
    """RFC 8439, section 2.3: the bytes of the blocks from 0 on, with nonce 0."""
    known = b"expand 32-byte k" + key
    words = [int.from_bytes(known[i : i + 4], "little") for i in range(0, len(known), 4)]
    for counter in range(2**32):
        start = [*words, counter, 0, 0, 0]
        state = start.copy()
        for _ in range(10):
            for i in range(4):
                quarter(state, i, i + 4, i + 8, i + 12)
            for i in range(4):
                quarter(state, i, (i + 1) % 4 + 4, (i + 2) % 4 + 8, (i + 3) % 4 + 12)
        for x, y in zip(start, state, strict=True):
            yield from ((x + y) % 2**32).to_bytes(4, "little")


def quarter(s: list[int], a: int, b: int, c: int, d: int) -> None:
    """RFC 8439, section 2.1."""
    for to, by, turned, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        s[to] = (s[to] + s[by]) % 2**32
        x = s[turned] ^ s[to]
        s[turned] = (x << bits | x >> 32 - bits) % 2**32
