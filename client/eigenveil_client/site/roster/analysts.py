"""Analysts' key cards, their views, and the rule that a study is signed by a confirmed key [R31].

1. An invalid signature is refused.
2. Once any analyst's key was confirmed here, also if it was changed or removed since, two kinds of studies
   are refused: those without a signature, and those signed by a key that is not confirmed for that analyst.
3. Before that, only the coordinator vouches for the analyst's name, and every view of the name states so."""

from __future__ import annotations

from collections import Counter
from enum import Enum
from pathlib import Path
from typing import Any

from eigenveil.dictionary.site_rules import Verdict
from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil.key_cards import AnalystKeyCard, SignedAnalystKeyCard
from eigenveil.protocol.plan import Plan
from eigenveil.study_authorization import MAX_AUTHORIZATION_SECONDS, SignedAuthorization, check_authorization
from eigenveil_client.site.roster.pins import PinStatus, RosterContent, RosterKind
from eigenveil_client.site.roster.roster import Roster, conflict_advice
from eigenveil_common.doctor import Check, ok, warn

UNSIGNED = {
    "answered": "answered on the coordinator's word about the analyst, until a first key card is confirmed",
    "refused": "refused",
}


def _header(folder: Path) -> dict[str, Any]:
    """Return how unsigned studies are treated: a key of `UNSIGNED`."""
    return {"unsigned": "refused" if Roster(ANALYSTS, folder).content().ever_confirmed else "answered"}


ANALYSTS: RosterKind[AnalystKeyCard] = RosterKind(
    entries="analysts",
    owner="analyst",
    reader="{}",
    read=SignedAnalystKeyCard,
    event="analyst-key-changed",
    change_effect="no study of this analyst is answered",
    without="If this analyst is not to be answered any more",
    duplicate_key_advice="two analysts cannot share a key. Ask both for new key cards",
    own=lambda folder: None,
    header=_header,
    heading=lambda view: f"unsigned studies: {UNSIGNED[view['unsigned']]}",
    empty="no analyst's key card is here: eigenveil-site analysts import FILE",
    changed="changed: their studies are refused until a person decides; see: eigenveil-site check",
    confirmed=" Unsigned studies are refused from now on.",
    resolved=" Unsigned studies are refused from now on.",
)
RULE = "signature"


def verdicts(folder: Path, plan: Plan, signed: SignedAuthorization | None, now: float) -> tuple[Verdict, ...]:
    """Return the verdict on the analyst by the roster in an identity's `folder`; none for a study that is not
    submitted. Raises as `Roster`."""
    if not plan.analyst:
        return ()
    try:
        return (Verdict(rule=RULE, passed=True, text=_check_signature(folder, plan, signed, now)),)
    except EigenveilError as problem:
        if problem.code in (Code.BAD_CONFIG, Code.STORAGE):  # the roster itself
            raise
        return (Verdict(rule=RULE, passed=False, text=str(problem)),)


def require(folder: Path, plan: Plan, signed: SignedAuthorization | None, now: float) -> None:
    """Require a valid signature, and record a key card that was shown in place of a confirmed one.

    Raises:
        RequestError: code `unsigned`; `unconfirmed-analyst`; or as `check_authorization` and `Roster`.
        PeerError: as `check_authorization`."""
    try:
        _check_signature(folder, plan, signed, now)
    except RequestError as problem:
        if problem.code is Code.UNCONFIRMED and signed is not None:
            roster, key_card = Roster(ANALYSTS, folder), signed.card.check()
            if not _signed_before(roster.content(), key_card, now):
                roster.mark_changed(key_card.analyst, key_card.digest)
        raise


def _signed_before(content: RosterContent[AnalystKeyCard], key_card: AnalystKeyCard, now: float) -> bool:
    """Return True if this card was confirmed here and removed so recently that studies signed by it before
    may still be open: it does not count as a change."""
    return any(
        one.card == key_card
        and one.confirmed is not None
        and one.until is not None
        and now < one.until + MAX_AUTHORIZATION_SECONDS
        for one in content.earlier
    )


def ever_confirmed(folder: Path, analyst: str) -> bool:
    """Return True if a key of this analyst was ever confirmed here, also if it was removed since."""
    content = Roster(ANALYSTS, folder).content()
    pins = (*content.pins.values(), *content.earlier)
    return any(one.confirmed is not None for one in pins if one.card.analyst == analyst)


def belongs_to_another_analyst(
    folder: Path, plan: Plan, signed: SignedAuthorization | None, now: float
) -> bool:
    """Return True if the signing key belongs to another person, as far as this site knows: another key of the
    analyst is confirmed here, and this is no key with which the analyst may have signed before."""
    signed_before = signed is not None and _signed_before(
        Roster(ANALYSTS, folder).content(), signed.card.check(), now
    )
    return ever_confirmed(folder, plan.analyst) and not signed_before


def _check_signature(folder: Path, plan: Plan, signed: SignedAuthorization | None, now: float) -> str:
    """Return the text of a passed verdict. Raises as `require`."""
    key_card = None if signed is None else check_authorization(signed, plan, now)
    content = Roster(ANALYSTS, folder).content()
    if not content.ever_confirmed:
        if key_card is None:
            return (
                f"not signed: only the coordinator vouches for {plan.analyst}. Have {plan.analyst} make a "
                "key, and confirm it: eigenveil-site analysts"
            )
        return (
            "signed by a key that is not confirmed here: only the coordinator vouches for "
            f"{key_card.analyst}. Have {key_card.analyst} send the key card, and confirm it: eigenveil-site "
            "analysts"
        )
    if key_card is None:
        raise RequestError(
            Code.UNSIGNED,
            f"this study is not signed by {plan.analyst}. Keys of analysts are confirmed here, so studies "
            "without a signature are refused",
        )
    pin = content.pins.get(key_card.analyst)
    if pin is None or pin.card != key_card or pin.status is not PinStatus.CONFIRMED or pin.confirmed is None:
        raise RequestError(Code.UNCONFIRMED, _refusal_reason(content, key_card, now))
    return f"signed by {key_card.analyst}, whose key was confirmed by {pin.confirmed.by}"


