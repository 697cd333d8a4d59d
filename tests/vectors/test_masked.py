"""[P31] Cards, keys, sets and masks as R28, R29 and R36 say them, once more: hashes and primitives of
`cryptography`, which give the RFCs' answers, of the stored vector and nothing of the product but what reads
it."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from eigenveil.errors import Code
from eigenveil.key_cards import SignedSiteKeyCard
from eigenveil.secure_aggregation.masking import SignedAttempt
from eigenveil.secure_aggregation.study_keys import SignedStudyKey
from tests.support import refused
from tests.vectors.make import FOLDER
from tests.vectors.test_vectors import read

VECTOR: dict[str, Any] = json.loads((FOLDER / "masked.json").read_text())
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
    keys = VECTOR["keys"]
    theirs = bytes.fromhex(json.loads(keys[other]["signed_json"])["agreement"])
    secret = private(keys[one]).exchange(X25519PublicKey.from_public_bytes(theirs))
    attempted = digest("attempt", attempt["signed_json"].encode())
    info = b"eigenveil/mask/v1\n" + attempted + f"{one}\n{other}\n".encode()
    key = hkdf(secret, info)
    stored = attempt["masks"][f"{one} {other}"]
    assert (stored["secret"], stored["key"]) == (secret.hex(), key.hex())
    return integers(keystream(key, 8 * length).hex())


def hkdf(secret: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), length=32, salt=None, info=info).derive(secret)


def keystream(key: bytes, length: int) -> bytes:
    return Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(length))


def private(key: dict[str, Any]) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(bytes.fromhex(key["private"]))


@pytest.mark.parametrize("site", VECTOR["cards"])
def test_stored_site_card_follows_the_protocol(site: str) -> None:
    vector = VECTOR["cards"][site]
    message = vector["signed_json"].encode()
    card = read(SignedSiteKeyCard, vector).check()
    assert (card.site, card.federation, card.digest) == (site, "vectors", vector["digest"])
    assert json.dumps(json.loads(message), sort_keys=True, separators=(",", ":")).encode() == message
    made = digest("peer-card", message)
    assert made.hex() == vector["digest"]
    digits = str(int.from_bytes(made, "big") % 10**40).rjust(40, "0")
    assert " ".join(digits[i : i + 5] for i in range(0, 40, 5)) == vector["fingerprint"]


@pytest.mark.parametrize("site", VECTOR["keys"])
def test_stored_key_of_a_study_follows_the_protocol(site: str) -> None:
    vector = VECTOR["keys"][site]
    card = read(SignedSiteKeyCard, VECTOR["cards"][site]).check()
    stated = json.loads(vector["signed_json"])
    assert read(SignedStudyKey, vector).check(card.signing).digest == vector["digest"]
    assert digest("study-key", vector["signed_json"].encode()).hex() == vector["digest"]
    assert (stated["site"], stated["card"]) == (site, VECTOR["cards"][site]["digest"])
    assert private(vector).public_key().public_bytes_raw().hex() == stated["agreement"]


@pytest.mark.parametrize("name", VECTOR["bad"])
def test_a_bad_key_of_a_study_is_refused(name: str) -> None:
    card = read(SignedSiteKeyCard, VECTOR["cards"]["east"]).check()
    with refused(Code.PROTOCOL):
        read(SignedStudyKey, VECTOR["bad"][name]).check(card.signing)


@pytest.mark.parametrize("attempt", VECTOR["attempts"], ids=lambda a: f"{len(a['answers'])} sites")
def test_stored_masked_answers_follow_the_protocol(attempt: dict[str, Any]) -> None:
    stated = read(SignedAttempt, attempt)
    checked = stated.check(bytes.fromhex(VECTOR["release_key"]))
    assert digest("attempt", stated.signed_json).hex() == attempt["digest"] == checked.digest
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


def test_primitives_give_the_answers_of_their_rfcs() -> None:
    """RFC 7748, 5.2; RFC 5869, A.3, of its 42 bytes the first 32; RFC 8439, A.1."""
    scalar = "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4"
    point = "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c"
    public = X25519PublicKey.from_public_bytes(bytes.fromhex(point))
    found = private({"private": scalar}).exchange(public)
    assert found.hex() == "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    derived = hkdf(b"\x0b" * 22, b"")
    assert derived.hex() == "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
    assert keystream(bytes(32), 64).hex() == (
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
    )
