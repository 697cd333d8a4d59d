"""The federation's signature under a plan: what it covers, and how it is checked. [R4]"""

from __future__ import annotations

from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.signed import check_signature

PLAN_SIGNED = b"eigenveil/plan-signature/v1\n"


def check_plan(plan_json: bytes, signature: bytes, release_key: bytes) -> Plan:
    """The plan, if the federation's release key (raw Ed25519) signed these very bytes.

    Raises:
        PeerError: code `identity`, signed by another key or changed; `protocol`, not canonical.
        RequestError: a value of the plan is refused.
    """
    check_signature(
        release_key,
        signature,
        PLAN_SIGNED + plan_json,
        "the plan is not signed by this federation; nothing of it was believed",
    )
    return plan_from_json(plan_json)
