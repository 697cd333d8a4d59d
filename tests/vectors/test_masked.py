"""[P31] Cards, sets and masks as R28 and R29 say them, once more: hashes, X25519, HKDF and ChaCha20 from
their definitions (`primitives`), of the stored vector and nothing of the product but what reads it.
"""

from __future__ import annotations

import json
from hashlib import sha256
from itertools import islice
from typing import Any

import pytest

from eigenveil.errors import Code
from eigenveil.key_cards.owners import SignedSiteKeyCard
from eigenveil.secure_aggregation.masking import SignedAttempt
from tests.support import refused
from tests.vectors.make import FOLDER
from tests.vectors.primitives import hkdf, keystream, x25519

VECTOR: dict[str, Any] = json.loads((FOLDER / "masked.json").read_text())
BASE = (9).to_bytes(32, "little")
WORD = 2**64


def digest(domain: str, *parts: bytes) -> bytes:
    """As all digests are made."""
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
    theirs = bytes.fromhex(json.loads(cards[other]["said"])["agreement"])
    secret = x25519(bytes.fromhex(cards[one]["agreement"]), theirs)
    attempted = digest("attempt", attempt["said"].encode())
    key = hkdf(secret, b"eigenveil/mask/v1\n" + attempted + f"{one}\n{other}\n".encode())
    stored = attempt["masks"][f"{one} {other}"]
    assert (stored["secret"], stored["key"]) == (secret.hex(), key.hex())
    return integers(bytes(islice(keystream(key), 8 * length)).hex())


@pytest.mark.parametrize("site", VECTOR["cards"])
def test_a_card_is_what_the_protocol_says(site: str) -> None:
    vector = VECTOR["cards"][site]
    said = vector["said"].encode()
    read = SignedSiteKeyCard(said=said, signature=bytes.fromhex(vector["signature"])).check()
    assert (read.site, read.federation, read.digest) == (site, "vectors", vector["digest"])
    assert x25519(bytes.fromhex(vector["agreement"]), BASE) == read.agreement
    assert json.dumps(json.loads(said), sort_keys=True, separators=(",", ":")).encode() == said
    made = digest("peer-card", said)
    assert made.hex() == vector["digest"]
    digits = str(int.from_bytes(made, "big") % 10**40).rjust(40, "0")
    assert " ".join(digits[i : i + 5] for i in range(0, 40, 5)) == vector["fingerprint"]


@pytest.mark.parametrize("name", VECTOR["bad"])
def test_a_bad_card_is_refused(name: str) -> None:
    vector = VECTOR["bad"][name]
    with refused(Code.PROTOCOL):
        SignedSiteKeyCard(said=vector["said"].encode(), signature=bytes.fromhex(vector["signature"])).check()


@pytest.mark.parametrize("attempt", VECTOR["attempts"], ids=lambda a: f"{len(a['answers'])} sites")
def test_what_sites_send_follows_from_the_definition(attempt: dict[str, Any]) -> None:
    stated = SignedAttempt(said=attempt["said"].encode(), signature=bytes.fromhex(attempt["signature"]))
    read = stated.check(bytes.fromhex(VECTOR["release_key"]))
    assert digest("attempt", stated.said).hex() == attempt["digest"] == read.digest
    sites = sorted(json.loads(attempt["said"])["members"])
    parts = []
    for site in sites:
        answer = attempt["answers"][site]
        x, e, y = (integers(answer[name]) for name in ("values", "share", "masked"))
        before = [mask(attempt, other, site, len(x)) for other in sites if other < site]
        behind = [[-m for m in mask(attempt, site, other, len(x))] for other in sites if other > site]
        assert y == added(x, e, *before, *behind)
        parts.append((added(x, e), y))
        header = {"attempt": attempt["digest"], "site": site}
        header |= {name: json.loads(attempt["said"])[name] for name in ("plan", "query", "round")}
        written = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
        assert (
            digest("contribution", written, bytes.fromhex(answer["masked"])).hex() == answer["contribution"]
        )
    noised, sent = zip(*parts, strict=True)
    assert added(*sent) == added(*noised)


def test_the_stored_words_are_the_streams() -> None:
    for attempt in VECTOR["attempts"]:
        for pair, stored in attempt["masks"].items():
            one, other = pair.split()
            assert [int(word, 16) for word in stored["words"]] == mask(
                attempt, one, other, len(stored["words"])
            )
