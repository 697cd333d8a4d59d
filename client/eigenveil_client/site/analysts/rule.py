"""The rule about a study's analyst: whose key signed it, by the word of people here [R31].

1. A signature that is there and does not hold is refused.
2. Once a person here has confirmed any analyst's key, also one that was changed or removed since: what is not
   signed is refused, and so is what is signed by a key that is not confirmed for exactly that analyst.
3. Before that, the analyst's name is what the coordinator says, and every place that shows it says so.
"""

from __future__ import annotations

from pathlib import Path

from eigenveil.analyst_signature.authorization import (
    MAX_AUTHORIZATION_SECONDS,
    SignedAuthorization,
    check_authorization,
)
from eigenveil.analyst_signature.card import AnalystCard
from eigenveil.dictionary.verdict import Verdict
from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil.protocol.plan import Plan
from eigenveil_client.site.analysts.kind import ANALYSTS
from eigenveil_client.site.roster.content import RosterContent
from eigenveil_client.site.roster.pin import Standing
from eigenveil_client.site.roster.roster import Roster, contradicted

RULE = "signature"


def verdicts(folder: Path, plan: Plan, signed: SignedAuthorization | None, now: float) -> tuple[Verdict, ...]:
    """What the roster in an identity's `folder` says of who asks; nothing of a study that is not submitted.
    Raises as `Roster`."""
    if not plan.analyst:
        return ()
    try:
        return (Verdict(rule=RULE, passed=True, text=_checked(folder, plan, signed, now)),)
    except EigenveilError as problem:
        if problem.code in (Code.BAD_CONFIG, Code.STORAGE):  # the roster itself
            raise
        return (Verdict(rule=RULE, passed=False, text=str(problem)),)


def require(folder: Path, plan: Plan, signed: SignedAuthorization | None, now: float) -> None:
    """Insist on it, and write down a card that was shown in place of a confirmed one.

    Raises:
        RequestError: code `unsigned`; `unconfirmed-analyst`; or as `check_authorization` and `Roster`.
        PeerError: as `check_authorization`.
    """
    try:
        _checked(folder, plan, signed, now)
    except RequestError as problem:
        if problem.code is Code.UNCONFIRMED and signed is not None:
            _mark_changed(Roster(ANALYSTS, folder), signed.card.check(), now)
        raise


def _mark_changed(roster: Roster[AnalystCard], card: AnalystCard, now: float) -> None:
    """Contradict the confirmed card of an analyst, but by none that was put aside so lately that studies
    which it signed before are still about."""
    if not _signed_before(roster.held(), card, now):
        roster.mark_changed(card.analyst, card.digest)


def _signed_before(held: RosterContent[AnalystCard], card: AnalystCard, now: float) -> bool:
    """Whether people here confirmed this card and put it aside since, and its owner may have signed with it
    before that what has not ended yet."""
    return any(
        one.card == card
        and one.confirmed is not None
        and one.until is not None
        and now < one.until + MAX_AUTHORIZATION_SECONDS
        for one in held.earlier
    )


def ever_confirmed(folder: Path, analyst: str) -> bool:
    """Whether people here have ever confirmed a key of this analyst, whatever became of it since."""
    held = Roster(ANALYSTS, folder).held()
    pins = (*held.pins.values(), *held.earlier)
    return any(one.confirmed is not None for one in pins if one.card.analyst == analyst)


def is_anothers(folder: Path, plan: Plan, signed: SignedAuthorization | None, now: float) -> bool:
    """Whether a key that is not confirmed for this plan's analyst is somebody else's, as far as people here
    know: they confirmed one of that analyst, and this is none with which the analyst may have signed."""
    lately = signed is not None and _signed_before(Roster(ANALYSTS, folder).held(), signed.card.check(), now)
    return ever_confirmed(folder, plan.analyst) and not lately


def _checked(folder: Path, plan: Plan, signed: SignedAuthorization | None, now: float) -> str:
    """The words for who asks."""
    card = None if signed is None else check_authorization(signed, plan, now)
    held = Roster(ANALYSTS, folder).held()
    if not held.ever_confirmed:
        return _by_name_alone(plan) if card is None else _not_compared(card)
    if card is None:
        raise RequestError(
            Code.UNSIGNED,
            f"this study is not signed by {plan.analyst}, and people here have confirmed keys of analysts: "
            "what nobody signed is not answered any more",
        )
    return _confirmed(held, card, now)


def _confirmed(held: RosterContent[AnalystCard], card: AnalystCard, now: float) -> str:
    pin = held.pins.get(card.analyst)
    if pin is None or pin.card != card or pin.standing is not Standing.CONFIRMED or pin.confirmed is None:
        raise RequestError(Code.UNCONFIRMED, _why_not(held, card, now))
    return f"signed by {card.analyst}, whose key {pin.confirmed.by} has compared"


def _why_not(held: RosterContent[AnalystCard], card: AnalystCard, now: float) -> str:
    """Why a key does not sign here, and what to do."""
    pin = held.pins.get(card.analyst)
    if pin is not None and pin.confirmed is not None and not _signed_before(held, card, now):
        return contradicted(ANALYSTS, pin)
    if any(one.card == card for one in held.earlier):
        return (
            f"this study is signed by a key of {card.analyst} that people here have put aside: have it "
            "signed again, with the key that is confirmed here"
        )
    return (
        f"this study is signed by a key that nobody here has confirmed as that of {card.analyst}. Get the "
        f"card of {card.analyst}: eigenveil-site analysts import FILE; then telephone, and type the digits "
        f"that you hear: eigenveil-site analysts confirm {card.analyst}. Where this site's rules decide, "
        "this study stays declined: have it submitted again then, under another id"
    )


def _by_name_alone(plan: Plan) -> str:
    return (
        f"not signed: that {plan.analyst} asks is the coordinator's word alone. Have {plan.analyst} make a "
        "key, and confirm it: eigenveil-site analysts"
    )


def _not_compared(card: AnalystCard) -> str:
    return (
        f"signed by a key that nobody here has compared: that it is {card.analyst}'s is the coordinator's "
        f"word alone. Have {card.analyst} send the card, and confirm it: eigenveil-site analysts"
    )
