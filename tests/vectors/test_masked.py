"""[P31] Cards, sets and masks as R28 and R29 say them, once more: hashes, X25519, HKDF and ChaCha20 from
their definitions (`primitives`), of the stored vector and nothing of the product but what reads it.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from typing import Any

import pytest

from eigenveil.errors import Code
from eigenveil.key_cards import SignedSiteKeyCard
from eigenveil.secure_aggregation.masking import SignedAttempt
from tests.support import refused
from tests.vectors.make import FOLDER

VECTOR: dict[str, Any] = json.loads((FOLDER / "masked.json").read_text())
BASE = (9).to_bytes(32, "little")
WORD = 2**64


def digest(domain: str, *parts: bytes) -> bytes:
    framed = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return sha256(f"eigenveil/{domain}/v1\n".encode() + framed).digest()


def integers(hexed: str) -> list[int]:
    data = bytes.fromhex(hexed)
    return [int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data), 8)]


def added(*vectors: list[int]) -> list[int]:
    return [sum(column) % WORD for column in zip(*vectors, strict=True)]


def mask(attempt: dict[str, Any], one: str, other: str, length: int) -> list[int]:
    """The words between two members, the first by name before the other."""
    cards = VECTOR["cards"]
    theirs = bytes.fromhex(json.loads(cards[other]["signed_json"])["agreement"])
    secret = x25519(bytes.fromhex(cards[one]["agreement"]), theirs)
    attempted = digest("attempt", attempt["signed_json"].encode())
    key = hkdf(secret, b"eigenveil/mask/v1\n" + attempted + f"{one}\n{other}\n".encode())
    stored = attempt["masks"][f"{one} {other}"]
    assert (stored["secret"], stored["key"]) == (secret.hex(), key.hex())
    return integers(bytes(islice(keystream(key), 8 * length)).hex())


@pytest.mark.parametrize("site", VECTOR["cards"])
def test_stored_site_card_follows_the_protocol(site: str) -> None:
    vector = VECTOR["cards"][site]
    message = vector["signed_json"].encode()
    read = SignedSiteKeyCard(signed_json=message, signature=bytes.fromhex(vector["signature"])).check()
    assert (read.site, read.federation, read.digest) == (site, "vectors", vector["digest"])
    assert x25519(bytes.fromhex(vector["agreement"]), BASE) == read.agreement
    assert json.dumps(json.loads(message), sort_keys=True, separators=(",", ":")).encode() == message
    made = digest("peer-card", message)
    assert made.hex() == vector["digest"]
    digits = str(int.from_bytes(made, "big") % 10**40).rjust(40, "0")
    assert " ".join(digits[i : i + 5] for i in range(0, 40, 5)) == vector["fingerprint"]


@pytest.mark.parametrize("name", VECTOR["bad"])
def test_a_bad_card_is_refused(name: str) -> None:
    vector = VECTOR["bad"][name]
    with refused(Code.PROTOCOL):
        SignedSiteKeyCard(
            signed_json=vector["signed_json"].encode(), signature=bytes.fromhex(vector["signature"])
        ).check()


@pytest.mark.parametrize("attempt", VECTOR["attempts"], ids=lambda a: f"{len(a['answers'])} sites")
def test_stored_masked_answers_follow_the_protocol(attempt: dict[str, Any]) -> None:
    stated = SignedAttempt(
        signed_json=attempt["signed_json"].encode(), signature=bytes.fromhex(attempt["signature"])
    )
    read = stated.check(bytes.fromhex(VECTOR["release_key"]))
    assert digest("attempt", stated.signed_json).hex() == attempt["digest"] == read.digest
    sites = sorted(json.loads(attempt["signed_json"])["members"])
    parts = []
    for site in sites:
        answer = attempt["answers"][site]
        x, e, y = (integers(answer[name]) for name in ("values", "share", "masked"))
        before = [mask(attempt, other, site, len(x)) for other in sites if other < site]
        behind = [[-m for m in mask(attempt, site, other, len(x))] for other in sites if other > site]
        assert y == added(x, e, *before, *behind)
        parts.append((added(x, e), y))
        header = {"attempt": attempt["digest"], "site": site}
        header |= {name: json.loads(attempt["signed_json"])[name] for name in ("plan", "query", "round")}
        written = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
        assert (
            digest("contribution", written, bytes.fromhex(answer["masked"])).hex() == answer["contribution"]
        )
    noised, sent = zip(*parts, strict=True)
    assert added(*sent) == added(*noised)


def test_stored_words_are_the_key_streams() -> None:
    for attempt in VECTOR["attempts"]:
        for pair, stored in attempt["masks"].items():
            one, other = pair.split()
            assert [int(word, 16) for word in stored["words"]] == mask(
                attempt, one, other, len(stored["words"])
            )


# X25519, HKDF and ChaCha20 by their RFCs, in Python integers.


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
