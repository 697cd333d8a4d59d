"""A site's key for one study [R36]: changed, foreign and weak ones are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.errors import Code, EigenveilError
from eigenveil.secure_aggregation.study_keys import STUDY_KEY_SIGNED, SignedStudyKey, StudyKey
from tests.core.secure_aggregation.cards import a_card, signing
from tests.support import DIGEST, refused

PRIME = 2**255 - 19
# Whose multiples by eight are the neutral element, of the curve and of its twist: RFC 7748's warning.
LOW_ORDER = (
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    PRIME - 1,
)
CARD = a_card()
PUBLIC = X25519PrivateKey.from_private_bytes(bytes(range(32))).public_key().public_bytes_raw()
KEY = StudyKey(plan=DIGEST, site=CARD.site, card=CARD.digest, agreement=PUBLIC)
SENT = KEY.signed(signing(7).sign)


def test_a_key_is_read_as_it_was_signed() -> None:
    assert SENT.check(CARD.signing) == KEY
    assert json.loads(SENT.signed_json) == {
        "format": "eigenveil-study-key/1", "required": [], "plan": DIGEST, "site": "hospital-b",
        "card": CARD.digest, "agreement": PUBLIC.hex(),
    }  # fmt: skip


@given(st.integers(0, 2**16), st.integers(1, 255), st.booleans())
def test_a_key_with_any_byte_changed_is_refused(place: int, flip: int, of_signature: bool) -> None:
    changed = bytearray(SENT.signature if of_signature else SENT.signed_json)
    changed[place % len(changed)] ^= flip
    tampered = replace(SENT, **{"signature" if of_signature else "signed_json": bytes(changed)})
    with pytest.raises(EigenveilError) as caught:
        tampered.check(CARD.signing)
    assert caught.value.code is Code.IDENTITY


def test_a_key_that_another_card_signed_is_refused() -> None:
    with refused(Code.IDENTITY):
        KEY.signed(signing(8).sign).check(CARD.signing)
    for prefix in (b"eigenveil/peer-card/v1\n", b""):
        other = signing(7).sign(prefix + KEY.signed_json)
        with refused(Code.IDENTITY):
            SignedStudyKey(signed_json=KEY.signed_json, signature=other).check(CARD.signing)


@pytest.mark.parametrize("point", [*LOW_ORDER, 9 + PRIME, 9 + 2**255])
def test_a_weak_key_is_refused(point: int) -> None:
    """Such a site's masks would be known to all, or one key would have two digests."""
    key = point.to_bytes(32, "little")
    with refused(Code.PROTOCOL, "invalid field"):
        replace(KEY, agreement=key)
    message = KEY.signed_json.replace(PUBLIC.hex().encode(), key.hex().encode())
    signature = signing(7).sign(STUDY_KEY_SIGNED + message)
    with refused(Code.PROTOCOL):
        SignedStudyKey(signed_json=message, signature=signature).check(CARD.signing)


@pytest.mark.parametrize(
    "change",
    [
        {"agreement": bytes(31)},
        {"site": "a/b"},
        {"site": ""},
        {"plan": "ab"},
        {"card": DIGEST[1:]},
        {"card": "\x1b" * 64},
        {"plan": DIGEST.upper()},
    ],
)
def test_a_key_with_an_invalid_field_is_refused(change: dict[str, Any]) -> None:
    with refused(Code.PROTOCOL, "invalid field"):
        replace(KEY, **change)
