"""[R21] What the coordinator states of a round is in one form, and nothing else is believed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.errors import Code
from eigenveil.numerics.encoding import canonical
from eigenveil.protocol.statements import MOST_BYTES, ROUND_SIGNED, RoundStatement, SignedRound
from tests.support import refused

KEY = Ed25519PrivateKey.generate()
PUBLIC = KEY.public_key().public_bytes_raw()
STATED = RoundStatement(
    plan="a" * 64, round=2, query="b" * 64, after="c" * 64, release="", ledger="d" * 64, size=3
)


def signed(said: bytes) -> SignedRound:
    return SignedRound(said=said, signature=KEY.sign(ROUND_SIGNED + said))


def test_a_statement_is_read_back_as_it_was_signed() -> None:
    assert STATED.signed(KEY.sign).check(PUBLIC) == STATED


@pytest.mark.parametrize(
    "change",
    [
        {"after": ""}, {"round": 0}, {"size": 0}, {"round": -1},
        {"release": "e" * 63}, {"query": ""}, {"plan": "a" * 65}, {"ledger": ""},
    ],
)  # fmt: skip
def test_a_statement_of_another_form_is_refused(change: dict[str, Any]) -> None:
    with refused(Code.PROTOCOL, "does not fit together"):
        signed(canonical(asdict(STATED) | change)).check(PUBLIC)


def test_a_signature_of_another_kind_or_over_too_many_bytes_is_refused() -> None:
    said = canonical(asdict(STATED))
    with refused(Code.IDENTITY, "not signed by this federation"):
        SignedRound(said=said, signature=KEY.sign(said)).check(PUBLIC)
    with refused(Code.PROTOCOL, "too long"):
        signed(said + b" " * MOST_BYTES).check(PUBLIC)
