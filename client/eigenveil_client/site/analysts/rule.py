"""The rule about a study's analyst: whose key signed it, by the word of people here [R31].

1. A signature that is there and does not hold is refused.
2. Once a person here has confirmed any analyst's key, also one that was changed or removed since: what is not
   signed is refused, and so is what is signed by a key that is not confirmed for exactly that analyst.
3. Before that, the analyst's name is what the coordinator says, and every place that shows it says so.
"""

from __future__ import annotations

from pathlib import Path

from eigenveil.analyst_signature.authorization import SignedAuthorization, check_authorization
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
            _mark_changed(Roster(ANALYSTS, folder), signed.card.check())
        raise


def _mark_changed(roster: Roster[AnalystCard], card: AnalystCard) -> None:
    """Contradict the confirmed card of an analyst, but by none that people here have put aside themselves:
    studies that were signed before a new key are still about."""
    if not any(one.card == card for one in roster.held().earlier):
        roster.mark_changed(card.analyst, card.digest)


def may_yet_be_confirmed(folder: Path, plan: Plan) -> bool:
    """Whether people here have never confirmed a key of this plan's analyst, so that they still may."""
    held = Roster(ANALYSTS, folder).held()
    pins = (*held.pins.values(), *held.earlier)
    return not any(one.confirmed is not None for one in pins if one.card.analyst == plan.analyst)


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
    return _confirmed(held, card)


def _confirmed(held: RosterContent[AnalystCard], card: AnalystCard) -> str:
    pin = held.pins.get(card.analyst)
    if pin is None or pin.card != card or pin.standing is not Standing.CONFIRMED or pin.confirmed is None:
        raise RequestError(Code.UNCONFIRMED, _why_not(held, card))
    return f"signed by {card.analyst}, whose key {pin.confirmed.by} has compared"


def _why_not(held: RosterContent[AnalystCard], card: AnalystCard) -> str:
    """Why a key does not sign here, and what to do."""
    pin = held.pins.get(card.analyst)
    if any(one.card == card for one in held.earlier):
        return (
            f"this study is signed by a key of {card.analyst} that people here have put aside: have it "
            "signed again, with the key that is confirmed here"
        )
    if pin is not None and pin.confirmed is not None:
        return contradicted(ANALYSTS, pin)
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
