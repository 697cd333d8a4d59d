"""Who asks, and by whose word: shown wherever an analyst's name is."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

from eigenveil.analyst_signature.authorization import SignedAuthorization, check_authorization
from eigenveil.errors import EigenveilError
from eigenveil.protocol.plan import Plan
from eigenveil_client.site.analysts.kind import ANALYSTS
from eigenveil_client.site.roster.pin import Standing
from eigenveil_client.site.roster.roster import Roster


class Signature(Enum):
    """`none`: nobody signed the study. `invalid`: what came as a signature does not hold, or has expired.
    `not-compared`: a key signed, and people here have confirmed none of this analyst. `changed`: they have,
    and the coordinator showed another one since. `put-aside`: a key signed that people here confirmed once
    and took back. `confirmed`: the key signed that a person here has confirmed."""

    NONE = "none"
    INVALID = "invalid"
    NOT_COMPARED = "not-compared"
    CHANGED = "changed"
    PUT_ASIDE = "put-aside"
    CONFIRMED = "confirmed"


WORDS = {
    Signature.NONE: "this name is the coordinator's word alone: nobody signed the study",
    Signature.INVALID: "this name is the coordinator's word alone: the signature does not hold any more",
    Signature.NOT_COMPARED: "this name is the coordinator's word alone: nobody here has compared the key "
    "that signed the study",
    Signature.CHANGED: "this name is the coordinator's word alone: another key than the one that people here "
    "have compared was shown in this name. Telephone the analyst: eigenveil-site analysts list",
    Signature.PUT_ASIDE: "signed by a key that people here have put aside: have the study signed again, with "
    "the analyst's present key",
    Signature.CONFIRMED: "signed by the key that people here have compared",
}

SHORT = {
    Signature.NONE: "not signed",
    Signature.INVALID: "signature invalid",
    Signature.NOT_COMPARED: "key not compared",
    Signature.CHANGED: "another key was shown",
    Signature.PUT_ASIDE: "key put aside",
    Signature.CONFIRMED: "signed",
}


def asker(folder: Path, plan: Plan, signed: SignedAuthorization | None, now: float) -> dict[str, Any]:
    """The name, and what its signature is worth here; plain values. Digits of a key are in none of them: they
    are to be heard from its owner. Raises as `Roster`."""
    signature = _signature(folder, plan, signed, now)
    return {
        "analyst": plan.analyst,
        "signature": signature.value,
        "expires": None if signed is None or signature is Signature.INVALID else signed.read().expires,
    }


def asked_by(told: dict[str, Any]) -> str:
    """`asker` for a person at a terminal."""
    if not told["analyst"]:
        return "not submitted yet"
    return f"{told['analyst']} ({WORDS[Signature(told['signature'])]})"


def _signature(folder: Path, plan: Plan, signed: SignedAuthorization | None, now: float) -> Signature:
    if signed is None:
        return Signature.NONE
    try:
        card = check_authorization(signed, plan, now)
    except EigenveilError:
        return Signature.INVALID
    held = Roster(ANALYSTS, folder).held()
    pin = held.pins.get(plan.analyst)
    if pin is not None and pin.card == card and pin.standing is Standing.CONFIRMED:
        return Signature.CONFIRMED
    if any(one.card == card and one.confirmed is not None for one in held.earlier):
        return Signature.PUT_ASIDE
    return Signature.NOT_COMPARED if pin is None or pin.confirmed is None else Signature.CHANGED
