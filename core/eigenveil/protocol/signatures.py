"""The federation's signature under a plan: what it covers, and how it is checked. [R4]"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from eigenveil.errors import Code, PeerError
from eigenveil.protocol.plan import Plan, plan_from_json

PLAN_SIGNED = b"eigenveil/plan-signature/v1\n"


def check_plan(plan_json: bytes, signature: bytes, release_key: bytes) -> Plan:
    """The plan, if the federation's release key (raw Ed25519) signed these very bytes.

    Raises:
        PeerError: code `identity`, signed by another key or changed; `protocol`, not canonical.
        RequestError: a value of the plan is refused.
    """
    try:
        Ed25519PublicKey.from_public_bytes(release_key).verify(signature, PLAN_SIGNED + plan_json)
    except (InvalidSignature, ValueError) as problem:
        raise PeerError(
            Code.IDENTITY, "the plan is not signed by this federation; nothing of it was believed"
        ) from problem
    return plan_from_json(plan_json)
