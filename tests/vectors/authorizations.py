"""Vectors of who asks [R30] [R31]: an analyst's key that every reader may know, its card, an authorization of
the plan in plan.json, and what must be refused."""

from __future__ import annotations

from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.errors import Code
from eigenveil.key_cards import AnalystKeyCard, SignedAnalystKeyCard
from eigenveil.numerics.encoding import canonical, parse_json
from eigenveil.protocol.plan import Plan
from eigenveil.study_authorization import AUTHORIZATION_SIGNED, MAX_AUTHORIZATION_SECONDS, authorize

KEY = Ed25519PrivateKey.from_private_bytes(b"analyst".ljust(32, b"s"))
NOW = 1_800_000_000


def signed_vector(one: Any) -> dict[str, str]:
    return {"signed_json": one.signed_json.decode(), "signature": one.signature.hex()}


def authorization_vectors(plan: Plan) -> dict[str, Any]:
    """Signed statement and signer; `bad` are statements under the right key's signature, with their code."""
    public = KEY.public_key().public_bytes_raw()
    card = AnalystKeyCard(federation=plan.federation, analyst=plan.analyst, signing=public)
    signed = authorize(plan, SignedAnalystKeyCard.of(card, KEY.sign), NOW + 3600, KEY.sign)
    stated = parse_json(signed.signed_json)
    spoiled = {
        Code.VERSION: [
            stated | {"format": "eigenveil-authorization/0"},
            stated | {"format": "eigenveil-authorization/2"},
            stated | {"required": ["more"], "more": "x"},
        ],
        Code.AUTHORIZATION: [
            stated | {"plan": "ab" * 32}, stated | {"submission": "another"}, stated | {"analyst": "another"},
            stated | {"federation": "another"}, stated | {"key": "ab" * 32},
            stated | {"expires": NOW + MAX_AUTHORIZATION_SECONDS + 1},
        ],
        Code.AUTHORIZATION_EXPIRED: [stated | {"expires": NOW}],
        Code.PROTOCOL: [
            stated | {"format": "eigenveil-round/1"}, stated | {"expires": "soon"}, stated | {"plan": "ab"},
        ],
    }  # fmt: skip
    return {
        "now": NOW,
        "key": KEY.private_bytes_raw().hex(),
        "plan": plan.to_json().decode(),
        "plan_digest": plan.digest,
        "card": {
            **signed_vector(signed.card), "digest": card.digest, "fingerprint": card.fingerprint,
        },
        "authorization": signed_vector(signed),
        "bad": [
            {
                "signed_json": message.decode(), "signature": KEY.sign(AUTHORIZATION_SIGNED + message).hex(),
                "code": code.value,
            }
            for code, statements in spoiled.items() for message in map(canonical, statements)
        ],
    }  # fmt: skip
