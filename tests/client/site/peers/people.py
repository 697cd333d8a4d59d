"""People of hospitals who exchange cards."""

from __future__ import annotations

from pathlib import Path

from eigenveil.key_cards.card_file import cards_to_file
from eigenveil.secure_aggregation.card import Card, SignedCard
from eigenveil_client.site.peers.keys import OwnKeys
from eigenveil_client.site.peers.roster import Roster
from tests.client.site.support import FEDERATION, Stage
from tests.core.secure_aggregation import cards

AT = 1_800_000_000


def theirs(site: str = "hospital-b", seed: int = 7, federation: str = FEDERATION) -> SignedCard:
    """The card of another site, of a federation."""
    return cards.signed_card(site, seed, federation)


def mailed(folder: Path, *signed: SignedCard, name: str = "mail.peer") -> Path:
    """A file of them."""
    path = folder / name
    path.write_bytes(cards_to_file(signed))
    return path


def own(stage: Stage) -> Card:
    return OwnKeys.make(stage.config.identity).card


def roster(stage: Stage) -> Roster:
    """What a process of the site sees of it, at a moment that is known."""
    return Roster(stage.config.identity, clock=lambda: AT)


def knowing(stage: Stage, *signed: SignedCard) -> Roster:
    """It, with these cards confirmed."""
    one = roster(stage)
    one.take(signed, own(stage), replacing=False)
    for card in (each.check() for each in signed):
        one.confirm(card.site, card.fingerprint, "Kim")
    return one
