"""Cards and authorizations of analysts as R30 and R31 say them, of the stored vector."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.errors import Code
from eigenveil.key_cards.owners import SignedAnalystKeyCard
from eigenveil.protocol.plan import plan_from_json
from eigenveil.study_authorization import SignedAuthorization, check_authorization
from tests.support import refused
from tests.vectors.make import FOLDER

VECTOR: dict[str, Any] = json.loads((FOLDER / "authorization.json").read_text())
PLAN = plan_from_json(VECTOR["plan"].encode())
CARD = SignedAnalystKeyCard(
    said=VECTOR["card"]["said"].encode(), signature=bytes.fromhex(VECTOR["card"]["signature"])
)


def signed(one: dict[str, str]) -> SignedAuthorization:
    said, signature = one["said"].encode(), bytes.fromhex(one["signature"])
    return SignedAuthorization(said=said, signature=signature, card=CARD)


def test_a_card_and_an_authorization_are_what_the_protocol_says() -> None:
    card, stated = VECTOR["card"], json.loads(VECTOR["authorization"]["said"])
    said = card["said"].encode()
    digest = sha256(b"eigenveil/analyst-card/v1\n" + len(said).to_bytes(8, "little") + said).hexdigest()
    assert (digest, stated["key"], stated["plan"]) == (card["digest"], digest, VECTOR["plan_digest"])
    assert card["fingerprint"].replace(" ", "") == f"{int(digest, 16) % 10**40:040d}"
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(VECTOR["key"]))
    assert key.sign(b"eigenveil/analyst-card/v1\n" + said).hex() == card["signature"]
    signing = b"eigenveil/study-authorization/v1\n" + VECTOR["authorization"]["said"].encode()
    assert key.sign(signing).hex() == VECTOR["authorization"]["signature"]
    assert json.dumps(stated, sort_keys=True, separators=(",", ":")) == VECTOR["authorization"]["said"]


def test_the_authorization_holds_and_under_another_signature_does_not() -> None:
    one = signed(VECTOR["authorization"])
    assert check_authorization(one, PLAN, VECTOR["now"]).digest == VECTOR["card"]["digest"]
    with refused(Code.IDENTITY, "not signed"):
        check_authorization(replace(one, signature=CARD.signature), PLAN, VECTOR["now"])


@pytest.mark.parametrize("bad", VECTOR["bad"], ids=lambda bad: bad["said"][-60:])
def test_what_must_be_refused_is(bad: dict[str, str]) -> None:
    with refused(Code(bad["code"])):
        check_authorization(signed(bad), PLAN, VECTOR["now"])
