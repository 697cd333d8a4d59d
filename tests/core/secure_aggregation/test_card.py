"""Key cards: changed ones are refused, and a fingerprint covers the whole card. [R28]"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenveil.errors import Code, EigenveilError
from eigenveil.key_cards import (
    CARDS_FORMAT,
    MOST_BYTES,
    SignedSiteKeyCard,
    SiteKeyCard,
    cards_from_file,
    cards_to_file,
    fingerprint,
    typed_fingerprint,
)
from eigenveil.signatures import formatted
from tests.core.secure_aggregation.cards import a_card, signed_card, signing
from tests.support import refused

SEEDS = st.integers(1, 2**255)
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,20}[a-z0-9]", fullmatch=True)


def signed(stated: Any, seed: int = 7) -> SignedSiteKeyCard:
    """These plain values, or these bytes, under the signature of `seed`'s key."""
    message = stated if isinstance(stated, bytes) else json.dumps(stated, separators=(",", ":")).encode()
    return SignedSiteKeyCard(signed_json=message, signature=signing(seed).sign(SiteKeyCard.prefix + message))


@settings(max_examples=25)
@given(NAMES, NAMES, SEEDS)
def test_a_card_stays_valid_when_its_file_is_reformatted(site: str, federation: str, seed: int) -> None:
    sent = signed_card(site, seed, federation)
    assert sent.check() == a_card(site, seed, federation)
    file = json.loads(cards_to_file([sent, signed_card("other", seed + 1)]))
    turned = dict(reversed(file["cards"][0]["card"].items()))
    file["cards"][0] = dict(reversed(file["cards"][0].items())) | {"card": turned}
    mailed = json.dumps(file, indent=7).replace("\n", "\r\n").encode("utf-8-sig")
    assert cards_from_file(mailed, SignedSiteKeyCard)[0] == sent
    assert (
        cards_from_file(mailed, SignedSiteKeyCard)[0].check().digest == a_card(site, seed, federation).digest
    )


@given(st.integers(0, 2**16), st.integers(1, 255), st.booleans())
def test_a_card_with_any_byte_changed_is_refused(place: int, flip: int, of_signature: bool) -> None:
    sent = signed_card()
    changed = bytearray(sent.signature if of_signature else sent.signed_json)
    changed[place % len(changed)] ^= flip
    tampered = replace(sent, **{"signature" if of_signature else "signed_json": bytes(changed)})
    with pytest.raises(EigenveilError) as caught:
        tampered.check()
    assert caught.value.code in (Code.IDENTITY, Code.PROTOCOL, Code.VERSION)


def test_a_card_under_another_key_s_signature_is_refused() -> None:
    with refused(Code.IDENTITY, "hospital-b is not signed by its own key"):
        signed(a_card(seed=7).signed_json, seed=8).check()
    other = signing(7).sign(b"eigenveil/ledger-checkpoint/v1\n" + a_card().signed_json)
    with refused(Code.IDENTITY, "not signed"):
        SignedSiteKeyCard(signed_json=a_card().signed_json, signature=other).check()


@pytest.mark.parametrize(
    "message",
    [
        b"", b"7", b"[]", b"{}", b"\xff", b"[" * 100_000, a_card().signed_json + b" ",
        a_card().signed_json.replace(b'"site":', b'"more":"x","site":'),
        a_card().signed_json.replace(b'"hospital-b"', b'["hospital-b"]'),
        a_card().signed_json.replace(b'"hospital-b"', b'"Hospital B"'),
        a_card().signed_json.replace(
            a_card().signing.hex().encode(), a_card().signing.hex().upper().encode()
        ),
        json.dumps(dict(reversed(json.loads(a_card().signed_json).items())), separators=(",", ":")).encode(),
    ],
)  # fmt: skip
def test_a_signed_card_in_another_form_is_refused(message: bytes) -> None:
    with refused(Code.PROTOCOL, "rejected"):
        signed(message).check()


@pytest.mark.parametrize(
    "change", [{"signing": bytes(33)}, {"site": "a/b"}, {"site": ""}, {"federation": "North"}]
)
def test_a_card_with_an_invalid_name_or_key_is_refused(change: dict[str, Any]) -> None:
    with refused(Code.PROTOCOL):
        replace(a_card(), **change)


def test_a_fingerprint_covers_the_whole_card_and_is_fixed() -> None:
    card = a_card()
    message = card.signed_json
    state = hashlib.sha256(b"eigenveil/peer-card/v1\n" + len(message).to_bytes(8, "little") + message)
    assert card.digest == state.hexdigest()
    assert card.fingerprint.replace(" ", "") == f"{int(state.hexdigest(), 16) % 10**40:040d}"
    assert card.fingerprint == "06492 59862 94116 93581 46786 38652 24606 92759"
    others = [
        a_card(site="hospital-c"),
        a_card(federation="south"),
        replace(card, signing=a_card(seed=8).signing),
    ]
    assert card.fingerprint not in {one.fingerprint for one in others}


def test_a_fingerprint_has_leading_zeros() -> None:
    assert fingerprint("00") == " ".join(["00000"] * 8)
    assert fingerprint(f"{10**40 + 7:x}") == " ".join(["00000"] * 7 + ["00007"])


@given(st.lists(st.sampled_from([" ", "  ", "-", ", ", ".", "", "\n", "\t"]), min_size=40, max_size=40))
def test_a_fingerprint_may_be_typed_with_separators(between: list[str]) -> None:
    digits = a_card().fingerprint.replace(" ", "")
    typed = "".join(a + b for a, b in zip(digits, between, strict=True))
    assert typed_fingerprint(typed) == a_card().fingerprint


@pytest.mark.parametrize("typed", ["", "1" * 39, "1" * 41, "1" * 39 + "x", "\u0661" * 40, "\uff11" * 40])
def test_anything_but_forty_digits_is_refused(typed: str) -> None:
    with refused(Code.BAD_ARGUMENT, "type 40 digits"):
        typed_fingerprint(typed)


def content(cards: list[Any]) -> bytes:
    return json.dumps(formatted(CARDS_FORMAT, {"cards": cards})).encode()


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (b"", "not a file of key cards"),
        (b"-----BEGIN PGP MESSAGE-----", "not a file of key cards"),
        (content([{"card": {}}]), "not a file of key cards"),
        (content([7]), "not a file of key cards"),
        (content([]), "has no key card"),
        (b'{"cards": []}', "not a file of key cards"),
        (b" " * (MOST_BYTES + 1), "too long"),
        (cards_to_file([signed_card()]).replace(b"hospital-b", b"hospital-c"), "not signed"),
    ],
)
def test_a_file_without_valid_cards_is_refused(file: bytes, words: str) -> None:
    with pytest.raises(EigenveilError, match=words):
        cards_from_file(file, SignedSiteKeyCard)
