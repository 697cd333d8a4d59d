"""The analyst of a release: a name under a key that other people compared, or the coordinator's word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eigenveil.analyst_signature.authorization import authorization_from_dict, check_authorization
from eigenveil.errors import Code, EigenveilError, PeerError, RequestError
from eigenveil.numerics.encoding import canonical
from eigenveil.protocol.plan import SIMULATION, plan_from_json

SIMULATED = "nobody: this is a simulation, which no analyst signs"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedBy:
    """The analyst of a release by name, and the `card` (digest) and `fingerprint` of the key that signed its
    plan; both are empty where no key did, and where a signature of a newer form could not be `checked`.
    `words` is a clause that says no more than that."""

    analyst: str
    card: str
    fingerprint: str
    words: str
    checked: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Plain values; `signed` is None where the signature was not checked."""
        signed = bool(self.card)
        return {
            "analyst": self.analyst or None,
            "signed": signed if self.checked else None,
            "card": self.card if signed else None,
            "fingerprint": self.fingerprint if signed else None,
            "words": self.words,
        }


def asked_by(document: Mapping[str, Any]) -> AskedBy:
    """The analyst of this document, once the signature in it is seen to hold for the document's own plan.

    It is checked as of a moment before its expiry: a release outlives every signature.

    Raises:
        RequestError: code `bad-release`, the authorization does not hold, or is for another plan.
    """
    analyst, written = document["plan"]["analyst"], document.get("authorization")  # older ones have none
    if written is None:
        simulated = not analyst or analyst == SIMULATION == document["plan"]["federation"]
        words = SIMULATED if simulated else f"{analyst}, {signature_statement('')}"
        return AskedBy(analyst=analyst, card="", fingerprint="", words=words)
    try:
        signed = authorization_from_dict(written)
        plan = plan_from_json(canonical(document["plan"]))
        card = check_authorization(signed, plan, signed.read().expires - 1)
    except EigenveilError as problem:
        if isinstance(problem, PeerError) and problem.code is Code.VERSION:
            words = f"{analyst}; the signature was not checked: {problem}"
            return AskedBy(analyst=analyst, card="", fingerprint="", words=words, checked=False)
        raise _bad(str(problem)) from problem
    words = f"whoever holds the key with the digits {card.fingerprint}, in the name of {analyst}"
    return AskedBy(analyst=analyst, card=card.digest, fingerprint=card.fingerprint, words=words)


def signature_statement(fingerprint: str) -> str:
    """Return the clause about a study's signature that stands beside its analyst's name; an empty
    `fingerprint` is no signature."""
    if not fingerprint:
        return "not signed: this name is the coordinator's word alone"
    return f"signed by the key with the digits {fingerprint}, which the analyst confirms by telephone"


def _bad(why: str) -> RequestError:
    return RequestError(Code.BAD_RELEASE, f"the analyst's signature in this release does not hold: {why}")
