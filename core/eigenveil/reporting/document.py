"""release.json: what a study publishes, canonical and signed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eigenveil._version import __version__
from eigenveil.analyst_signature.authorization import SignedAuthorization
from eigenveil.numerics.encoding import canonical
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.release import Release
from eigenveil.reporting.explain import guarantee
from eigenveil.reporting.result import Result
from eigenveil.reporting.trust import trust_words

FORMAT = "eigenveil-release/2"
SIGNED = b"eigenveil/release-signature/v1\n"
NOT_PRIVATE = (
    "NOT PRIVATE: the noise came from a seeded generator, for simulation only. "
    "Do not publish this result if the records are confidential."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """What else is published of a round: its question, who was absent and why, and how many attempts at it
    were charged, if it is masked (else 0).

    Not how long it took: that tells how many records a site has.
    """

    kind: str
    absent: Mapping[str, str]
    attempts: int = 0


def build(
    plan: Plan,
    result: Result,
    releases: Sequence[Release],
    *,
    rounds: Sequence[RoundRecord],
    private: bool,
    sites: Mapping[str, Any] | None = None,
    authorization: SignedAuthorization | None = None,
) -> dict[str, Any]:
    """The document that is signed: result, guarantee, rounds, plan; a function of stored values only.

    `sites` is what each site had stated of its rules when the study was submitted, None for nothing: public
    configuration, and nothing that a site found by them. The sites of a simulation state nothing.
    `authorization` is the analyst's own signature under the plan, which a simulation has not.
    """
    return {
        "format": FORMAT,
        "software": {"eigenveil": __version__},
        "private": private,
        "plan_digest": plan.digest,
        "plan": json.loads(plan.to_json()),
        "authorization": None if authorization is None else authorization.to_dict(),
        "sites": dict(sites or dict.fromkeys(plan.study.federation.sites)),
        "guarantee": guarantee(plan) if private else {"words": NOT_PRIVATE},
        "trust": trust_words(plan),
        "result": result.to_dict(),
        "rounds": [
            stated_of(release) | _recorded(record) for release, record in zip(releases, rounds, strict=True)
        ],
    }


def _recorded(record: RoundRecord) -> dict[str, Any]:
    tried = {"attempts": record.attempts} if record.attempts else {}
    return {"kind": record.kind, "absent": dict(record.absent)} | tried


def stated_of(release: Release) -> dict[str, Any]:
    """What a row of `rounds` says of its release alone."""
    return {
        "round": release.round,
        "query": release.query,
        "release": release.digest,
        "micro_rho": release.micro_rho,
        "atto_delta": str(release.atto_delta),
        "sigma": release.sigma,
        "present": list(release.present),
    }


def seal_bundle(document: dict[str, Any], *, sign: Callable[[bytes], bytes], public_key: bytes) -> bytes:
    """release.json: canonical JSON of the document, its Ed25519 signature and the raw public key."""
    signature = sign(SIGNED + canonical(document))
    return canonical({"document": document, "signature": signature.hex(), "public_key": public_key.hex()})