def _refusal_reason(content: RosterContent[AnalystKeyCard], key_card: AnalystKeyCard, now: float) -> str:
    """Return the reason why a key is not accepted, and what to do."""
    pin = content.pins.get(key_card.analyst)
    if pin is not None and pin.confirmed is not None and not _signed_before(content, key_card, now):
        return conflict_advice(ANALYSTS, pin)
    if any(one.card == key_card for one in content.earlier):
        return (
            f"this study is signed by a key of {key_card.analyst} that was removed here. Have it signed "
            "again, with the key that is confirmed here"
        )
    return (
        f"this study is signed by a key that is not confirmed here for {key_card.analyst}. Import the key "
        f"card (eigenveil-site analysts import FILE), telephone {key_card.analyst}, and type the digits that "
        f"you hear (eigenveil-site analysts confirm {key_card.analyst}). If this site decides by rules, the "
        "study stays declined: have it submitted again under another id"
    )


class SignatureStatus(Enum):
    """Status of the analyst's signature under a study, shown wherever the analyst's name is shown.

    `none`: the study is not signed. `invalid`: the signature is invalid or has expired. `not-compared`: no
    key of this analyst is confirmed here. `changed`: the coordinator showed another key than the confirmed
    one. `removed`: the key was confirmed here and removed later. `confirmed`: the key is confirmed here."""

    NONE = "none"
    INVALID = "invalid"
    NOT_COMPARED = "not-compared"
    CHANGED = "changed"
    REMOVED = "removed"
    CONFIRMED = "confirmed"


SIGNATURE_TEXT = {
    SignatureStatus.NONE: "only the coordinator vouches for this name: the study is not signed",
    SignatureStatus.INVALID: (
        "only the coordinator vouches for this name: the signature is invalid or has expired"
    ),
    SignatureStatus.NOT_COMPARED: "only the coordinator vouches for this name: the key that signed the study "
    "is not confirmed here",
    SignatureStatus.CHANGED: "only the coordinator vouches for this name: it showed another key than the one "
    "confirmed here. Telephone the analyst; see: eigenveil-site analysts list",
    SignatureStatus.REMOVED: "signed by a key that was removed here: have the study signed again, with "
    "the analyst's present key",
    SignatureStatus.CONFIRMED: "signed by the key that is confirmed here",
}

SIGNATURE_LABEL = {
    SignatureStatus.NONE: "not signed",
    SignatureStatus.INVALID: "signature invalid",
    SignatureStatus.NOT_COMPARED: "key not confirmed",
    SignatureStatus.CHANGED: "another key shown",
    SignatureStatus.REMOVED: "key removed",
    SignatureStatus.CONFIRMED: "signed",
}


def analyst_view(folder: Path, plan: Plan, signed: SignedAuthorization | None, now: float) -> dict[str, Any]:
    """Return the analyst's name and the status of the signature, as plain values. They contain no
    fingerprint: the owner reads it out by telephone. Raises as `Roster`."""
    signature = _signature_status(folder, plan, signed, now)
    return {
        "analyst": plan.analyst,
        "status": signature.value,
        "expires": None if signed is None or signature is SignatureStatus.INVALID else signed.read().expires,
    }


def analyst_text(view: dict[str, Any]) -> str:
    """Return `analyst_view` as text for a terminal."""
    if not view["analyst"]:
        return "not submitted yet"
    return f"{view['analyst']} ({SIGNATURE_TEXT[SignatureStatus(view['status'])]})"


def _signature_status(
    folder: Path, plan: Plan, signed: SignedAuthorization | None, now: float
) -> SignatureStatus:
    if signed is None:
        return SignatureStatus.NONE
    try:
        key_card = check_authorization(signed, plan, now)
    except EigenveilError:
        return SignatureStatus.INVALID
    content = Roster(ANALYSTS, folder).content()
    pin = content.pins.get(plan.analyst)
    if pin is not None and pin.card == key_card and pin.status is PinStatus.CONFIRMED:
        return SignatureStatus.CONFIRMED
    if any(one.card == key_card and one.confirmed is not None for one in content.earlier):
        return SignatureStatus.REMOVED
    return SignatureStatus.NOT_COMPARED if pin is None or pin.confirmed is None else SignatureStatus.CHANGED


def check_analyst_keys(folder: Path) -> Check:
    """Check if studies must be signed here. Raises as `Roster.check_unchanged`."""
    roster, name = Roster(ANALYSTS, folder), "analysts' keys"
    roster.check_unchanged()
    unsigned, count = (
        _header(folder)["unsigned"],
        Counter(pin.status for pin in roster.content().pins.values()),
    )
    text = (
        f"confirmed: {count[PinStatus.CONFIRMED]}, not confirmed: {count[PinStatus.IMPORTED]}; studies "
        f"without a signature are {UNSIGNED[unsigned]}"
    )
    if count[PinStatus.IMPORTED]:
        return warn(name, text, "telephone each: eigenveil-site analysts confirm NAME")
    if unsigned == "answered":
        todo = "import an analyst's key card: eigenveil-site analysts import FILE, then confirm NAME"
        return warn(name, text, todo)
    return ok(name, text)
